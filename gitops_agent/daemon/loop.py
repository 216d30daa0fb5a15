"""When to run: once until settled, or for ever. The only file that knows schedules and signals.

``run`` polls the remote (with jitter, backing off while it does not answer), watches a local repository, looks
at the whole fleet now and then, and reacts to events of drivers. Every trigger ends in the same inbox, and one
thread runs one pass at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import structlog

from gitops_agent.daemon.onlooker import Onlooker
from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.drivers.api import Watching
from gitops_agent.model.status import Phase
from gitops_agent.pipeline import Pipeline
from gitops_agent.ports import Clock
from gitops_agent.status.proceedings import PassResult
from gitops_agent.support.backoff import delay

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

Progress = Callable[[PassResult], None]

LONGEST_POLL_DELAY = 600.0
RETENTION_PERIOD = 6 * 3600.0
LATE = 1.5
"""A resync or a poll that is later than this many intervals is made up for, whatever the schedule says."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often things happen."""

    poll: float
    resync: float


class Job(NamedTuple):
    """Something else that happens every so many seconds, by name."""

    every: float
    name: str
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Machine:
    """What a daemon drives."""

    pipeline: Pipeline
    inbox: WorkQueue
    watchers: Sequence[Watching]
    clock: Clock
    rhythm: Intervals
    housekeeping: Callable[[], None]
    on_unexpected: Callable[[Exception], None]
    jobs: Sequence[Job] = ()


def exit_code(result: PassResult | None, *, timed_out: bool = False) -> int:
    """The exit code of ``once``: it follows the newest commit, first match wins."""
    if result is None:
        return 1
    if result.unavailable or result.phase is Phase.REFUSED:
        return 6
    if result.phase is None:
        return 6
    if result.phase is Phase.INVALID:
        return 3
    if result.phase is Phase.BLOCKED or result.frozen:
        return 4
    if result.phase is Phase.DEGRADED or timed_out or not result.phase.terminal:
        return 5
    return 0


def is_settled(result: PassResult) -> bool:
    """Whether another pass could not change the answer: the commit is terminal or held, nobody is on the way."""
    unread = result.unavailable and result.phase is Phase.PENDING
    held = result.phase is None or result.phase is Phase.BLOCKED or result.phase.terminal or unread
    return held and not result.busy


def run_once(machine: Machine, timeout: float, progress: Progress) -> tuple[PassResult, bool]:
    """Passes until settled or out of time; the last result, and whether time ran out."""
    deadline = machine.clock.monotonic() + timeout
    next_fetch = machine.clock.monotonic()
    _start(machine.watchers, machine.inbox)
    try:
        while True:
            fetch = machine.clock.monotonic() >= next_fetch
            result = machine.pipeline.run(None, fetch=fetch, actor="once")
            if fetch:
                next_fetch = machine.clock.monotonic() + max(machine.rhythm.poll, result.retry_after or 0.0)
            progress(result)
            left = deadline - machine.clock.monotonic()
            if is_settled(result) or left <= 0 or machine.inbox.closed:
                return result, not is_settled(result)
            request = machine.inbox.take(min(left, result.wait if result.wait is not None else 1.0))
            if request is not None and request.fetch:
                next_fetch = machine.clock.monotonic()
    finally:
        _stop(machine.watchers)


class Fetcher:
    """Asks the source on a thread of its own, so that a remote that hangs keeps nobody from being repaired."""

    def __init__(self, machine: Machine, done: Callable[[bool], None], onlooker: Onlooker) -> None:
        self._machine = machine
        self._onlooker = onlooker
        self._done = done
        self._asked = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="fetch", daemon=True)
        self.asked_at = machine.clock.monotonic()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self) -> None:
        """Ask the source as soon as the last question is answered; questions do not queue up."""
        self.asked_at = self._machine.clock.monotonic()
        self._asked.set()

    def stop(self) -> None:
        """End; a question that hangs is left to the end of the process."""
        self._ended = True
        self._asked.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._ended:
            self._asked.wait()
            self._asked.clear()
            if self._ended:
                return
            self._onlooker.asking()
            try:
                news = self._machine.pipeline.fetch()
            except Exception as problem:  # whatever it is, the next poll tries again
                self._machine.on_unexpected(problem)
                news = False
            self._done(news)


class Daemon:
    """``run``: passes for ever, until a signal closes the inbox."""

    def __init__(
        self, machine: Machine, random: Random, progress: Progress, onlooker: Onlooker | None = None
    ) -> None:
        self._machine = machine
        self._random = random
        self._progress = progress
        self._onlooker = onlooker or Onlooker()
        self._failures = 0
        self._looked_at = machine.clock.monotonic()
        self._judged: str | None = None
        self._scheduler: BackgroundScheduler | None = None
        self._fetcher = Fetcher(machine, self._fetched, self._onlooker)

    def run(self) -> None:
        """Start the triggers, run passes until the inbox is closed, stop the triggers."""
        from apscheduler.schedulers.background import BackgroundScheduler

        inbox = self._machine.inbox
        self._scheduler = BackgroundScheduler(timezone=UTC)
        self._every(self._machine.rhythm.resync, "resync", lambda: inbox.everything("resync"))
        self._every(RETENTION_PERIOD, "housekeeping", self._machine.housekeeping)
        for job in self._machine.jobs:
            self._every(*job)
        self._scheduler.start()
        _start(self._machine.watchers, inbox)
        self._fetcher.start()
        inbox.everything("start")
        inbox.fetch("start")
        try:
            self._loop()
        finally:
            self._fetcher.stop()
            _stop(self._machine.watchers)
            self._scheduler.shutdown(wait=False)

    def _loop(self) -> None:
        inbox, wait, behind = self._machine.inbox, None, False
        while not inbox.closed:
            rest = self._until(wait)
            self._onlooker.resting(rest)
            request = inbox.take(rest)
            if inbox.closed:
                return
            if request is not None and request.fetch:
                self._fetcher.ask()
            scope = None if behind or self._is_overdue() else request.scope if request else frozenset()
            self._onlooker.began()
            try:
                result = self._machine.pipeline.run(scope, fetch=False, actor="run")
            except Exception as problem:  # one bad pass must not end the loop: say so, and try again later
                self._onlooker.failed()
                self._machine.on_unexpected(problem)
                # What it was about is lost: the next pass looks at everything.
                wait, behind = min(60.0, (wait or 1.0) * 2), True
                continue
            if scope is None:
                self._looked_at, self._judged = self._machine.clock.monotonic(), result.enforced
            elif result.enforced != self._judged and is_settled(result):
                # The commit is done with what it moves; everybody else is judged by it once as well.
                inbox.everything("commit")
            self._onlooker.passed(result)
            self._progress(result)
            wait, behind = result.wait, False

    def _until(self, wait: float | None) -> float:
        """How long to sleep at most. The scheduler follows the wall clock, which may jump; this does not."""
        rhythm, now = self._machine.rhythm, self._machine.clock.monotonic()
        resync = self._looked_at + LATE * rhythm.resync - now
        poll = self._fetcher.asked_at + LATE * max(LONGEST_POLL_DELAY, self._machine.rhythm.poll) - now
        if poll <= 0:
            log.warning(
                "polling has stopped; asking the source again", seconds=round(now - self._fetcher.asked_at)
            )
            self._fetcher.ask()
        return max(0.0, min(resync, max(poll, 1.0), wait if wait is not None else resync))

    def _is_overdue(self) -> bool:
        """Whether nobody has looked at the whole fleet for too long: a watchdog over ourselves."""
        return self._machine.clock.monotonic() - self._looked_at >= LATE * self._machine.rhythm.resync

    def _fetched(self, news: bool) -> None:
        """The source answered, or did not: look at the news, and plan the next question."""
        problem = self._machine.pipeline.source_problem
        self._failures = self._failures + 1 if problem is not None else 0
        seconds = delay(
            self._failures,
            self._machine.rhythm.poll,
            LONGEST_POLL_DELAY,
            getattr(problem, "retry_after", None),
            self._random.random(),
        )
        self._onlooker.asked(answered=problem is None, next_in=seconds)
        self._at(seconds, "poll", lambda: self._machine.inbox.fetch("poll"))
        if news:
            self._machine.inbox.news("source")

    def _every(self, seconds: float, name: str, job: Callable[[], None]) -> None:
        assert self._scheduler is not None
        self._scheduler.add_job(
            job,
            "interval",
            seconds=max(seconds, 0.1),
            jitter=seconds / 10,
            id=name,
            coalesce=True,
            max_instances=1,
        )

    def _at(self, seconds: float, name: str, job: Callable[[], None]) -> None:
        assert self._scheduler is not None
        when = datetime.now(UTC) + timedelta(seconds=seconds)
        self._scheduler.add_job(
            job, "date", run_date=when, id=name, replace_existing=True, misfire_grace_time=None
        )


def _start(watchers: Sequence[Watching], inbox: WorkQueue) -> None:
    for watcher in watchers:
        watcher.start(inbox.agent)


def _stop(watchers: Sequence[Watching]) -> None:
    for watcher in watchers:
        watcher.stop()
