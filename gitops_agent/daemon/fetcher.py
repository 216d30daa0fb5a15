"""Fetcher: asks the source on a thread of its own, so that a remote that hangs holds up no repair."""

import threading
from collections.abc import Callable

from gitops_agent.ports import Clock


class Fetcher:
    """``fetch`` asks the source, True when it answered something new; ``done`` is called with that afterwards."""

    def __init__(
        self,
        fetch: Callable[[], bool],
        began: Callable[[], None],
        done: Callable[[bool], None],
        on_unexpected: Callable[[Exception], None],
        clock: Clock,
    ) -> None:
        self._fetch = fetch
        self._began = began
        self._done = done
        self._on_unexpected = on_unexpected
        self._clock = clock
        self._asked = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="fetch", daemon=True)
        self.asked_at = clock.monotonic()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask(self) -> None:
        """Ask the source as soon as the last question is answered; questions do not queue up."""
        self.asked_at = self._clock.monotonic()
        self._asked.set()

    def stop(self) -> None:
        """End the thread; a question that hangs is left to the end of the process."""
        self._ended = True
        self._asked.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while self._asked.wait() and not self._ended:
            self._asked.clear()
            self._began()
            try:
                changed = self._fetch()
            except Exception as problem:  # whatever it is, the next poll tries again
                self._on_unexpected(problem)
                changed = False
            self._done(changed)
