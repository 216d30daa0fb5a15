"""A state directory that is deleted, or replaced by another, while it is in use."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.daemon.state_watch import StateWatcher
from gitops_agent.journal.lock import state_lock
from gitops_agent.journal.store import open_journal

pytestmark = pytest.mark.unit


def replaced(state: Path) -> None:
    state.rename(state.with_name("away"))
    with open_journal(state):
        pass


def without_journal(state: Path) -> None:
    (state / "journal.db").unlink()


@pytest.mark.parametrize("lose", [shutil.rmtree, replaced, without_journal])
def test_it_is_noticed_and_all_begins_anew(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    state, queue, lost = tmp_path / "state", WorkQueue(), Event()
    with state_lock(state), open_journal(state):
        watcher = StateWatcher(state, lambda: (queue.close(), lost.set())[1], period=0.01)
        watcher.start(queue.agent)
        assert not lost.wait(0.1)
        lose(state)
        assert lost.wait(20)
        watcher.stop()
    assert queue.closed
