"""A time limit on what blocks: the block goes on until what it waits for is cut.

One thread watches all limits: to start one for each costs more than most of the calls that are limited, and a pass
over one commit has fifty of them.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@contextmanager
def deadline(seconds: float, cut: Callable[[], None]) -> Iterator[threading.Event]:
    """Call ``cut`` from another thread unless the block ends in time; the event says that it was called. ``cut``
    only tears something down: it must not wait."""
    limit = _Limit(time.monotonic() + seconds, cut, threading.Event())
    _WATCHDOG.add(limit)
    try:
        yield limit.late
    finally:
        _WATCHDOG.remove(limit)


@dataclass(frozen=True, slots=True, eq=False)
class _Limit:
    """``end``: monotonic seconds."""

    end: float
    cut: Callable[[], None]
    late: threading.Event


class _Watchdog:
    """Cuts what is late. The thread is not woken when a limit is removed, nor for one that ends after the moment
    at which it looks again anyway: so limits of much the same length hardly ever wake it."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all limits, and the thread: a process that was forked has neither."""
        self._changed = threading.Condition()
        self._limits: set[_Limit] = set()
        self._looks_at = math.inf
        self._thread: threading.Thread | None = None

    def add(self, limit: _Limit) -> None:
        """Watch a limit from now on."""
        with self._changed:
            self._limits.add(limit)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._thread.start()
            elif limit.end < self._looks_at:
                self._changed.notify()

    def remove(self, limit: _Limit) -> None:
        """Watch it no more; a cut that is under way has ended after this."""
        with self._changed:
            self._limits.discard(limit)

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for limit in [each for each in self._limits if each.end <= now]:
                    self._limits.discard(limit)
                    limit.late.set()
                    try:
                        limit.cut()
                    except Exception:  # noqa: S110 - what cannot be cut is gone; the others still have their limits
                        pass
                self._looks_at = min((each.end for each in self._limits), default=math.inf)
                self._changed.wait(None if self._looks_at == math.inf else max(0.0, self._looks_at - now))


_WATCHDOG = _Watchdog()
os.register_at_fork(after_in_child=_WATCHDOG.begin_anew)
