"""Noticing that the state directory was deleted or replaced under us.

What is written from then on is lost: the journal is a file without a name, and a freeze goes into another one. So
``run`` starts again from what is live: agents are found by their marks, and none is started twice.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from gitops_agent.journal.lock import FILE_NAME as LOCK_NAME
from gitops_agent.journal.sqlite import FILE_NAME as JOURNAL_NAME
from gitops_agent.model.key import AgentKey

PERIOD_SECONDS = 1.0
"""How soon it is noticed."""

log = structlog.get_logger(__name__)


class StateWatcher:
    """Calls ``on_lost`` once, from a thread of its own, when the lock or the journal is no longer the file that we
    have open. To be made when both are open."""

    def __init__(self, state_dir: Path, on_lost: Callable[[], None], period: float = PERIOD_SECONDS) -> None:
        self._state_dir = state_dir
        self._on_lost = on_lost
        self._period = period
        self._opened = self._identities()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, notify: Callable[[AgentKey, str], None]) -> None:
        """Begin to watch. It is about no agent."""
        del notify
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="state-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            try:
                lost = self._identities() != self._opened
            except OSError:
                continue  # it cannot be seen just now, which is not the same as gone
            if lost:
                log.error(
                    "the state directory was deleted or replaced while in use; starting again from what runs",
                    folder=str(self._state_dir),
                    hint="no agent is ended or started twice; its history, freezes and approvals are lost",
                )
                self._on_lost()
                return

    def _identities(self) -> list[tuple[int, int] | None]:
        return [_identity(self._state_dir / name) for name in (LOCK_NAME, JOURNAL_NAME)]


def _identity(path: Path) -> tuple[int, int] | None:
    """What makes a file the same file; None when there is none of that name."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
