"""What we remember of one run of one copy of an agent: since when it runs, what its probes and heartbeats said.

Ages are measured on the monotonic clock from the moment we first saw a thing, so a wall clock that jumps an hour
neither ages every heartbeat at once nor makes every process young again.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from gitops_agent.drivers.api import ExecResult
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import EMPTY, Heartbeat, Observation
from gitops_agent.model.quantity import seconds
from gitops_agent.observe.health.targets import HealthTarget, ProbeSpec

STARTING_PERIOD_SECONDS = 0.5
"""An agent that is still coming up is asked this often, so that Ready is noticed when it happens."""


class ClockReading(NamedTuple):
    """One reading of both clocks."""

    monotonic: float
    wall: float


NEVER = ClockReading(float("-inf"), 0.0)


@dataclass(slots=True)
class ProbeState:
    """The answers of one probe under one definition; another definition starts anew, having never passed.
    ``from_start``: the agent has run under this definition since it started."""

    spec: ProbeSpec
    from_start: bool = True
    due_at: float = 0.0
    failures: int = 0
    counts_from: float = 0.0
    passed: bool = False
    last: ExecResult | None = None
    asked: ClockReading = NEVER

    @property
    def fails(self) -> bool:
        """Whether it failed when it was last run."""
        return self.last is not None and not self.last.ok

    @property
    def failed_too_often(self) -> bool:
        """Whether its failures in a row have reached its threshold."""
        return self.failures >= int(self.spec.get("failureThreshold", 3))

    @property
    def answer(self) -> str:
        """What it last answered."""
        return self.last.message if self.last is not None else ""

    def take(self, result: ExecResult, at: ClockReading) -> None:
        """Keep a result. Failures count once a period, however often we ask."""
        period = seconds(self.spec.get("period", "10s")) or 1.0
        if result.ok:
            self.failures, self.passed, self.counts_from = 0, True, 0.0
        elif at.monotonic >= self.counts_from:
            self.failures, self.counts_from = self.failures + 1, at.monotonic + period
        self.last, self.asked = result, at
        self.due_at = at.monotonic + (period if self.passed else min(period, STARTING_PERIOD_SECONDS))


class HeartbeatState(NamedTuple):
    """How the heartbeat of one copy stands. ``wrote``: it has written one in this run. ``calls``: the tool calls
    in progress."""

    age: float
    limit: float
    calls: tuple[str, ...]
    wrote: bool

    @property
    def stale(self) -> bool:
        """Whether no heartbeat came in time."""
        return self.age > self.limit


@dataclass(slots=True)
class _NewestHeartbeat:
    """The newest heartbeat: when it was written, and when we last looked (monotonic)."""

    newest: Heartbeat | None
    written_at: float
    looked_at: float


@dataclass(slots=True)
class HealthHistory:
    """What we remember of one run of one copy of an agent: it begins anew when that starts again.
    ``started_at`` is by the wall clock, ``born_at`` by the monotonic one."""

    started_at: float | None
    handle: Fields
    born_at: float
    newest: _NewestHeartbeat | None = None
    probes: dict[str, ProbeState] = field(default_factory=dict)
    heartbeat: HeartbeatState | None = None
    was_healthy: bool = False

    @classmethod
    def begin(cls, seen: Observation, now: ClockReading) -> "HealthHistory":
        """The history of a copy that is seen for the first time, though it may have run for long."""
        started_at = seen.started_at
        age = 0.0 if started_at is None else max(0.0, now.wall - started_at)
        return cls(started_at, seen.handle, now.monotonic - age)

    def uptime(self, monotonic: float) -> float:
        """How long it runs."""
        return monotonic - self.born_at

    def is_of(self, seen: Observation) -> bool:
        """Whether this is still the same run. The handle decides too: a wall clock that jumped moves every start
        time, and must not make us forget what we know."""
        return self.started_at == seen.started_at or (self.handle == seen.handle != EMPTY)

    def set_probes(self, target: HealthTarget) -> None:
        """Keep the probes that are asked for: a changed one starts anew, one that is gone is never due again."""
        probes = target.probes
        if not probes and not self.probes:
            return
        for name in self.probes.keys() - probes.keys():
            del self.probes[name]
        for name, spec in probes.items():
            if (known := self.probes.get(name)) is None or known.spec != spec:
                from_start = self.started_at is None or target.began_with(self.started_at)
                self.probes[name] = ProbeState(spec, from_start)

    def read_heartbeat(self, target: HealthTarget, now: ClockReading) -> None:
        """Take note of the heartbeat, if one is asked for."""
        spec = target.spec.get("heartbeat")
        if not spec or target.runtime is None:
            self.heartbeat = None
            return
        beat = target.runtime.instances[0].heartbeat
        age, calls = self._age(beat, now), beat.pending if beat is not None else ()
        wrote = self.newest is not None and self.newest.newest is not None
        self.heartbeat = HeartbeatState(age, seconds(spec.get("staleAfter", "60s")), calls, wrote)

    def _age(self, beat: Heartbeat | None, now: ClockReading) -> float:
        known = self.newest
        if known is None or (beat is not None and known.newest != beat):
            age = self.uptime(now.monotonic) if beat is None else max(0.0, now.wall - beat.at)
            if known is not None:
                # It was written since we last looked, whatever the wall clock did meanwhile.
                age = min(age, now.monotonic - known.looked_at)
            known = self.newest = _NewestHeartbeat(beat, now.monotonic - age, now.monotonic)
        known.looked_at = now.monotonic
        return now.monotonic - known.written_at

    def next_look(self, monotonic: float) -> float | None:
        """When a probe is due, or the heartbeat would be stale without a new one."""
        if not self.probes and self.heartbeat is None:
            return None
        moments = [state.due_at for state in self.probes.values()]
        if self.heartbeat is not None:
            left = self.heartbeat.limit - self.heartbeat.age
            moments.append(monotonic + (left if left >= 0 else self.heartbeat.limit))
        return min(moments, default=None)
