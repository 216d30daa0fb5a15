"""What we remember of one run of one copy of an agent: since when it runs, what its probes and heartbeats said.

Ages are measured on the monotonic clock from the moment we first saw a thing, so a wall clock that jumps an hour
neither ages every heartbeat at once nor makes every process young again.
"""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from gitops_agent.drivers.api import ExecResult
from gitops_agent.model.fields import Fields
from gitops_agent.model.health import OpenCall, Progress
from gitops_agent.model.observation import EMPTY, Heartbeat, Observation
from gitops_agent.model.quantity import seconds
from gitops_agent.observe.health.targets import HealthTarget, ProbeSpec

SHOWN_CALLS = 3
STARTING_PERIOD_SECONDS = 0.5
"""An agent that is still coming up is asked this often, so that Ready is noticed when it happens."""


class ClockReading(NamedTuple):
    """One reading of both clocks."""

    monotonic: float
    wall: float

    def before(self, wall: float) -> float:
        """A moment of the past by the wall clock, on the monotonic one."""
        return self.monotonic - max(0.0, self.wall - wall)

    def moment(self, monotonic: float) -> float:
        """The other way round, to the second: two looks a moment apart give the same."""
        return float(round(self.wall - (self.monotonic - monotonic)))


NEVER = ClockReading(float("-inf"), 0.0)


@dataclass(slots=True)
class ProbeState:
    """The answers of one probe under one definition; another definition starts anew, having never passed.
    ``from_start``: the agent has run under this definition since it started. ``inherited``: it was Ready in this
    very run when an earlier process last reported it, which counts until the first answer of this one.
    ``asked``: when the probe began that gave the last answer."""

    spec: ProbeSpec
    from_start: bool = True
    inherited: bool = False
    due_at: float = 0.0
    failures: int = 0
    counts_from: float = 0.0
    passed: bool = False
    last: ExecResult | None = None
    asked: ClockReading = NEVER

    @property
    def period(self) -> float:
        """Seconds from one question to the next."""
        return seconds(self.spec.get("period", "10s")) or 1.0

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

    @property
    def unproven(self) -> bool:
        """Whether it has not passed yet, neither now nor for an earlier process that we may believe."""
        return not self.passed and (self.fails or (self.last is None and not self.inherited))

    def take(self, result: ExecResult, asked: ClockReading, answered: float) -> None:
        """Keep a result. Failures count once a period, however often we ask. The period counts from one question
        to the next, so that an answer that is collected late delays nothing."""
        period = self.period
        if result.ok:
            self.failures, self.passed, self.counts_from = 0, True, 0.0
        elif answered >= self.counts_from:
            self.failures, self.counts_from = self.failures + 1, answered + period
        self.last, self.asked = result, asked
        rest = period if self.passed else min(period, STARTING_PERIOD_SECONDS)
        self.due_at = asked.monotonic + rest if result.ok else answered + rest


class HeartbeatState(NamedTuple):
    """How the heartbeat of one copy stands, in seconds. ``wrote``: it has written one in this run. ``calls``: the
    tool calls in progress, each with how long it is open, the longest first. ``turn``: how long its turn lasts;
    None when it reports none. The limits are those of the document."""

    age: float
    limit: float
    wrote: bool = False
    calls: tuple[tuple[str, float], ...] = ()
    call_limit: float = inf
    turn: float | None = None
    turn_limit: float = inf

    @property
    def stale(self) -> bool:
        """Whether no heartbeat came in time."""
        return self.age > self.limit

    @property
    def names(self) -> str:
        """The names of a few tool calls in progress."""
        return ", ".join(name for name, _ in self.calls[:SHOWN_CALLS])

    @property
    def call_is_stuck(self) -> bool:
        """Whether a tool call is open for too long."""
        return bool(self.calls) and self.calls[0][1] > self.call_limit

    @property
    def turn_is_stuck(self) -> bool:
        """Whether a turn lasts for too long."""
        return self.turn is not None and self.turn > self.turn_limit

    def next_limit(self) -> float:
        """Seconds until the next of the limits is reached; the heartbeat's own again, once it is stale."""
        left = [self.limit - self.age if not self.stale else self.limit]
        if self.calls and not self.call_is_stuck:
            left.append(self.call_limit - self.calls[0][1])
        if self.turn is not None and not self.turn_is_stuck:
            left.append(self.turn_limit - self.turn)
        return max(0.0, min(left))


@dataclass(slots=True)
class _NewestHeartbeat:
    """The newest heartbeat: when it was written, and when we last looked (monotonic)."""

    newest: Heartbeat | None
    written_at: float
    looked_at: float


@dataclass(slots=True)
class HealthHistory:
    """What we remember of one run of one copy of an agent: it begins anew when that starts again.
    ``started_at`` is by the wall clock, everything else by the monotonic one: ``born_at``, since when it is in its
    ``turn``, since when each of its ``calls`` is open, since when its driver finds it stuck (``suspected_at``) or
    any source does (``doubted_at``). ``was_ready``: an earlier process reported this run Ready."""

    started_at: float | None
    handle: Fields
    born_at: float
    newest: _NewestHeartbeat | None = None
    turn: tuple[int | None, float] | None = None
    calls: dict[str, list[float]] = field(default_factory=dict)
    probes: dict[str, ProbeState] = field(default_factory=dict)
    heartbeat: HeartbeatState | None = None
    suspected_at: float | None = None
    was_healthy: bool = False
    was_ready: bool = False
    doubted_at: float | None = None

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
        probes, inherited = target.probes, self.was_ready
        self.was_ready = False  # it says nothing of a definition that comes later
        if not probes and not self.probes:
            return
        for name in self.probes.keys() - probes.keys():
            del self.probes[name]
        for name, spec in probes.items():
            if (known := self.probes.get(name)) is None or known.spec != spec:
                from_start = self.started_at is None or target.began_with(self.started_at)
                self.probes[name] = ProbeState(spec, from_start, inherited)

    def read_heartbeat(self, target: HealthTarget, now: ClockReading) -> None:
        """Take note of the heartbeat, if one is asked for, and of the moment from which on it would count against
        what the driver suspects."""
        if target.suspicion is None:
            self.suspected_at = None
        elif self.suspected_at is None:
            self.suspected_at = now.monotonic
        spec = target.spec.get("heartbeat")
        if not spec or target.runtime is None:
            self.heartbeat = None
            return
        beat = target.runtime.instances[0].heartbeat
        age, then = self._age(beat, now), now.monotonic
        if beat is not None:
            self._follow(beat, then - age)
        calls = [(name, then - since) for name, opened in self.calls.items() for since in opened]
        turn = self.turn if self.turn is not None and self.turn[0] is not None else None
        self.heartbeat = HeartbeatState(
            age,
            seconds(spec.get("staleAfter", "60s")),
            self.newest is not None and self.newest.newest is not None,
            tuple(sorted(calls, key=lambda call: -call[1])),
            seconds(spec.get("maxToolCall", "15m")),
            then - turn[1] if turn is not None else None,
            seconds(spec.get("maxTurn", "1h")),
        )

    def _follow(self, beat: Heartbeat, written_at: float) -> None:
        """Take note of turn and calls: since when a thing is so is when it was first seen so. Of two calls of one
        name the older is taken to have ended: no call is said to be stuck that may be young."""
        if self.turn is None or self.turn[0] != beat.turn:
            self.turn = (beat.turn, written_at)
        known, self.calls = self.calls, {}
        for name in beat.pending:
            self.calls.setdefault(name, []).append(written_at)
        for name, opened in self.calls.items():
            older = known.get(name, [])[-len(opened) :]
            opened[: len(older)] = older

    def recall(self, known: Progress, now: ClockReading) -> None:
        """Take over what an earlier process saw of this very copy: what lasts, lasts from then on."""
        self.turn = (known.turn, now.before(known.turn_since)) if known.turn_since is not None else None
        for call in known.calls:
            self.calls.setdefault(call.name, []).append(now.before(call.since))

    def progress(self, instance: str, now: ClockReading) -> Progress | None:
        """What it reports of itself, in moments of the wall clock; None where it wrote no heartbeat."""
        if self.heartbeat is None or self.newest is None or self.newest.newest is None:
            return None
        turn = self.turn if self.turn is not None and self.turn[0] is not None else (None, None)
        calls = [OpenCall(name, now.moment(since)) for name, opened in self.calls.items() for since in opened]
        since = now.moment(turn[1]) if turn[1] is not None else None
        return Progress(instance, self.newest.newest.at, turn[0], since, tuple(calls))

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

    @property
    def is_asked(self) -> bool:
        """Whether it has a probe or a heartbeat."""
        return bool(self.probes) or self.heartbeat is not None

    @property
    def unanswered(self) -> bool:
        """Whether some probe has given no answer at all yet."""
        return bool(self.probes) and any(state.last is None for state in self.probes.values())

    def stale_probes(self, since: float) -> list[str]:
        """The probes whose last answer is to a question from before a moment."""
        return [name for name, state in self.probes.items() if state.asked.monotonic < since]

    def next_look(self, monotonic: float) -> float | None:
        """When a probe is due, or the heartbeat or what it reports would last for too long."""
        if not self.is_asked:
            return None
        moments = [state.due_at for state in self.probes.values()]
        if self.heartbeat is not None:
            moments.append(monotonic + self.heartbeat.next_limit())
        return min(moments, default=None)
