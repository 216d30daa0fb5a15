"""When to run: once until settled, or for ever.

``run`` polls the remote (with jitter, backing off while it does not answer), watches a local repository, looks
at the whole fleet now and then, and reacts to events of drivers. Every trigger ends in the same queue, and one
thread runs one pass at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import NamedTuple

import structlog

from gitops_agent.daemon.fetcher import Fetcher
from gitops_agent.daemon.liveness import Liveness
from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.drivers.api import Watching
from gitops_agent.model.passes import PassResult, Request, is_settled
from gitops_agent.pipeline import Pipeline
from gitops_agent.ports import Clock
from gitops_agent.support.backoff import delay

Progress = Callable[[PassResult], None]

MAX_POLL_DELAY_SECONDS = 600.0
MAX_FAILURE_DELAY_SECONDS = 60.0
LATE_INTERVALS = 1.5
"""A resync or a poll that is later than this many intervals is made up for, whatever the schedule says."""

log = structlog.get_logger(__name__)


class ScheduledJob(NamedTuple):
    """Something else that happens every so many seconds, by name."""

    every: float
    name: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What a loop of passes drives. ``liveness``: what the loops report to. ``poll_interval``: seconds between two
    polls; ``resync_interval``: between two passes over everything."""

    pipeline: Pipeline
    queue: WorkQueue
    watchers: Sequence[Watching]
    clock: Clock
    poll_interval: float
    resync_interval: float
    on_unexpected: Callable[[Exception], None]
    liveness: Liveness
    jobs: Sequence[ScheduledJob] = ()


def run_once(context: ControllerContext, timeout: float, progress: Progress) -> tuple[PassResult, bool]:
    """Passes until settled or out of time; the last result, and whether time ran out."""
    clock, queue = context.clock, context.queue
    deadline = clock.monotonic() + timeout
    next_fetch = clock.monotonic()
    with _watched(context):
        while True:
            fetch = clock.monotonic() >= next_fetch
            result = context.pipeline.run(Request(None, fetch, "once"))
            if fetch:
                next_fetch = clock.monotonic() + max(context.poll_interval, result.retry_after or 0.0)
            progress(result)
            left = deadline - clock.monotonic()
            if is_settled(result) or left <= 0 or queue.closed:
                return result, not is_settled(result)
            request = queue.take(min(left, result.wait if result.wait is not None else 1.0))
            if result.source_changed or (request is not None and request.fetch):
                next_fetch = clock.monotonic()


class Daemon:
    """``run``: passes for ever, until the queue is closed."""

    def __init__(self, context: ControllerContext, random: Random, progress: Progress) -> None:
        from gitops_agent.daemon.schedule import Schedule  # slow to import, and `once` needs none

        self._context = context
        self._random = random
        self._progress = progress
        self._liveness = context.liveness
        self._failures = 0
        self._full_pass_at = context.clock.monotonic()
        self._judged: str | None = None
        self._schedule = Schedule(context.clock, random)
        source = context.pipeline.stages.source
        self._fetcher = Fetcher(
            source.fetch, self._liveness.fetch_began, self._fetched, context.on_unexpected, context.clock
        )

    def run(self) -> None:
        """Start the triggers, run passes until the queue is closed, stop the triggers."""
        queue = self._context.queue
        self._schedule.every(self._context.resync_interval, "resync", lambda: queue.everything("resync"))
        for job in self._context.jobs:
            self._schedule.every(*job)
        self._schedule.start()
        with ExitStack() as stack:
            stack.callback(self._schedule.stop)
            stack.enter_context(_watched(self._context))
            self._fetcher.start()
            stack.callback(self._fetcher.stop)
            queue.everything("start")
            queue.fetch("start")
            self._loop()

    def _loop(self) -> None:
        queue, wait, failed_passes = self._context.queue, None, 0
        while not queue.closed:
            rest = self._until(wait)
            self._liveness.waiting(rest)
            request = queue.take(rest) or Request(frozenset(), fetch=False)
            if queue.closed:
                return
            if request.fetch:
                self._fetcher.ask()
            scope = None if failed_passes or self._resync_in() <= 0 else request.scope
            result = self._pass(replace(request, scope=scope, fetch=False, actor="run"))
            if result is None:
                # What it was about is lost: the next pass looks at everything.
                failed_passes += 1
                wait = delay(failed_passes, 1.0, MAX_FAILURE_DELAY_SECONDS)
                continue
            if result.source_changed:  # on the thread of the fetcher, as always: no pass waits for the remote
                self._fetcher.ask()
            if scope is None:
                self._full_pass_at = self._context.clock.monotonic()
                self._judged = result.state.rollout.enforced
            elif result.state.rollout.enforced != self._judged and is_settled(result):
                # The commit is done with what it changes; all other agents are judged by it once as well.
                queue.everything("commit")
            self._progress(result)
            wait, failed_passes = result.wait, 0

    def _pass(self, request: Request) -> PassResult | None:
        """One pass; None when it failed: one bad pass must not end the loop."""
        self._liveness.pass_began()
        try:
            result = self._context.pipeline.run(request)
        except Exception as problem:
            self._liveness.pass_failed()
            self._context.on_unexpected(problem)
            return None
        self._liveness.pass_ended(result)
        return result

    def _until(self, wait: float | None) -> float:
        """How long to sleep at most, by the clock that does not jump: a watchdog over the schedule."""
        self._schedule.follow_clock()
        context, now = self._context, self._context.clock.monotonic()
        resync = self._resync_in()
        poll = self._fetcher.asked_at + LATE_INTERVALS * max(MAX_POLL_DELAY_SECONDS, context.poll_interval) - now
        if poll <= 0:
            seconds = round(now - self._fetcher.asked_at)
            log.warning("polling has stopped; asking the source again", seconds=seconds)
            self._fetcher.ask()
        return max(0.0, min(resync, max(poll, 1.0), wait if wait is not None else resync))

    def _resync_in(self) -> float:
        """Seconds until the whole fleet has not been looked at for too long: a watchdog over ourselves."""
        late = LATE_INTERVALS * self._context.resync_interval
        return self._full_pass_at + late - self._context.clock.monotonic()

    def _fetched(self, changed: bool) -> None:
        """Plan the next question to the source, and a pass if its answer is new."""
        problem = self._context.pipeline.stages.source.problem
        self._failures = self._failures + 1 if problem is not None else 0
        seconds = delay(
            self._failures,
            self._context.poll_interval,
            MAX_POLL_DELAY_SECONDS,
            getattr(problem, "retry_after", None),
            self._random.random(),
        )
        self._liveness.fetch_ended(answered=problem is None, next_in=seconds)
        self._schedule.after(seconds, "poll", partial(self._context.queue.fetch, "poll"))
        if changed:
            self._context.queue.source_changed("source")


@contextmanager
def _watched(context: ControllerContext) -> Iterator[None]:
    """Watchers ask for passes over agents meanwhile."""
    for watcher in context.watchers:
        watcher.start(context.queue.agent)
    try:
        yield
    finally:
        for watcher in context.watchers:
            watcher.stop()
