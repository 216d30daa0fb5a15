"""Outbox: hands what passes report to the sinks, once each, whatever fails in between.

``publish`` runs on the thread of the pass and returns at once. Each sink has a thread that delivers, so that one
that hangs holds up no other: changes wait until their sink's interval allows a delivery, so that a burst costs
one; a delivery that fails is tried again later and later. The journal keeps what is owed to which sink: after a
restart that, and nothing else, is delivered.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from gitops_agent.errors import GitopsAgentError, SourceUnavailable
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.fields import Fields
from gitops_agent.model.passes import PassResult
from gitops_agent.model.state import CommitsState, State
from gitops_agent.ports import ActionRecord, Clock, CommitChange, Sink
from gitops_agent.support.backoff import delay
from gitops_agent.support.secrets import Redactor

log = structlog.get_logger(__name__)

MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 300.0

CLOSE_SECONDS = 10.0
"""How long deliveries are waited for at the end; for longer than the next not without a word."""

QUIET_SECONDS = 3.0


class DeliveryTimer:
    """When a sink is served: not more often than its interval, later and later while it fails.
    Work waits one interval from the first sign of it, so that a burst costs one delivery; a flush need not wait
    for that, only for the interval since the last delivery. Given the time, never reads a clock; ``jitter`` gives
    numbers in [0, 1)."""

    def __init__(self, interval: float, jitter: Callable[[], float]) -> None:
        self._interval = interval
        self._jitter = jitter
        self._dirty_since: float | None = None
        self._delivering_since: float | None = None  # since when what is being delivered was dirty
        self._allowed_at = float("-inf")  # the interval since the last delivery
        self._retry_at = float("-inf")  # the backoff since the last failure
        self._failures = 0

    def dirty(self, now: float) -> None:
        """Note that there is something to deliver."""
        if self._dirty_since is None:
            self._dirty_since = now

    def delay(self, now: float) -> float | None:
        """Seconds until a delivery is due: 0 now, None never (nothing to deliver)."""
        if self._dirty_since is None:
            return None
        return max(0.0, self._dirty_since + self._interval - now, self._allowed_at - now, self._retry_at - now)

    def earliest(self, now: float) -> float | None:
        """Seconds until a flush may deliver (None: nothing to deliver): after the interval, whatever failed."""
        return None if self._dirty_since is None else max(0.0, self._allowed_at - now)

    def begin(self, now: float) -> None:
        """Note that a delivery starts; what becomes dirty from here on needs another."""
        self._delivering_since, self._dirty_since = self._dirty_since, None
        self._allowed_at = now + self._interval

    def end(self, now: float, *, done: bool, retry_after: float | None = None) -> None:
        """Note how a delivery ended. ``retry_after``: the seconds that the other side asked for."""
        if done:
            self._failures, self._retry_at = 0, float("-inf")
            return
        self._dirty_since = self._delivering_since
        first = max(self._interval, MIN_BACKOFF_SECONDS)
        self._retry_at = now + delay(self._failures, first, MAX_BACKOFF_SECONDS, retry_after, self._jitter())
        self._failures += 1


@dataclass(slots=True)
class _Lane:
    """One sink and the changes that wait for it, by commit. ``delivered``: the versions of the last delivery.
    ``delivering``: one delivery at a time."""

    sink: Sink
    timer: DeliveryTimer
    wake: threading.Event = field(default_factory=threading.Event)
    delivering: threading.Lock = field(default_factory=threading.Lock)
    thread: threading.Thread | None = None
    waiting: dict[str, CommitChange] = field(default_factory=dict)
    delivered: Mapping[str, int] = field(default_factory=dict)


class Outbox:
    """Serves the sinks of one instance. ``leading``: whether this process reports for its source; one that waits
    for another process owes and delivers nothing."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        journal: SqlJournal,
        clock: Clock,
        redactor: Redactor,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._redact = redactor
        self._leading = leading
        self._lanes = [_Lane(sink, DeliveryTimer(sink.min_interval_seconds, random.random)) for sink in sinks]
        self._durable = [lane for lane in self._lanes if lane.sink.durable]
        self._collected: CommitsState | None = None
        self._lock = threading.Lock()  # guards the lanes; never held while a sink works
        self._closing = False

    @property
    def owed_to(self) -> tuple[str, ...]:
        """The names of the sinks that every changed commit record is owed to."""
        return tuple(lane.sink.name for lane in self._durable) if self._leading() else ()

    @property
    def pending(self) -> int:
        """How many changes wait for delivery; read without a lock, so that a scrape never waits."""
        return sum(len(lane.waiting) for lane in self._lanes)

    def start(self, state: State) -> None:
        """Start the threads that deliver, beginning with what an earlier process left owed."""
        self.collect(state)
        for lane in self._lanes:
            lane.thread = threading.Thread(
                target=self._run, args=[lane], name=f"outbox-{lane.sink.name}", daemon=True
            )
            lane.thread.start()

    def publish(self, result: PassResult) -> None:
        """Hand a pass to every sink, and its changed commits to the delivery thread. Never raises."""
        for lane in self._lanes:
            try:
                lane.sink.on_pass(result)
                if lane.sink.has_work():
                    self._mark(lane)
            except Exception:
                log.exception("a sink failed on a pass", sink=lane.sink.name)
        self.collect(result.state)

    def collect(self, state: State) -> None:
        """Queue what the journal owes as of a state just committed. Never raises.
        Also to be called in the middle of a pass, so that a new commit is reported before it is acted on."""
        if self.pending:
            self._wake()  # this process may have become the leading one since
        # Only a changed record makes a sink owed something.
        if not self._durable or state.commits is self._collected or not self._leading():
            return
        try:
            owed = self._journal.owed()
            for lane in self._durable:
                self._queue(lane, owed.get(lane.sink.name, {}), state)
        except Exception as problem:
            self._log_failure("changed commits are not reported yet", "journal", problem)
            return
        self._collected = state.commits

    def step(self) -> None:
        """Deliver to every sink that is due; for tests with a clock of their own."""
        for lane in self._lanes:
            self._step(lane)

    def flush(self, timeout: float) -> bool:
        """Deliver what waits as soon as the intervals allow; whether nothing is left."""
        deadline = self._clock.monotonic() + timeout
        flushed = [self._flush(lane, deadline) for lane in self._lanes]
        return all(flushed)

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Flush and end the threads; whether nothing is left. A sink that hangs is named, and left behind."""
        deadline = self._clock.monotonic() + timeout
        empty = self.flush(min(timeout, QUIET_SECONDS))
        if not empty and timeout > QUIET_SECONDS:
            log.warning("waiting for reports to be delivered", seconds=timeout, sinks=self._unserved())
            empty = self.flush(deadline - self._clock.monotonic())
        self._closing = True
        self._wake()
        for lane in self._lanes:
            if lane.thread is not None:
                lane.thread.join(max(0.1, deadline - self._clock.monotonic()))
                lane.thread = None
        return empty

    def _unserved(self) -> list[str]:
        now = self._clock.monotonic()
        return [
            lane.sink.name
            for lane in self._lanes
            if lane.delivering.locked() or lane.timer.earliest(now) is not None
        ]

    def _wake(self) -> None:
        for lane in self._lanes:
            lane.wake.set()

    def _run(self, lane: _Lane) -> None:
        while not self._closing:
            self._step(lane)
            may = self._may_deliver(lane)  # otherwise the next pass wakes it
            with self._lock:
                wait = lane.timer.delay(self._clock.monotonic()) if may else None
            if wait != 0 and not self._closing:
                lane.wake.wait(wait)
                lane.wake.clear()

    def _step(self, lane: _Lane) -> None:
        with lane.delivering:
            with self._lock:
                due = lane.timer.delay(self._clock.monotonic()) == 0
            if due and self._may_deliver(lane):
                self._deliver(lane)

    def _queue(self, lane: _Lane, owed: Mapping[str, int], state: State) -> None:
        """Queue the changes of which an older version, or none, waits."""
        with self._lock:
            # What was delivered since the journal was asked is not queued again.
            known = {**lane.delivered, **{sha: change.version for sha, change in lane.waiting.items()}}
        for sha in (sha for sha, version in owed.items() if known.get(sha, 0) < version):
            if record := state.commits.records.get(sha) or self._journal.commit_record(sha):
                # They are masked when they are delivered: a pass that has something to do does not wait for that.
                change = CommitChange(record, state.status.agents, self._journal.entries(commit=sha), owed[sha])
                with self._lock:
                    lane.waiting[sha] = _merged(lane.waiting.get(sha), change)
                self._mark(lane)

    def _masked(self, entry: ActionRecord) -> ActionRecord:
        """An action without secrets in its fields either: the journal keeps those as they are, to compare them.
        Here, because what a sink cuts must be whole when it is masked."""
        before, after = (
            fields and Fields.of(self._redact.tree(fields.value)) for fields in (entry.before, entry.after)
        )
        return replace(entry, before=before, after=after)

    def _mark(self, lane: _Lane) -> None:
        with self._lock:
            lane.timer.dirty(self._clock.monotonic())
        lane.wake.set()

    def _may_deliver(self, lane: _Lane) -> bool:
        """Whether this process may serve a sink: commits are reported by the leading one alone."""
        return not lane.sink.durable or self._leading()

    def _flush(self, lane: _Lane, deadline: float) -> bool:
        if not lane.delivering.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
            return False
        try:
            with self._lock:
                now = self._clock.monotonic()
                wait = lane.timer.earliest(now)
            if wait is None:
                return True
            if now + wait > deadline or not self._may_deliver(lane):
                return False
            time.sleep(wait)  # no other thread delivers meanwhile, so one wait is enough
            return self._deliver(lane)
        finally:
            lane.delivering.release()

    def _deliver(self, lane: _Lane) -> bool:
        """Deliver what waits for a sink; whether that succeeded. The caller holds ``delivering``."""
        with self._lock:
            lane.timer.begin(self._clock.monotonic())
            changes = tuple(lane.waiting.values())
        versions = {change.record.sha: change.version for change in changes}
        failure: Exception | None = None
        try:
            lane.sink.deliver([replace(each, entries=list(map(self._masked, each.entries))) for each in changes])
            if paid := _paid(lane, versions):
                self._journal.delivered(lane.sink.name, paid)
        except Exception as problem:
            self._log_failure(f"{lane.sink.name}: not delivered, tried again later", lane.sink.name, problem)
            failure = problem
        with self._lock:
            if failure is None:
                lane.delivered = versions
                lane.waiting = {s: each for s, each in lane.waiting.items() if versions.get(s) != each.version}
            retry_after = failure.retry_after if isinstance(failure, SourceUnavailable) else None
            lane.timer.end(self._clock.monotonic(), done=failure is None, retry_after=retry_after)
        return failure is None

    def _log_failure(self, event: str, sink: str, problem: Exception) -> None:
        if isinstance(problem, GitopsAgentError):
            log.warning(event, sink=sink, error=self._redact(str(problem)), hint=self._redact(problem.hint))
        else:
            log.error(event, sink=sink, error=self._redact(repr(problem)), exc_info=problem)


def _paid(lane: _Lane, versions: Mapping[str, int]) -> Mapping[str, int]:
    """What a delivery pays. Of an incomplete one the last commit stays owed, until the next delivery: enough for
    a later process to deliver, and no more to read as the history grows."""
    if lane.sink.complete:
        return versions
    return dict(list({**lane.delivered, **versions}.items())[:-1])


def _merged(waiting: CommitChange | None, change: CommitChange) -> CommitChange:
    """The newer change. A commit that had ended keeps the statuses of its end: by now other commits decide."""
    if waiting is not None and waiting.record.phase.terminal and change.record.now is None:
        return replace(change, statuses=waiting.statuses)
    return change
