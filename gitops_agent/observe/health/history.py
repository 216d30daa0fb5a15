"""What we remember of one life of an agent: since when it runs, and what its probes and heartbeats said.

Ages are measured on the monotonic clock from the moment we first saw a thing, so a wall clock that jumps an hour
neither ages every heartbeat at once nor makes every process young again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import EMPTY, Heartbeat, Observation
from gitops_agent.model.quantity import seconds
from gitops_agent.ports import ExecResult, Runner

DEFAULTS: Mapping[str, Any] = {"minUptime": "1s", "probes": {}, "heartbeat": None}
IMPATIENT = 0.5
"""An agent that is still coming up is asked this often, so that Ready is noticed when it happens."""
MARGIN = 2.0
"""How exactly the start of a process is known, in seconds."""

ProbeSpec = Mapping[str, Any]


class Moment(NamedTuple):
    """One reading of both clocks."""

    monotonic: float
    wall: float


NEVER = Moment(float("-inf"), 0.0)


@dataclass(frozen=True, slots=True)
class Subject:
    """One agent to be judged: what was observed of its runtime, and the fields last applied.

    ``asked_since`` is when the spec that judges it came into force; None when it is not on record yet.
    """

    agent: AgentKey
    runtime: Observation | None
    fields: Fields
    spec: Mapping[str, Any] = field(default_factory=lambda: DEFAULTS)
    dormant: bool = False
    runner: Runner | None = None
    asked_since: float | None = None

    @property
    def probes(self) -> dict[str, ProbeSpec]:
        """The probes that are asked for, by name."""
        asked = self.spec.get("probes")
        return {name: spec for name, spec in asked.items() if spec} if asked else {}


@dataclass(slots=True)
class ProbeState:
    """What one probe said under one definition; another definition starts anew, having never passed."""

    spec: ProbeSpec
    due_at: float = 0.0
    failures: int = 0
    counts_from: float = 0.0
    passed: bool = False
    last: ExecResult | None = None
    asked: Moment = NEVER

    @property
    def fails(self) -> bool:
        """Whether it failed when it was last run."""
        return self.last is not None and not self.last.ok

    @property
    def failed_too_often(self) -> bool:
        """Whether its failures in a row have reached its threshold."""
        return self.failures >= int(self.spec.get("failureThreshold", 3))

    @property
    def said(self) -> str:
        """What it last said."""
        return self.last.message if self.last is not None else ""

    def take(self, result: ExecResult, at: Moment) -> None:
        """Keep a result. Failures count once a period, however often we ask."""
        period = seconds(self.spec.get("period", "10s")) or 1.0
        if result.ok:
            self.failures, self.passed, self.counts_from = 0, True, 0.0
        elif at.monotonic >= self.counts_from:
            self.failures, self.counts_from = self.failures + 1, at.monotonic + period
        self.last, self.asked = result, at
        self.due_at = at.monotonic + (period if self.passed else min(period, IMPATIENT))


class Pulse(NamedTuple):
    """What the heartbeats of all replicas say together: the stalest counts.

    ``spoke``: every replica has written one in this life. ``calls`` are the tool calls in progress: a restart ends
    all replicas, so those of any of them count.
    """

    age: float
    limit: float
    calls: tuple[str, ...]
    spoke: bool

    @property
    def stale(self) -> bool:
        """Whether no heartbeat came in time."""
        return self.age > self.limit


@dataclass(slots=True)
class _Beat:
    """The newest heartbeat of one replica: how old it was when we first saw it, and when we last looked."""

    said: Heartbeat | None
    age_then: float
    first_seen: float
    looked_at: float


@dataclass(slots=True)
class Life:
    """What we remember of one life of one agent: it starts anew when its process does."""

    started_at: float
    handle: Fields
    first_seen: float
    age_then: float
    beats: dict[int, _Beat] = field(default_factory=dict)
    probes: dict[str, ProbeState] = field(default_factory=dict)
    pulse: Pulse | None = None
    was_well: bool = False

    @classmethod
    def begin(cls, seen: Observation, started_at: float, now: Moment) -> Life:
        """The life of a process that is seen for the first time, though it may be old."""
        return cls(started_at, seen.handle, now.monotonic, max(0.0, now.wall - started_at))

    def uptime(self, monotonic: float) -> float:
        """How long it runs."""
        return self.age_then + monotonic - self.first_seen

    def is_of(self, seen: Observation) -> bool:
        """Whether this is still the same life. The handle decides as well: a wall clock that jumped moves every
        start time, and must not make us forget what we know."""
        return self.started_at == seen.started_at or (self.handle == seen.handle != EMPTY)

    def is_asked(self, probes: Mapping[str, ProbeSpec]) -> None:
        """Keep the probes that are asked for: a changed one starts anew, one that is gone is never due again."""
        if not probes and not self.probes:
            return
        for name in self.probes.keys() - probes.keys():
            del self.probes[name]
        for name, spec in probes.items():
            known = self.probes.get(name)
            if known is None or known.spec != spec:
                self.probes[name] = ProbeState(spec)

    def listen(self, subject: Subject, now: Moment) -> None:
        """Take note of the heartbeats, if any are asked for."""
        spec = subject.spec.get("heartbeat")
        if not spec or subject.runtime is None:
            self.pulse = None
            return
        beats = subject.runtime.heartbeats or (None,)
        age = max(self._age(replica, beat, now) for replica, beat in enumerate(beats))
        calls = tuple(call for beat in beats if beat is not None for call in beat.pending)
        spoke = all(self.beats[replica].said is not None for replica in range(len(beats)))
        self.pulse = Pulse(age, seconds(spec.get("staleAfter", "60s")), calls, spoke)

    def _age(self, replica: int, beat: Heartbeat | None, now: Moment) -> float:
        known = self.beats.get(replica)
        if known is None or (beat is not None and known.said != beat):
            age = self.uptime(now.monotonic) if beat is None else max(0.0, now.wall - beat.at)
            if known is not None:
                # It was written since we last looked, whatever the wall clock did meanwhile.
                age = min(age, now.monotonic - known.looked_at)
            known = self.beats[replica] = _Beat(beat, age, now.monotonic, now.monotonic)
        known.looked_at = now.monotonic
        return known.age_then + now.monotonic - known.first_seen

    def next_look(self, monotonic: float) -> float | None:
        """When a probe is due, or the heartbeat would be stale without a new one."""
        if not self.probes and self.pulse is None:
            return None
        moments = [state.due_at for state in self.probes.values()]
        if self.pulse is not None:
            left = self.pulse.limit - self.pulse.age
            moments.append(monotonic + (left if left >= 0 else self.pulse.limit))
        return min(moments, default=None)
