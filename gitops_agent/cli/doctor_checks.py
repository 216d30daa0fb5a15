"""What ``doctor`` looks at: each check is one callable that returns ok or what to mend."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gitops_agent.errors import GitopsAgentError
from gitops_agent.settings import Settings


@dataclass(frozen=True, slots=True)
class Check:
    """One answer."""

    name: str
    ok: bool
    answer: str
    hint: str = ""


def run_checks(settings: Settings, environment: Mapping[str, str]) -> list[Check]:
    """All checks, in an order in which the first bad one explains the rest."""
    steps: list[Callable[[], Check]] = [
        _python,
        _git,
        lambda: _state(settings),
        lambda: _proc(),
        lambda: _drivers(settings),
        lambda: _source(settings, environment),
        lambda: _journal(settings),
    ]
    return [step() for step in steps]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _git() -> Check:
    from gitops_agent.source.git import OLDEST

    path, hint = shutil.which("git"), f"install git {OLDEST[0]}.{OLDEST[1]} or newer and put it on PATH"
    if path is None:
        return Check("git", False, "not found on PATH", hint)
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    number = tuple(int(part) for part in re.findall(r"\d+", answer)[:2])
    return Check("git", number >= OLDEST, answer, hint)


def _state(settings: Settings) -> Check:
    existing = settings.state
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    free = shutil.disk_usage(existing).free // 2**20
    ok = os.access(existing, os.W_OK) and existing.is_dir() and free > 100
    answer = f"{settings.state} ({free} MiB free)"
    return Check("state directory", ok, answer, "choose a writable --state-dir with 100 MiB to spare")


def _proc() -> Check:
    ok = os.access("/proc/self/environ", os.R_OK)
    answer = "readable" if ok else "not readable"
    return Check("process table", ok, answer, "the process driver needs /proc (Linux)")


def _drivers(settings: Settings) -> Check:
    from gitops_agent.wiring import installed_drivers

    try:
        return Check("drivers", True, ", ".join(installed_drivers(settings)))
    except GitopsAgentError as problem:
        return Check("drivers", False, problem.message, problem.hint)


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
            head = journal.state().source.head or "none"
            return Check("journal", True, f"readable, newest commit {head[:10]}")
    except GitopsAgentError as problem:
        return Check("journal", False, problem.message, problem.hint)
