"""One agent under observation: a test says what each source says, and asks how healthy the agent is."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from gitops_agent.drivers.api import AS_IT_RUNS, ExecResult, Executing, RunAs
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import AgentInstance, Heartbeat, Observation, Owner
from gitops_agent.model.status import Health, HealthState
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.probe_runs import ProbePools
from gitops_agent.observe.health.targets import HealthTarget
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import runtime_key
from tests.reconcile.make import ONE

NO_UPTIME = {"minUptime": "0s"}
HEALTHY = (HealthState.HEALTHY, "Healthy")
UNPROVEN = (HealthState.STARTING, "NotLiveYet")


def said(health: Health) -> tuple[HealthState, str]:
    return health.state, health.reason


def instances(started_at: float | None, beats: Sequence[Heartbeat | None]) -> tuple[AgentInstance, ...]:
    """One for each heartbeat, or one without any; none of what has not started."""
    if started_at is None:
        return ()
    numbered = enumerate(beats or (None,))
    return tuple(AgentInstance(str(n), started_at, heartbeat=beat, address="127.0.0.1") for n, beat in numbered)


class Answering:
    """A runner whose answers a test sets, for all commands or by their first word; every command is counted."""

    def __init__(self) -> None:
        self.ok = True
        self.broken: set[str] = set()
        self.broken_instances: set[str] = set()
        self.asked: list[tuple[AgentKey, tuple[str, ...], float]] = []

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        self.asked.append((agent, tuple(command), timeout))
        ok = self.ok and command[0] not in self.broken and how.instance not in self.broken_instances
        return ExecResult(ok, "fine" if ok else "exit code 1")


class Ward:
    """One agent, the clock it lives by, and the monitor that judges it."""

    def __init__(self, clock: FrozenClock, pool: Executor) -> None:
        self.clock = clock
        self.monitor = HealthMonitor(clock, ProbePools(pool, pool))
        self.runner = Answering()
        self.ask: Executing = self.runner
        self.started = clock.now()
        self.handle = 1
        self.beats: tuple[Heartbeat | None, ...] = ()
        self.behind: set[str] = set()

    def restart(self) -> None:
        self.started = self.clock.now()
        self.handle += 1

    def jump(self, seconds: float) -> None:
        """The wall clock jumps; the kernel counts from boot, so the start time as we compute it moves along."""
        self.clock.jump(seconds)
        self.started += seconds

    def beat(self, *pending: str, at: float | None = None) -> None:
        self.beats = (Heartbeat(self.clock.now() if at is None else at, pending=pending),)

    def seen(self, **more: Any) -> Observation:
        given = {
            "fields": Fields.of({"replicas": 1}),
            "handle": Fields.of({"handle": self.handle}),
            "instances": tuple(
                replace(each, behind=each.id in self.behind)
                for each in instances(more.pop("started_at", self.started), more.pop("heartbeats", self.beats))
            ),
            "observed_at": self.clock.now(),
            **more,
        }
        state = given.pop("state", "Running")
        return Observation(runtime_key(ONE), "memory", Owner.OURS, state=state, **given)

    def look(self, spec: dict[str, Any] | None = None, *, asked_since: float | None = None, **more: Any) -> Health:
        return self.judge(self.seen(**more), spec or {"minUptime": "1s"}, asked_since)

    def judge(self, seen: Observation, spec: dict[str, Any], asked_since: float | None = None) -> Health:
        suspicion = "Suspended" if seen.reason == "Suspended" and seen.fields is not None else None
        target = HealthTarget(ONE, seen, spec, False, self.ask, asked_since, suspicion=suspicion)
        return self.monitor.evaluate([target])[ONE]
