"""Passes over a converged fleet on the in-memory driver: a commit that touches one spec, nothing at all, memory.

The instance is the real one (wiring, mirror, loader, journal, notes); only the live system is a dictionary.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from benchmarks import Row
from benchmarks.instance import STATE, Fleet, converged, reopened, timed_plans
from benchmarks.timing import medians, moment, resident_mib, timed
from gitops_agent.journal.store import open_journal
from gitops_agent.model.status import Phase

SIZE = 10_000
TURNS = 9
COMMITS, HISTORY_AGENTS = 5_000, 100


def run(size: int = SIZE) -> list[Row]:
    """Every measurement of whole passes."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large"), Path(folder, "small")
        with converged(large, size) as many, converged(small, size // 10) as few:
            rows = [_one_commit(few, many, size), _quiet(many, size)]
        return [*rows, _memory(large), *_history(Path(folder))]


def _one_commit(few: Fleet, many: Fleet, size: int) -> Row:
    small, large = medians(TURNS, _followed(few), _followed(many))
    name = f"one-spec commit, fetched to plan ready: {size} specs / {size // 10} specs"
    return Row(name, large / small, 1.5, note=moment(large))


def _followed(fleet: Fleet) -> Callable[[], float]:
    """Each call commits a change to another spec and gives the time from fetched to plan ready."""
    numbers = count()

    def follow() -> float:
        fleet.commit(next(numbers), "Stopped")
        with timed_plans() as watch:
            fleet.follow()
        if watch.plan is None or len(watch.plan.actions) != 1:
            raise AssertionError(f"expected a plan of one action: {watch.plan}")
        return watch.seconds

    return follow


def _quiet(fleet: Fleet, size: int) -> Row:
    (taken,) = medians(TURNS, lambda: timed(fleet.full_pass))
    return Row("no-change pass, for each 1,000 agents", taken / size * 1e6, 50.0, "ms", note=moment(taken))


def _history(folder: Path) -> list[Row]:
    """What a long history costs: a quiet pass, and the first pass after a start, beside those with a short one."""
    short, long = folder / "short", folder / "long"
    for each in (short, long):
        with converged(each, HISTORY_AGENTS):
            pass
    _add_commits(long / STATE, COMMITS)
    first_short, first_long = medians(TURNS, lambda: _first_pass(short), lambda: _first_pass(long))
    with reopened(short) as one, reopened(long) as many:
        for fleet in (one, many):
            fleet.full_pass()
        quiet_short, quiet_long = medians(TURNS, lambda: timed(one.full_pass), lambda: timed(many.full_pass))
    said = f"{COMMITS:,} commits in the journal / one"
    return [
        Row(f"quiet pass: {said}", quiet_long / quiet_short, 1.25, note=moment(quiet_long)),
        Row(f"first pass after a start: {said}", first_long / first_short, 1.25, note=moment(first_long)),
    ]


def _first_pass(folder: Path) -> float:
    with reopened(folder) as fleet:
        return timed(fleet.full_pass)


def _add_commits(state: Path, number: int) -> None:
    """Records of commits that converged long ago, below those that are there."""
    with open_journal(state) as journal:
        known = journal.state()
        newest = known.head
        if newest is None:
            raise AssertionError("nothing was ever followed")
        old = [
            replace(newest, sha=f"{n:040x}", position=n - number, seen_at=1.0 + n, phase=Phase.CONVERGED)
            for n in range(number)
        ]
        journal.commit(replace(known, commits=known.commits.updated(old)))


def _memory(folder: Path) -> Row:
    """Resident memory of a process that found the fleet running and has made full passes over it."""
    command = [sys.executable, "-m", "benchmarks.passes", "--memory", str(folder)]
    probe = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Row("resident memory after full passes", float(probe.stdout), 250.0, "MiB")


def _print_memory(folder: Path) -> None:
    with reopened(folder) as fleet:
        for _ in range(3):
            result = fleet.full_pass()
        if result.record is None or result.record.plan.actions or not result.state.status.agents:
            raise AssertionError(f"expected a quiet fleet: {result.record and result.record.plan}")
        print(resident_mib())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        _print_memory(Path(sys.argv[2]))
    else:
        print(*run(), sep="\n")
