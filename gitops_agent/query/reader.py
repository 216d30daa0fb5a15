"""The journal opened for reading. Imports no driver, no git, no scheduler: ``status`` answers at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gitops_agent.query.fleet import FleetReader
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.secrets import Redactor

if TYPE_CHECKING:
    from gitops_agent.settings import Settings


@contextmanager
def open_reader(settings: Settings, environment: Mapping[str, str]) -> Iterator[FleetReader]:
    """The journal, read-only: no lock, no repository, no driver."""
    from gitops_agent.journal.store import open_journal

    with open_journal(settings.state, read_only=True) as journal:
        yield FleetReader(journal, settings, SystemClock(), make_redactor(settings, environment))


def make_redactor(settings: Settings, environment: Mapping[str, str]) -> Redactor:
    """A redactor that knows our own secrets; what looks like one is masked anyway."""
    secrets = [settings.sentry_dsn or "", environment.get(settings.token_env or "", "")]
    if settings.token_file and Path(settings.token_file).is_file():
        secrets.append(Path(settings.token_file).read_text(encoding="utf-8", errors="replace").strip())
    return Redactor(secret for secret in secrets if secret)
