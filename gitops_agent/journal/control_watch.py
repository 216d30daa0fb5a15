"""Noticing that an operator wrote a control into the journal, beside the daemon."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gitops_agent.errors import JournalError
from gitops_agent.model.key import AgentKey
from gitops_agent.ports import JournalReader

PERIOD = 1.0
"""How soon a control is noticed, in seconds."""


class ControlWatcher:
    """``ports.Watcher`` that calls ``tell()`` from a thread of its own when there is a control it has not seen."""

    def __init__(self, journal: JournalReader, tell: Callable[[], None], period: float = PERIOD) -> None:
        self._journal = journal
        self._tell = tell
        self._period = period
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = 0

    def start(self, notify: Callable[[AgentKey, str], None]) -> None:
        """Begin to watch; what is there now is read by the first pass and not told."""
        del notify
        self._stop.clear()
        self._seen = self._journal.last_control()
        self._thread = threading.Thread(target=self._run, name="control-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            try:
                newest = self._journal.last_control()
            except JournalError:
                continue  # passes fail of the same cause, and say so
            if newest != self._seen:
                self._seen = newest
                self._tell()
