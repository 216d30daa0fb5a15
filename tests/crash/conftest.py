from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, alive, all_pids, environment_of, signal_pid, until


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

    def left() -> list[int]:
        marks = {pid: environment_of(pid).get("MANAGED_AGENT_CONFIG", "") for pid in all_pids()}
        return [pid for pid, config in marks.items() if config.startswith(place) and alive(pid)]

    def over() -> bool:
        for pid in left():
            signal_pid(pid)
        return not left()

    until(over, "the end of every agent")
