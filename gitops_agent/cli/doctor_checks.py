"""What ``doctor`` looks at: each check is one callable that says ok or what to mend."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from gitops_agent.errors import GitopsAgentError
from gitops_agent.settings import Settings


@dataclass(frozen=True, slots=True)
class Check:
    """One answer."""

    name: str
    ok: bool
    said: str
    hint: str = ""


def run_checks(settings: Settings, environment: Mapping[str, str]) -> list[Check]:
    """All checks, in an order in which the first bad one explains the rest."""
    drivers = _drivers(settings)
    return [_python(), _git(), _state(settings), *drivers, _source(settings, environment), _journal(settings)]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _git() -> Check:
    from gitops_agent.source.git import OLDEST

    path, hint = shutil.which("git"), f"install git {OLDEST[0]}.{OLDEST[1]} or newer and put it on PATH"
    if path is None:
        return Check("git", False, "not found on PATH", hint)
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    number = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    return Check("git", number >= OLDEST, said, hint)


def _state(settings: Settings) -> Check:
    existing = settings.state
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    free = shutil.disk_usage(existing).free // 2**20
    ok = os.access(existing, os.W_OK) and existing.is_dir() and free > 100
    said = f"{settings.state} ({free} MiB free)"
    return Check("state directory", ok, said, "choose a writable --state-dir with 100 MiB to spare")


def _drivers(settings: Settings) -> list[Check]:
    """The drivers that load, and what each of them needs of this host."""
    from gitops_agent.wiring import check_drivers

    try:
        names, found = check_drivers(settings)
    except GitopsAgentError as problem:
        return [Check("drivers", False, problem.message, problem.hint)]
    return [
        *(Check(each.name, each.ok, each.message, each.hint) for each in found),
        Check("drivers", True, ", ".join(names)),
    ]


def _source(settings: Settings, environment: Mapping[str, str]) -> Check:
    from gitops_agent.wiring import ask_source

    if not settings.repo:
        return Check("source", False, "no repository given", "give --repo PATH-or-URL or set GITOPS_AGENT_REPO")
    try:
        return Check("source", True, ask_source(settings, environment))
    except GitopsAgentError as problem:
        return Check("source", False, problem.message, problem.hint)


def _journal(settings: Settings) -> Check:
    from gitops_agent.journal.store import has_journal, open_journal

    if not has_journal(settings.state):
        return Check("journal", True, "none yet (the first once or run makes it)")
    try:
        with open_journal(settings.state, read_only=True) as journal:
            return Check("journal", True, f"readable, newest commit {(journal.get('head') or 'none')[:10]}")
    except GitopsAgentError as problem:
        return Check("journal", False, problem.message, problem.hint)
