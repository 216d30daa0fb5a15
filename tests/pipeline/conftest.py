from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fast_disk import fast_disk

from .world import World

__all__ = ["fast_disk"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "state")
    yield world
    world.shut()
