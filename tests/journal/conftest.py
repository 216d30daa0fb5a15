from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_agent.journal.store import SqlJournal, open_journal
from tests.support.fast_disk import fast_disk

__all__ = ["fast_disk"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def journal(state: Path) -> Iterator[SqlJournal]:
    with open_journal(state) as opened:
        yield opened
