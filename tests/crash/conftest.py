from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, alive, all_pids, environment_of, kill_trees, until


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path / "fleet")
    yield fleet
    fleet.end()


@pytest.fixture
def lair(tmp_path: Path) -> Iterator[Path]:
    """A folder below which a program of its own starts agents; whatever it leaves running is ended by pid."""
    yield tmp_path
    place = f"{tmp_path}/"

    def left() -> dict[int, dict[str, str]]:
        found = {pid: environment_of(pid) for pid in all_pids()}
        ours = {pid: own for pid, own in found.items() if own.get("MANAGED_AGENT_CONFIG", "").startswith(place)}
        return {pid: own for pid, own in ours.items() if alive(pid)}

    until(lambda: kill_trees(left()), "the end of every agent")
