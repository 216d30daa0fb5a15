"""The verdict on health: probes, heartbeat and minimum uptime decide whether an agent is Ready.

What is judged is the enforced spec, the one last applied to the agent (its ``health`` base), never HEAD. Ages
are measured on the monotonic clock from the moment we first saw a thing, so a wall clock that jumps an hour
neither ages every heartbeat at once nor makes every process young again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import EMPTY, Heartbeat, Observation, Owner
from gitops_agent.model.quantity import seconds
from gitops_agent.model.status import Health, HealthState
from gitops_agent.ports import Clock, ExecResult, Runner, Scope
from gitops_agent.reconcile.probe import probe

DEFAULTS: Mapping[str, Any] = {"minUptime": "1s", "probes": {}, "heartbeat": None}
SHORTEST = 0.05
"""Two looks are at least this far apart, so that no mistake about what is due can become a hot loop."""

STOPPED = Health(HealthState.STOPPED, "Stopped", "stopped, as desired")


@dataclass(frozen=True, slots=True)
class Subject:
    """One agent to be judged: what was observed of its runtime, and the fields last applied."""

    agent: AgentKey
    runtime: Observation | None
    fields: Fields
    spec: Mapping[str, Any] = field(default_factory=lambda: DEFAULTS)
    dormant: bool = False
    runner: Runner | None = None


@dataclass(slots=True)
class _ProbeState:
    due_at: float = 0.0
    failures: int = 0
    ever_passed: bool = False
    last: ExecResult | None = None


@dataclass(slots=True)
class _Beat:
    """The newest heartbeat of one replica: how old it was when we first saw it, and when we last looked."""

    said: Heartbeat | None
    age_then: float
    first_seen: float
    looked_at: float


@dataclass(slots=True)
class _Memory:
    """What we remember of one life of one agent: it starts anew when its process does."""

    started_at: float
    facts: Fields
    first_seen: float
    age_then: float
    beats: dict[int, _Beat] = field(default_factory=dict)
    probes: dict[str, _ProbeState] = field(default_factory=dict)
    stale_at: float | None = None

    def uptime(self, monotonic: float) -> float:
        return self.age_then + monotonic - self.first_seen

    def is_of(self, seen: Observation) -> bool:
        """Whether this is still the same life. The handle decides as well: a wall clock that jumped moves every
        start time, and must not make us forget what we know."""
        return self.started_at == seen.started_at or (self.facts == seen.facts != EMPTY)


class HealthMonitor:
    """Judges agents; remembers probe results and first sightings between passes."""

    def __init__(self, clock: Clock, pool: Executor) -> None:
        self._clock = clock
        self._pool = pool
        self._memories: dict[AgentKey, _Memory] = {}
        self._recheck: dict[AgentKey, float] = {}

    def due(self) -> frozenset[AgentKey]:
        """The agents whose health must be looked at again now: a probe is due, or time has decided something."""
        now = self._clock.monotonic()
        return frozenset(key for key, at in self._recheck.items() if at <= now)

    def next_due(self) -> float | None:
        """Seconds until there is something to look at again."""
        first = min(self._recheck.values(), default=None)
        return None if first is None else max(SHORTEST, first - self._clock.monotonic())

    def judge(self, subjects: Sequence[Subject], scope: Scope = None) -> dict[AgentKey, Health]:
        """The health of each subject; probes that are due run side by side first.

        Agents of the scope that are not among the subjects (retired, removed) are not to be looked at again.
        """
        alive = [subject for subject in subjects if self._remember(subject)]
        self._run_due_probes(alive)
        verdicts = {subject.agent: self._verdict(subject) for subject in subjects}
        for agent in tuple(self._recheck) if scope is None else scope:
            self._recheck.pop(agent, None)
        for agent, health in verdicts.items():
            if health.recheck_at is not None:
                self._recheck[agent] = health.recheck_at
        return verdicts

    def forget(self, agents: Iterable[AgentKey]) -> None:
        """Agents that left Git are not looked at again."""
        for agent in agents:
            self._memories.pop(agent, None)
            self._recheck.pop(agent, None)

    def _remember(self, subject: Subject) -> bool:
        seen = subject.runtime
        if seen is None or seen.fields is None or seen.started_at is None:
            self._memories.pop(subject.agent, None)
            return False
        memory = self._memories.get(subject.agent)
        if memory is None or not memory.is_of(seen):
            age = max(0.0, self._clock.now() - seen.started_at)
            memory = _Memory(seen.started_at, seen.facts, self._clock.monotonic(), age)
            self._memories[subject.agent] = memory
        return True

    def _run_due_probes(self, subjects: Sequence[Subject]) -> None:
        now = self._clock.monotonic()
        runs = []
        for subject in subjects:
            memory = self._memories[subject.agent]
            probes = subject.spec.get("probes") or {}
            for name in [name for name in memory.probes if not probes.get(name)]:
                del memory.probes[name]  # no longer asked for: it is never due again
            for name, spec in probes.items():
                state = memory.probes.setdefault(name, _ProbeState()) if spec else None
                if state is not None and state.due_at <= now:
                    future = self._pool.submit(probe, spec, subject.agent, subject.runner)
                    runs.append((state, _period(name, spec, state), future))
        for state, period, future in runs:
            _take(state, period, future.result(), self._clock.monotonic())

    def _verdict(self, subject: Subject) -> Health:
        gone = _not_running(subject)
        if gone is not None:
            return gone
        memory = self._memories[subject.agent]
        for judge in (_uptime, _liveness, self._heartbeat, _readiness):
            health = judge(subject, memory, self._clock.monotonic())
            if health is not None:
                return health
        return Health(HealthState.HEALTHY, "Healthy", "", recheck_at=_next_look(subject, memory))

    def _heartbeat(self, subject: Subject, memory: _Memory, monotonic: float) -> Health | None:
        spec = subject.spec.get("heartbeat")
        if not spec or subject.runtime is None:
            return None
        limit = seconds(spec.get("staleAfter", "60s"))
        ages = []
        for replica, beat in enumerate(subject.runtime.heartbeats or (None,)):
            ages.append((self._age(replica, beat, memory, monotonic), beat))
        age, _ = max(ages, key=lambda pair: pair[0])
        memory.stale_at = monotonic + limit - age
        if age <= limit:
            return None
        # A restart ends all replicas, so a tool call of any of them forbids it.
        pending = [call for _, beat in ages if beat is not None for call in beat.pending]
        if pending:
            calls = ", ".join(pending[:3])
            return Health(
                HealthState.STUCK,
                "ToolCallInProgress",
                f"no heartbeat for {age:.0f} s, but a tool call is in progress ({calls}): not restarted",
                recheck_at=monotonic + limit,
            )
        restart = spec.get("onStale", "Restart") == "Restart"
        message = f"no heartbeat for {age:.0f} s (limit {limit:.0f} s)"
        return Health(HealthState.STUCK, "HeartbeatStale", message, restart, recheck_at=monotonic + limit)

    def _age(self, replica: int, beat: Heartbeat | None, memory: _Memory, monotonic: float) -> float:
        known = memory.beats.get(replica)
        if known is None or (beat is not None and known.said != beat):
            age = memory.uptime(monotonic) if beat is None else max(0.0, self._clock.now() - beat.at)
            if known is not None:
                # It was written since we last looked, whatever the wall clock did meanwhile.
                age = min(age, monotonic - known.looked_at)
            known = memory.beats[replica] = _Beat(beat, age, monotonic, monotonic)
        known.looked_at = monotonic
        return known.age_then + monotonic - known.first_seen


def _period(name: str, spec: Mapping[str, Any], state: _ProbeState) -> float:
    """How long until the next run. An agent that is still coming up is asked for readiness more often, so that
    Ready is noticed when it happens; liveness keeps its period, because its failures count towards a restart."""
    period = seconds(spec.get("period", "10s")) or 1.0
    return min(period, 0.5) if name == "readiness" and not state.ever_passed else period


def _take(state: _ProbeState, period: float, result: ExecResult, monotonic: float) -> None:
    state.last = result
    state.failures = 0 if result.ok else state.failures + 1
    state.ever_passed = state.ever_passed or result.ok
    state.due_at = monotonic + period


def _not_running(subject: Subject) -> Health | None:
    seen = subject.runtime
    absent = seen is None or seen.fields is None
    if subject.dormant:
        return STOPPED if absent else Health(HealthState.STARTING, "Stopping", "still running")
    if seen is None or seen.fields is None:
        reason = (seen.reason if seen else None) or "NotRunning"
        return Health(HealthState.UNHEALTHY, reason, (seen.message if seen else "") or "not running")
    if seen.owner is not Owner.OURS:
        # Somebody else's, or nobody's: how well it does says nothing about our agent.
        return Health(HealthState.UNHEALTHY, seen.reason or "NotRunning", seen.message or "not running")
    if seen.state == "Suspended":
        return Health(HealthState.UNHEALTHY, "Suspended", seen.message or "suspended by a signal")
    if seen.fields != subject.fields:  # else all of it is as applied, and need not be decoded
        wanted = subject.fields.value.get("replicas", 1)
        replicas = seen.fields.value.get("replicas", wanted)
        if replicas < wanted:
            message = f"{replicas} of {wanted} replicas are running"
            return Health(HealthState.UNHEALTHY, "ReplicaMissing", message)
    if seen.started_at is None:
        return Health(HealthState.HEALTHY, "Healthy", "")
    return None


def _uptime(subject: Subject, memory: _Memory, monotonic: float) -> Health | None:
    wanted = seconds(subject.spec.get("minUptime", "1s"))
    uptime = memory.uptime(monotonic)
    if uptime >= wanted:
        return None
    message = f"up for {uptime:.1f} s of {wanted:g} s"
    return Health(HealthState.STARTING, "MinUptime", message, recheck_at=monotonic + wanted - uptime)


def _liveness(subject: Subject, memory: _Memory, _monotonic: float) -> Health | None:
    state, spec = memory.probes.get("liveness"), (subject.spec.get("probes") or {}).get("liveness")
    if state is None or spec is None or state.failures < spec.get("failureThreshold", 3):
        return None
    said = state.last.message if state.last else ""
    message = f"liveness probe failed {state.failures} times: {said}"
    return Health(HealthState.UNHEALTHY, "LivenessFailed", message, restart=True)


def _readiness(subject: Subject, memory: _Memory, _monotonic: float) -> Health | None:
    state, spec = memory.probes.get("readiness"), (subject.spec.get("probes") or {}).get("readiness")
    if state is None or spec is None or state.last is None or state.last.ok:
        return None
    if not state.ever_passed:
        return Health(HealthState.STARTING, "NotReadyYet", state.last.message, recheck_at=state.due_at)
    if state.failures < spec.get("failureThreshold", 3):
        return None
    message = f"readiness probe failed {state.failures} times: {state.last.message}"
    return Health(HealthState.UNHEALTHY, "ReadinessFailed", message, recheck_at=state.due_at)


def _next_look(subject: Subject, memory: _Memory) -> float | None:
    """When a probe is due, or the heartbeat would be stale without a new one."""
    moments = [state.due_at for state in memory.probes.values()]
    if subject.spec.get("heartbeat") and memory.stale_at is not None:
        moments.append(memory.stale_at)
    return min(moments, default=None)
