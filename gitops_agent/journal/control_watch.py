"""Noticing that an operator wrote a control into the journal, beside the daemon."""

import threading
from collections.abc import Callable

from gitops_agent.errors import JournalError, JournalTaken
from gitops_agent.model.key import AgentKey
from gitops_agent.ports import JournalReader

PERIOD_SECONDS = 0.7
"""How often controls are looked for: a shared journal is asked up to 0.25 s later, and a second is promised."""


class ControlWatcher:
    """Calls ``notify`` from a thread of its own when there is a newer control."""

    def __init__(self, journal: JournalReader, notify: Callable[[], None], period: float = PERIOD_SECONDS) -> None:
        self._journal = journal
        self._notify = notify
        self._period = period
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = 0

    def start(self, notify: Callable[[AgentKey, str], None]) -> None:
        """Begin to watch; what is there now is read by the first pass and needs no notice."""
        del notify
        self._stop.clear()
        self._seen = self._newest()
        self._thread = threading.Thread(target=self._run, name="control-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _newest(self) -> int:
        """The number of the newest control, 0 when there is none."""
        controls = self._journal.state().control.controls
        return controls[-1].seq if controls else 0

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            try:
                newest = self._newest()
            except JournalTaken:
                self._notify()  # a pass finds out, and ends what is left of us
                return
            except JournalError:
                continue  # passes fail of the same cause and report it
            if newest != self._seen:
                self._seen = newest
                self._notify()
