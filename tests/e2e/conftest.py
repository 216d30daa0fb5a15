from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.end()


@pytest.fixture
def make_fleet(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(**environment: str) -> Fleet:
        made.append(Fleet(tmp_path / f"fleet-{len(made)}", **environment))
        return made[-1]

    yield make
    for fleet in made:
        fleet.end()


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """An empty fleet that all tests of a module share."""
    fleet = Fleet(tmp_path_factory.mktemp("settled"))
    yield fleet
    fleet.end()
