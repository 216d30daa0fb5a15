"""Calls that may hang, each under a name and with a limit of time.

One that hangs is waited for once. Until it ends, the next call under its name fails at once, so that a peer that
hangs costs its callers one wait and one thread.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, wait
from typing import Generic, TypeVar

T = TypeVar("T")


class NoAnswer(Exception):
    """A call has not ended in time, and may still be under way."""


class BoundedCalls(Generic[T]):
    """Makes calls side by side on a pool; used by one thread at a time."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._hanging: dict[str, tuple[Future[T], float]] = {}

    def ask(self, calls: Mapping[str, Callable[[], T]], timeout: Callable[[str], float]) -> dict[str, Future[T]]:
        """How the calls ended, by name: NoAnswer for those that did not in so many seconds of their own."""
        self._hanging = {name: each for name, each in self._hanging.items() if not each[0].done()}
        began = time.monotonic()
        futures = {name: self._pool.submit(call) for name, call in calls.items() if name not in self._hanging}
        for name in sorted(futures, key=timeout):
            wait([futures[name]], max(0.0, began + timeout(name) - time.monotonic()))
        self._hanging |= {name: (future, began) for name, future in futures.items() if not future.done()}
        return {name: self._late(name) if name in self._hanging else futures[name] for name in calls}

    def _late(self, name: str) -> Future[T]:
        future: Future[T] = Future()
        seconds = time.monotonic() - self._hanging[name][1]
        future.set_exception(NoAnswer(f"no answer for {seconds:.0f} s"))
        return future
