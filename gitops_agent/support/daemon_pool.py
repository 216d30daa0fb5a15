"""A pool of threads that never keeps the process from ending, and in which a job that hangs holds up no other.

The pools of ``concurrent.futures`` are joined when the interpreter ends, so one call that hangs keeps the whole
process alive. These threads are daemons: what still runs at the end is left behind.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

IDLE_SECONDS = 10.0
"""How long a thread without work stays."""


@dataclass(frozen=True, slots=True)
class _Job:
    call: Callable[[], Any]
    future: Future[Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.call()
        except BaseException as problem:
            self.future.set_exception(problem)
        else:
            self.future.set_result(result)


class DaemonPool(Executor):
    """Runs jobs in the order in which they came, ``threads`` of them side by side. A job that runs for more than
    ``slow_after`` seconds no longer counts: another takes its place, for at most ``spare`` such jobs at a time."""

    def __init__(self, name: str, threads: int, *, slow_after: float = float("inf"), spare: int = 0) -> None:
        self._name = name
        self._threads = threads
        self._slow_after = slow_after
        self._most = threads + spare
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # for the threads: one is woken for each job
        self._crowded = threading.Condition(lock)  # for the overseer: more jobs wait than threads
        self._jobs: deque[_Job] = deque()
        self._begun: dict[threading.Thread, float] = {}
        self._idle = 0
        self._total = 0
        self._overseer: threading.Thread | None = None
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future result of a call."""
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"the pool {self._name} is closed")
            self._jobs.append(_Job(lambda: fn(*args, **kwargs), future))
            self._add_threads()
            self._changed.notify()
            if len(self._jobs) > self._idle:
                self._crowded.notify()
            if self._slow_after != float("inf") and self._overseer is None:
                self._overseer = self._started(self._oversee)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the threads that have nothing to do, and drop the jobs that wait; what runs is left behind."""
        with self._changed:
            self._closed = True
            dropped, self._jobs = self._jobs, deque()
            self._changed.notify_all()
            self._crowded.notify_all()
        for job in dropped:
            job.future.cancel()

    def _started(self, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=self._name, daemon=True)
        thread.start()
        return thread

    def _slow(self) -> int:
        """How many jobs have run for so long that they no longer count."""
        late = time.monotonic() - self._slow_after
        return sum(began <= late for began in self._begun.values())

    def _add_threads(self) -> None:
        """Start a thread for each job that waits, as far as there is room. The caller holds the lock."""
        room = min(self._threads - (self._total - self._slow()), self._most - self._total)
        for _ in range(min(room, len(self._jobs) - self._idle)):
            self._total += 1
            self._started(self._work)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            with self._changed:
                del self._begun[threading.current_thread()]
        with self._changed:
            self._total -= 1

    def _next(self) -> _Job | None:
        """The next job; None when this thread is one too many."""
        with self._changed:
            if self._total - self._slow() > self._threads:
                return None
            self._idle += 1
            try:
                self._changed.wait_for(lambda: self._jobs or self._closed, IDLE_SECONDS)
            finally:
                self._idle -= 1
            if not self._jobs:
                return None
            self._begun[threading.current_thread()] = time.monotonic()
            return self._jobs.popleft()

    def _oversee(self) -> None:
        """Give the places of slow jobs to those that wait."""
        with self._changed:
            while not self._closed:
                self._add_threads()
                now = time.monotonic()
                left = [began + self._slow_after - now for began in self._begun.values()]
                young = [seconds for seconds in left if seconds > 0]
                self._crowded.wait(min(young, default=self._slow_after) if self._jobs else None)
