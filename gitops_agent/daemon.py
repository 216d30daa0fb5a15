"""When to run: once until settled, or for ever. The only file that knows schedules and signals.

``run`` polls the remote (with jitter, backing off while it does not answer), watches a local repository, looks
at the whole fleet now and then, and reacts to events of drivers. Every trigger ends in the same inbox, and one
thread runs one pass at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

import structlog

from gitops_agent.inbox import Inbox
from gitops_agent.model.status import Phase
from gitops_agent.pipeline import Pipeline
from gitops_agent.ports import Clock, Watcher
from gitops_agent.proceedings import PassResult
from gitops_agent.source.backoff import delay

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

Progress = Callable[[PassResult], None]

LONGEST_POLL_DELAY = 600.0
RETENTION_PERIOD = 6 * 3600.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often things happen."""

    poll: float
    resync: float


@dataclass(frozen=True, slots=True)
class Machine:
    """What a daemon drives."""

    pipeline: Pipeline
    inbox: Inbox
    watchers: Sequence[Watcher]
    clock: Clock
    rhythm: Rhythm
    housekeeping: Callable[[], None]
    on_unexpected: Callable[[Exception], None]


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
    held = result.phase is None or result.phase is Phase.BLOCKED or result.phase.terminal
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
                next_fetch = machine.clock.monotonic() + machine.rhythm.poll
            progress(result)
            left = deadline - machine.clock.monotonic()
            if is_settled(result) or left <= 0 or machine.inbox.closed:
                return result, not is_settled(result)
            request = machine.inbox.take(min(left, result.wait if result.wait is not None else 1.0))
            if request is not None and request.fetch:
                next_fetch = machine.clock.monotonic()
    finally:
        _stop(machine.watchers)


class Daemon:
    """``run``: passes for ever, until a signal closes the inbox."""

    def __init__(self, machine: Machine, random: Random, progress: Progress) -> None:
        self._machine = machine
        self._random = random
        self._progress = progress
        self._failures = 0
        self._scheduler: BackgroundScheduler | None = None

    def run(self) -> None:
        """Start the triggers, run passes until the inbox is closed, stop the triggers."""
        from apscheduler.schedulers.background import BackgroundScheduler

        inbox = self._machine.inbox
        self._scheduler = BackgroundScheduler(timezone=UTC)
        self._every(self._machine.rhythm.resync, "resync", lambda: inbox.everything("resync"))
        self._every(RETENTION_PERIOD, "housekeeping", self._machine.housekeeping)
        self._scheduler.start()
        _start(self._machine.watchers, inbox)
        inbox.everything("start")
        inbox.fetch("start")
        try:
            self._loop()
        finally:
            _stop(self._machine.watchers)
            self._scheduler.shutdown(wait=False)

    def _loop(self) -> None:
        inbox, wait, behind = self._machine.inbox, None, False
        while not inbox.closed:
            request = inbox.take(wait)
            if inbox.closed:
                return
            scope, fetch = (request.scope, request.fetch) if request else (frozenset(), False)
            try:
                result = self._machine.pipeline.run(None if behind else scope, fetch=fetch, actor="run")
            except Exception as problem:  # one bad pass must not end the loop: say so, and try again later
                self._machine.on_unexpected(problem)
                # What it was about is lost: the next pass looks at everything.
                wait, behind = min(60.0, (wait or 1.0) * 2), True
                if fetch:
                    self._poll_again(failed=True)
                continue
            if fetch:
                self._poll_again(failed=result.unavailable, retry_after=result.retry_after)
            self._progress(result)
            wait, behind = result.wait, False

    def _poll_again(self, *, failed: bool, retry_after: float | None = None) -> None:
        """Schedule the next poll: the interval with jitter, or longer while the source does not answer."""
        self._failures = self._failures + 1 if failed else 0
        seconds = delay(
            self._failures, self._machine.rhythm.poll, LONGEST_POLL_DELAY, retry_after, self._random.random()
        )
        self._at(seconds, "poll", lambda: self._machine.inbox.fetch("poll"))

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


def _start(watchers: Sequence[Watcher], inbox: Inbox) -> None:
    for watcher in watchers:
        watcher.start(inbox.agent)


def _stop(watchers: Sequence[Watcher]) -> None:
    for watcher in watchers:
        watcher.stop()
