"""Faults on purpose: count named points of a run, and let something terrible happen at exactly one of them.

A campaign first runs with a counting injector to learn every point of a pass, then runs again once per point::

    counted = FaultInjector()
    one_pass(FaultyJournal(journal, counted))
    for point in counted.points():                    # "journal.begin:before:1", "journal.begin:after:1" ...
        one_pass(FaultyJournal(journal, FaultInjector.at(point, crash)))

A source may also be wrong about agents that are alive: what a driver observes is changed by a lie, what a probe
answers by a ``LyingExecutor``. Each is wrong about its own subject and leaves the others as they are::

    LyingDriver(driver, says_suspended)
    LyingDriver(driver, hears_until(clock.now()))         # as if nothing had been written since
    LyingExecutor(driver, {"alive": False})               # the command "alive" fails, whatever it would answer
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, NoReturn

from gitops_agent.drivers.api import (
    AS_IT_RUNS,
    Action,
    AgentKey,
    Applied,
    Clock,
    Driver,
    ExecResult,
    Executing,
    Heartbeat,
    Kind,
    Observation,
    ObserveRequest,
    RunAs,
)
from gitops_agent.errors import JournalError

Effect = Callable[[], None]
Lie = Callable[[Sequence[Observation]], Sequence[Observation]]
SUSPENDED = "Suspended"


class Crash(BaseException):
    """The process as good as died here. Not an Exception, so that no handler mistakes it for a failure."""


def kill() -> NoReturn:
    """End this process as ``kill -9`` does: no handler, no flush, no goodbye."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def crash() -> NoReturn:
    """Unwind to the test, within one process."""
    raise Crash


def disk_full() -> NoReturn:
    """What the journal says when the disk is full."""
    raise JournalError("the disk is full, so the journal cannot be written", hint="free some space")


class FaultInjector:
    """Counts how often each named point is reached, and has one effect at the n-th time of one of them."""

    def __init__(self, point: str | None = None, nth: int = 1, effect: Effect = crash) -> None:
        self._point = point
        self._nth = nth
        self._effect = effect
        self._lock = Lock()
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []

    @classmethod
    def at(cls, text: str, effect: Effect = kill) -> "FaultInjector":
        """The injector for a point as ``points`` spells it, such as ``journal.begin:after:3``."""
        point, colon, nth = text.rpartition(":")
        if not colon or not point or not nth.isascii() or not nth.isdigit() or int(nth) < 1:
            raise ValueError(f"not a fault point: {text!r} (expected something like journal.begin:after:3)")
        return cls(point, int(nth), effect)

    def reach(self, point: str) -> None:
        """Say that a point is reached; this may be the end."""
        with self._lock:
            self.counts[point] += 1
            count = self.counts[point]
            self.trace.append(f"{point}:{count}")
        if point == self._point and count == self._nth:
            self._effect()

    def points(self) -> tuple[str, ...]:
        """Every point that was reached, in order, as ``at`` reads it."""
        return tuple(self.trace)


class WrappedDriver:
    """A driver in front of another: what it does not change is the other's, capabilities included."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """The answer of the driver."""
        return self._driver.observe(request)

    def apply(self, action: Action, key: str) -> Applied:
        """Have the driver do it."""
        return self._driver.apply(action, key)


class FaultyDriver(WrappedDriver):
    """A driver with a point before and after every effect (``apply:before``, ``apply:after``)."""

    def __init__(self, driver: Driver, injector: FaultInjector) -> None:
        super().__init__(driver)
        self._injector = injector

    def apply(self, action: Action, key: str) -> Applied:
        """Do it, between two points."""
        self._injector.reach("apply:before")
        applied = self._driver.apply(action, key)
        self._injector.reach("apply:after")
        return applied


class LyingDriver(WrappedDriver):
    """A driver whose observations are changed on the way: wrong rather than missing."""

    def __init__(self, driver: Driver, lie: Lie) -> None:
        super().__init__(driver)
        self._lie = lie

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """The answer as the lie has it."""
        return self._lie(self._driver.observe(request))


def sees_nothing(_: Sequence[Observation]) -> Sequence[Observation]:
    """A lie: the live system is empty."""
    return ()


def sees_half(seen: Sequence[Observation]) -> Sequence[Observation]:
    """A lie: every other object is missing."""
    return seen[::2]


def says_suspended(seen: Sequence[Observation]) -> Sequence[Observation]:
    """A lie of the process table: every runtime is held by a signal."""
    return [_with_state(each, SUSPENDED, SUSPENDED, "pid 7 is suspended (SIGSTOP)") for each in seen]


def says_running(seen: Sequence[Observation]) -> Sequence[Observation]:
    """A lie of the process table: no runtime is held by a signal."""
    return [_with_state(each, "Running") if each.state == SUSPENDED else each for each in seen]


def hears_until(moment: float) -> Lie:
    """A lie about heartbeats: nothing was written since a moment."""
    return lambda seen: [_with_beats(each, moment) for each in seen]


def hears_always(clock: Clock) -> Lie:
    """A lie about heartbeats: one was written just now."""
    return lambda seen: [_with_beats(each, clock.now()) for each in seen]


def _runs(seen: Observation) -> bool:
    return seen.key.kind == Kind.RUNTIME and seen.fields is not None


def _with_state(seen: Observation, state: str, reason: str | None = None, message: str = "") -> Observation:
    return replace(seen, state=state, reason=reason, message=message) if _runs(seen) else seen


def _with_beats(seen: Observation, at: float) -> Observation:
    if not _runs(seen):
        return seen
    return replace(seen, instances=tuple(replace(each, heartbeat=Heartbeat(at)) for each in seen.instances))


class LyingExecutor:
    """Answers some commands, named by their first word, without running them."""

    def __init__(self, executing: Executing, lies: Mapping[str, bool]) -> None:
        self._executing = executing
        self._lies = dict(lies)

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """The lie, or else the truth."""
        if command[0] in self._lies:
            ok = self._lies[command[0]]
            return ExecResult(ok, "fine" if ok else "exit code 1")
        return self._executing.exec(agent, command, timeout, how)
