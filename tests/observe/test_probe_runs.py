"""Probes that hang: each holds its own place, its time is up all the same, and nothing waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.drivers.api import AS_IT_RUNS, ExecResult, RunAs
from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import HealthState, ResourceStatus
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.probe_runs import GRACE_SECONDS, ProbePools
from gitops_agent.observe.health.targets import HealthTarget
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.daemon_pool import DaemonPool
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import runtime_key
from tests.journal.values import a_status
from tests.reconcile.make import ONE
from tests.support.fleet import until

from .ward import HEALTHY, NO_UPTIME, UNPROVEN, Ward, said

pytestmark = pytest.mark.unit
LIVENESS: dict[str, Any] = {
    **NO_UPTIME,
    "probes": {"liveness": {"exec": {"command": ["ask"]}, "period": "5s", "timeout": "2s"}},
}


class Hanging:
    """A runner of commands that answers some agents only when the test is over; ``running`` are those it is at."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.hangs = lambda _agent: True
        self.running: list[AgentKey] = []

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        self.running.append(agent)
        if self.hangs(agent):
            self.over.wait(60)
        self.running.remove(agent)
        return ExecResult(True, "fine")


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.over.set()


@pytest.fixture
def ward(clock: FrozenClock, hanging: Hanging) -> Ward:
    made = Ward(clock, DaemonPool("probe", 2))
    made.ask = hanging
    return made


def test_a_look_does_not_wait_and_an_agent_is_not_ready_before_its_first_answer(
    ward: Ward, hanging: Hanging
) -> None:
    health = ward.look(LIVENESS)
    assert said(health) == UNPROVEN
    assert "no answer so far" in health.message
    assert ward.monitor.unanswered([ONE]) == {ONE}
    until(lambda: hanging.running == [ONE])
    ward.look(LIVENESS)
    ward.clock.advance(5)
    ward.look(LIVENESS)
    assert hanging.running == [ONE], "at most one of an agent is under way"


def test_its_time_is_up_whatever_its_driver_does(ward: Ward, hanging: Hanging) -> None:
    ward.look(LIVENESS)
    until(lambda: hanging.running)
    for failures in (1, 2, 3):
        ward.clock.advance(2 + GRACE_SECONDS)
        health = ward.look(LIVENESS)
        assert "no answer within 2 s" in health.message
        assert said(health) == (UNPROVEN if failures < 3 else (HealthState.UNHEALTHY, "LivenessFailed"))
    assert health.restart
    assert ward.monitor.unanswered([ONE]) == frozenset()


def test_an_agent_that_runs_as_it_was_reported_stays_ready_until_its_first_answer(
    clock: FrozenClock, hanging: Hanging
) -> None:
    ward = Ward(clock, DaemonPool("probe", 2))
    ward.ask = hanging
    pools = ProbePools(DaemonPool("probe", 2), DaemonPool("slow", 2))
    ward.monitor = HealthMonitor(clock, pools, lambda: {ONE: a_status(ONE)})
    ward.started = a_status(ONE).conditions[0].last_transition_at - 60
    assert said(ward.look(LIVENESS)) == HEALTHY
    assert ward.monitor.unanswered([ONE]) == {ONE}, "but there is something to wait for"
    until(lambda: hanging.running)
    ward.clock.advance(2 + GRACE_SECONDS)
    assert said(ward.look(LIVENESS)) == UNPROVEN


def test_a_copy_that_was_started_without_a_report_is_not_ready_before_its_probe_answers(
    clock: FrozenClock, hanging: Hanging
) -> None:
    ward = Ward(clock, DaemonPool("probe", 2))
    ward.ask = hanging
    resource = ResourceStatus(runtime_key(ONE), "memory", "Running", "Healthy", {"replicas": [{"pid": "before"}]})
    reported = replace(a_status(ONE), resources=(resource,))
    pools = ProbePools(DaemonPool("probe", 2), DaemonPool("slow", 2))
    ward.monitor = HealthMonitor(clock, pools, lambda: {ONE: reported})
    ward.started = reported.conditions[0].last_transition_at + 1  # the reporter restarted it, and was killed
    assert said(ward.look(LIVENESS)) == UNPROVEN


def test_what_a_driver_suspects_waits_for_the_probes_and_is_never_ready_meanwhile(
    ward: Ward, hanging: Hanging
) -> None:
    hanging.over.set()
    until(lambda: said(ward.look(LIVENESS)) == HEALTHY, "it is well")
    hanging.over.clear()
    ward.clock.advance(1)
    health = ward.look(LIVENESS, state="Suspended", reason="Suspended")
    assert said(health) == (HealthState.STUCK, "Suspended")
    assert (health.disputes, health.asking, health.restart) == ("Suspended", True, False)
    hanging.over.set()
    seen = {"state": "Suspended", "reason": "Suspended"}
    until(lambda: not ward.look(LIVENESS, **seen).asking, "the probe was asked afresh")
    assert ward.look(LIVENESS, **seen).reason == "SourcesDisagree"


def test_fifty_that_hang_starve_none_that_answers(hanging: Hanging) -> None:
    bad = [AgentKey("acme", f"bad-{number}") for number in range(50)]
    good = AgentKey("acme", "good")
    hanging.hangs = lambda agent: agent != good
    clock, news = SystemClock(), list[AgentKey]()
    pools = ProbePools(DaemonPool("probe", 4, slow_after=0.02, spare=64), DaemonPool("slow", 4))
    monitor = HealthMonitor(clock, pools, on_news=news.append)
    ward = Ward(FrozenClock(clock.now(), clock.monotonic()), pools.quick)
    targets = [HealthTarget(agent, ward.seen(), LIVENESS, False, hanging) for agent in (*bad, good)]
    monitor.evaluate(targets)
    until(lambda: news == [good], "the one that answers is heard of")
    health = monitor.evaluate(targets)
    assert said(health[good]) == HEALTHY
    assert {said(health[agent]) for agent in bad} == {UNPROVEN}
    assert len(hanging.running) == 50
