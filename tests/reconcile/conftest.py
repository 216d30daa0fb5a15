from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.testing.clock import FrozenClock
from tests.support.fast_disk import fast_disk

__all__ = ["fast_disk"]


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    with open_journal(tmp_path / "state") as journal:
        yield journal
