"""Passes over a converged fleet on the in-memory driver: a commit that touches one spec, nothing at all, memory.

The instance is the real one (wiring, mirror, loader, journal, notes); only the live system is a dictionary.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from benchmarks import Row
from benchmarks.instance import Fleet, converged, reopened, timed_plans
from benchmarks.timing import medians, moment, resident_mib, timed

SIZE = 10_000
TURNS = 9


def run(size: int = SIZE) -> list[Row]:
    """Every measurement of whole passes."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large"), Path(folder, "small")
        with converged(large, size) as many, converged(small, size // 10) as few:
            rows = [_one_commit(few, many, size), _quiet(many, size)]
        return [*rows, _memory(large)]


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


def _memory(folder: Path) -> Row:
    """Resident memory of a process that found the fleet running and has made full passes over it."""
    command = [sys.executable, "-m", "benchmarks.passes", "--memory", str(folder)]
    probe = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Row("resident memory after full passes", float(probe.stdout), 250.0, "MiB")


def _print_memory(folder: Path) -> None:
    with reopened(folder) as fleet:
        for _ in range(3):
            result = fleet.full_pass()
        if result.plan is None or result.plan.actions or not result.statuses:
            raise AssertionError(f"expected a quiet fleet: {result.plan}")
        print(resident_mib())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        _print_memory(Path(sys.argv[2]))
    else:
        print(*run(), sep="\n")
