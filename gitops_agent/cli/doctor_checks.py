"""What ``doctor`` looks at: each check is one callable that returns ok or what to mend."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from gitops_agent.drivers.api import CheckResult
from gitops_agent.errors import GitopsAgentError
from gitops_agent.journal.lock import open_to_others
from gitops_agent.settings import Settings
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.secrets import Redactor


def run_checks(settings: Settings, environment: Mapping[str, str]) -> list[CheckResult]:
    """All checks, in an order in which the first bad one explains the rest."""
    return [
        _python(),
        _git(),
        _state(settings),  # before the journal is opened, which makes files of its own there
        *_drivers(settings),
        _source(settings, environment),
        _journal(settings),
        *_election(settings),
    ]


def _python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    return CheckResult("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _git() -> CheckResult:
    from gitops_agent.source.git_environment import OLDEST

    path, hint = shutil.which("git"), f"install git {OLDEST[0]}.{OLDEST[1]} or newer and put it on PATH"
    if path is None:
        return CheckResult("git", False, "not found on PATH", hint)
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    number = tuple(int(part) for part in re.findall(r"\d+", answer)[:2])
    return CheckResult("git", number >= OLDEST, answer, hint)


def _state(settings: Settings) -> CheckResult:
    existing = settings.state
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    free = shutil.disk_usage(existing).free // 2**20
    ok = os.access(existing, os.W_OK) and existing.is_dir() and free > 100
    answer = f"{settings.state} ({free} MiB free)"
    if ok and existing == settings.state and (shared := open_to_others(existing)):
        hint = f"run chmod -R go-rwx {existing} as its owner; once and run do it when they start"
        return CheckResult("state directory", False, f"{answer}, other users may read: {', '.join(shared)}", hint)
    return CheckResult("state directory", ok, answer, "choose a writable --state-dir with 100 MiB to spare")


def _drivers(settings: Settings) -> list[CheckResult]:
    """The drivers that load, and what each of them needs of this host."""
    from gitops_agent.wiring import connect_drivers

    try:
        drivers = connect_drivers(settings, Redactor())
        return [*drivers.checks(), CheckResult("drivers", True, ", ".join(drivers.plugins.names))]
    except GitopsAgentError as problem:
        return [CheckResult("drivers", False, problem.message, problem.hint)]


def _source(settings: Settings, environment: Mapping[str, str]) -> CheckResult:
    """Whether the remote answers and has the branch; the state directory stays as it is."""
    from gitops_agent.source.mirror import Mirror

    if not settings.repo:
        return CheckResult(
            "source", False, "no repository given", "give --repo PATH-or-URL or set GITOPS_AGENT_REPO"
        )
    try:
        with TemporaryDirectory() as scratch:
            mirror = Mirror(settings.model_copy(update={"state_dir": scratch}), environment, SystemClock())
            head = mirror.refresh()
        answer = f"{mirror.address.target} answers, {settings.branch} is at {head.short}"
        return CheckResult("source", True, answer)
    except GitopsAgentError as problem:
        return CheckResult("source", False, problem.message, problem.hint)


def _journal(settings: Settings) -> CheckResult:
    from gitops_agent.journal.place import journal_place
    from gitops_agent.journal.store import has_journal, open_journal

    try:
        place = journal_place(settings)
        where = "" if isinstance(place, Path) else f"{place} answers, "
        if not has_journal(place):
            return CheckResult("journal", True, f"{where}none yet (the first once or run makes it)")
        with open_journal(place, read_only=True) as journal:
            head = journal.state().source.head or "none"
            return CheckResult("journal", True, f"{where}readable, newest commit {head[:10]}")
    except GitopsAgentError as problem:
        return CheckResult("journal", False, problem.message, problem.hint)


def _election(settings: Settings) -> list[CheckResult]:
    """Whether all that is on record can follow a change of leader."""
    from gitops_agent.journal.place import journal_place
    from gitops_agent.journal.store import open_journal
    from gitops_agent.wiring import LOCAL_AGENTS, LOCAL_AGENTS_HINT, connect_drivers, local_agents

    if not settings.election:
        return []
    local: list[str] = []
    with suppress(GitopsAgentError):  # the checks before this one say what cannot be read
        drivers = connect_drivers(settings, Redactor())
        with open_journal(journal_place(settings), read_only=True) as journal:
            local = local_agents(journal, drivers)
    message = f"{LOCAL_AGENTS}: {', '.join(local[:5])}" if local else f"by the driver {settings.election}"
    return [CheckResult("election", not local, message, LOCAL_AGENTS_HINT)]
