"""Health: what makes an agent Ready, what asks for a restart, and that a clock that jumps decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.api import AS_IT_RUNS, ExecResult, RunAs
from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.health import OpenCall
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Heartbeat
from gitops_agent.model.status import AgentStatus, Health, HealthState
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.probe_runs import ProbePools
from gitops_agent.observe.health.targets import HealthTarget
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import runtime_key
from tests.pipeline.world import Inline
from tests.reconcile.make import ONE, TWO

from .ward import HEALTHY, NO_UPTIME, UNPROVEN, Ward, said

pytestmark = pytest.mark.unit
HOUR = 3600.0


@pytest.fixture
def ward(clock: FrozenClock, pool: Executor) -> Ward:
    return Ward(clock, pool)


# -- uptime


def test_an_agent_is_ready_after_its_minimum_uptime(ward: Ward) -> None:
    early = ward.look({"minUptime": "2s"})
    assert said(early) == (HealthState.STARTING, "MinUptime")
    assert early.recheck_at == ward.clock.monotonic() + 2
    assert ward.monitor.next_due() == 2
    assert ward.monitor.due() == frozenset()
    ward.clock.advance(1.9)
    assert said(ward.look({"minUptime": "2s"})) == (HealthState.STARTING, "MinUptime")
    ward.clock.advance(0.1)
    assert ward.monitor.due() == {ONE}
    assert said(ward.look({"minUptime": "2s"})) == HEALTHY
    assert ward.monitor.next_due() is None


def test_uptime_starts_anew_with_the_process(ward: Ward) -> None:
    ward.clock.advance(60)
    assert said(ward.look()) == HEALTHY
    ward.restart()
    assert said(ward.look()) == (HealthState.STARTING, "MinUptime")


def test_an_agent_we_did_not_start_is_as_old_as_its_process(ward: Ward) -> None:
    ward.clock.advance(60)
    assert said(ward.look({"minUptime": "30s"})) == HEALTHY


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
@pytest.mark.parametrize("kernel", [True, False])
def test_a_jump_of_the_clock_makes_nobody_old_or_young(ward: Ward, jump: float, kernel: bool) -> None:
    """Whether the driver's start times move with the wall clock or not."""
    assert said(ward.look({"minUptime": "10s"})) == (HealthState.STARTING, "MinUptime")
    (ward.jump if kernel else ward.clock.jump)(jump)
    ward.clock.advance(5)
    assert said(ward.look({"minUptime": "10s"})) == (HealthState.STARTING, "MinUptime")
    ward.clock.advance(5)
    assert said(ward.look({"minUptime": "10s"})) == HEALTHY
    (ward.jump if kernel else ward.clock.jump)(jump)
    assert said(ward.look({"minUptime": "10s"})) == HEALTHY


# -- what is there


def test_nothing_there(ward: Ward) -> None:
    health = ward.look(fields=None, started_at=None, reason="ProcessGone", message="pid 7 was killed by SIGKILL")
    assert health == Health(HealthState.UNHEALTHY, "ProcessGone", "pid 7 was killed by SIGKILL")
    subject = HealthTarget(ONE, None)
    assert said(ward.monitor.evaluate([subject])[ONE]) == (HealthState.UNHEALTHY, "NotRunning")


def test_suspended(ward: Ward) -> None:
    assert said(ward.look(state="Suspended", reason="Suspended")) == (HealthState.STUCK, "Suspended")


def test_what_the_driver_reports_counts(ward: Ward) -> None:
    ward.clock.advance(60)
    short = Health(HealthState.UNHEALTHY, "ReplicaMissing", "1 of 3 replicas are running")
    assert ward.look(health=short) == short


@pytest.mark.parametrize(("there", "state"), [(False, HealthState.STOPPED), (True, HealthState.STARTING)])
def test_dormant_agents_are_well_when_they_are_gone(ward: Ward, there: bool, state: HealthState) -> None:
    subject = HealthTarget(ONE, ward.seen() if there else ward.seen(fields=None), stopped=True)
    assert ward.monitor.evaluate([subject])[ONE].state is state


def test_a_driver_that_knows_no_start_time(ward: Ward) -> None:
    assert said(ward.look(started_at=None)) == HEALTHY


# -- probes


def spec_of(name: str, **more: Any) -> dict[str, Any]:
    probe = {"exec": {"command": ["ask"]}, "period": "5s", "timeout": "2s", "failureThreshold": 3, **more}
    return {**NO_UPTIME, "probes": {name: probe}}


READINESS, LIVENESS = spec_of("readiness"), spec_of("liveness")


def test_readiness_gates_ready(ward: Ward) -> None:
    ward.runner.ok = False
    first = ward.look(READINESS)
    assert said(first) == (HealthState.STARTING, "NotReadyYet")
    assert first.message == "the readiness probe has not passed yet: ask: exit code 1"
    assert ward.runner.asked == [(ONE, ("ask",), 2.0)]
    assert not first.restart
    ward.runner.ok = True
    assert said(ward.look(READINESS)) == (HealthState.STARTING, "NotReadyYet"), "a probe has a period"
    ward.clock.advance(0.5)
    assert said(ward.look(READINESS)) == HEALTHY


def test_readiness_is_lost_at_the_threshold_and_never_restarts(ward: Ward) -> None:
    ward.look(READINESS)
    ward.runner.ok = False
    found = []
    for _ in range(4):
        ward.clock.advance(5)
        found.append(ward.look(READINESS))
    assert [said(health) for health in found] == [
        HEALTHY,
        HEALTHY,
        *[(HealthState.UNHEALTHY, "ReadinessFailed")] * 2,
    ]
    assert "failed 4 times: ask: exit code 1" in found[-1].message
    assert not any(health.restart for health in found)
    ward.runner.ok = True
    ward.clock.advance(5)
    assert said(ward.look(READINESS)) == HEALTHY


def test_liveness_restarts_at_the_threshold(ward: Ward) -> None:
    ward.runner.ok = False
    found = []
    for _ in range(3):
        found.append(ward.look(LIVENESS))
        ward.clock.advance(5)
    assert [said(health) for health in found] == [UNPROVEN, UNPROVEN, (HealthState.UNHEALTHY, "LivenessFailed")]
    assert [health.restart for health in found] == [False, False, True]
    ward.restart()
    again = ward.look(LIVENESS)
    assert (*said(again), again.restart) == (*UNPROVEN, False), "failures of an earlier life do not count"


def test_an_agent_is_not_ready_before_its_liveness_probe_has_passed(ward: Ward) -> None:
    """It is asked often until then, but each period counts one failure."""
    ward.runner.ok = False
    for _ in range(9):
        assert said(ward.look(LIVENESS)) == UNPROVEN
        ward.clock.advance(0.5)
    assert len(ward.runner.asked) == 9
    ward.runner.ok = True
    assert said(ward.look(LIVENESS)) == HEALTHY
    ward.runner.ok = False
    ward.clock.advance(5)
    assert said(ward.look(LIVENESS)) == HEALTHY, "one failure of three is no reason for anything"


def test_one_success_starts_the_count_again(ward: Ward) -> None:
    for ok in (True, False, False, True, False, False):
        ward.runner.ok = ok
        health = ward.look(LIVENESS)
        ward.clock.advance(5)
    assert said(health) == HEALTHY


def test_a_probe_runs_once_per_period_however_often_we_look(ward: Ward) -> None:
    for _ in range(11):
        ward.look(LIVENESS)
        ward.clock.advance(1)
    assert len(ward.runner.asked) == 3
    assert ward.monitor.next_due() == pytest.approx(4)


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_jump_forgets_no_failure_and_runs_no_probe_early(ward: Ward, jump: float) -> None:
    ward.look(LIVENESS)
    ward.runner.ok = False
    ward.clock.advance(5)
    ward.look(LIVENESS)
    ward.jump(jump)
    assert said(ward.look(LIVENESS)) == HEALTHY
    assert len(ward.runner.asked) == 2
    for _ in range(2):
        ward.clock.advance(5)
        health = ward.look(LIVENESS)
    assert health.restart


def test_a_runtime_that_runs_no_commands_says_so(ward: Ward) -> None:
    subject = HealthTarget(ONE, ward.seen(), READINESS, executing=None)
    health = ward.monitor.evaluate([subject])[ONE]
    assert (health.reason, health.message) == (
        "NotReadyYet",
        "the readiness probe has not passed yet: this runtime cannot run commands",
    )


def test_a_runner_that_breaks_is_a_failed_probe_of_one_agent(ward: Ward) -> None:
    class Broken:
        def exec(
            self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS
        ) -> ExecResult:
            raise RuntimeError("bug")

    broken = HealthTarget(ONE, ward.seen(), READINESS, executing=Broken())
    sound = HealthTarget(TWO, replace(ward.seen(), key=runtime_key(TWO)), READINESS, executing=ward.runner)
    found = ward.monitor.evaluate([broken, sound])
    assert found[ONE].reason == "NotReadyYet"
    assert found[ONE].message.endswith("unexpected RuntimeError in the probe")
    assert said(found[TWO]) == HEALTHY


# -- heartbeat


def heartbeat(**more: str) -> dict[str, Any]:
    return {**NO_UPTIME, "heartbeat": {"staleAfter": "60s", "onStale": "Restart", **more}}


STALE = (HealthState.STUCK, "HeartbeatStale")


def test_a_heartbeat_that_stops_asks_for_a_restart(ward: Ward) -> None:
    ward.beat()
    assert said(ward.look(heartbeat())) == HEALTHY
    assert ward.monitor.next_due() == 60
    ward.clock.advance(60)
    assert said(ward.look(heartbeat())) == HEALTHY
    ward.clock.advance(1)
    health = ward.look(heartbeat())
    assert (*said(health), health.restart) == (*STALE, True)
    assert "no heartbeat for 61 s (limit 60 s)" in health.message
    ward.beat()
    assert said(ward.look(heartbeat())) == HEALTHY


def test_on_stale_report_only_reports(ward: Ward) -> None:
    ward.beat()
    ward.clock.advance(61)
    health = ward.look(heartbeat(onStale="Report"))
    assert (*said(health), health.restart) == (*STALE, False)


def test_a_tool_call_in_progress_is_never_cut_off(ward: Ward) -> None:
    ward.beat("crm.search", "mail.send")
    ward.clock.advance(15 * 60)
    health = ward.look(heartbeat())
    assert (*said(health), health.restart) == (HealthState.HEALTHY, "ToolCallInProgress", False)
    assert "crm.search, mail.send" in health.message
    ward.clock.advance(HOUR)
    assert not ward.look(heartbeat()).restart


TOO_LONG = (HealthState.STUCK, "ToolCallStuck")
SHORT = {"maxToolCall": "5m", "maxTurn": "10m"}


def test_a_tool_call_that_is_open_for_too_long_is_stuck_until_it_ends(ward: Ward) -> None:
    """Although the agent goes on beating: a thread of its own does that."""
    found = []
    for _ in range(11):
        ward.beat("crm.search")
        found.append(ward.look(heartbeat(**SHORT)))
        ward.clock.advance(30)
    assert {said(health) for health in found} == {HEALTHY}
    ward.beat("mail.send", "crm.search")
    health = ward.look(heartbeat(**SHORT))
    assert (*said(health), health.restart) == (*TOO_LONG, False)
    assert "tool call crm.search is open for more than 5 min" in health.message
    ward.beat("mail.send")
    assert said(ward.look(heartbeat(**SHORT))) == HEALTHY


def test_of_two_calls_of_one_name_the_younger_is_taken_to_be_open(ward: Ward) -> None:
    ward.beat("crm")
    ward.look(heartbeat(**SHORT))
    ward.clock.advance(200)
    ward.beat("crm", "crm")
    ward.look(heartbeat(**SHORT))
    ward.clock.advance(200)
    ward.beat("crm", "crm")
    assert said(ward.look(heartbeat(**SHORT))) == TOO_LONG, "one of the two is as old as that"
    ward.beat("crm")
    assert said(ward.look(heartbeat(**SHORT))) == HEALTHY


def test_a_turn_that_lasts_is_stuck_and_between_turns_none_is(ward: Ward) -> None:
    def look(turn: int | None) -> Health:
        ward.beats = (Heartbeat(ward.clock.now(), turn),)
        return ward.look(heartbeat(**SHORT))

    for turn in (None, 7):
        for _ in range(21):
            assert said(look(turn)) == HEALTHY
            ward.clock.advance(30)
    stuck = look(7)
    assert (*said(stuck), stuck.restart) == (HealthState.STUCK, "TurnStuck", False)
    assert said(look(8)) == HEALTHY


def test_it_is_looked_at_when_a_limit_is_reached(ward: Ward) -> None:
    ward.beats = (Heartbeat(ward.clock.now(), 1, ("crm",)),)
    ward.look(heartbeat(staleAfter="1h", **SHORT))
    assert ward.monitor.next_due() == 300


def test_how_long_a_call_is_open_outlives_us(ward: Ward, pool: Executor) -> None:
    """A new process takes over what was reported of this very process, and of no other one."""
    ward.beat("crm.search")
    health = ward.look(heartbeat(**SHORT))
    (report,) = health.progress
    assert report.calls == (OpenCall("crm.search", ward.clock.now()),)
    status = AgentStatus(ONE, True, Lifecycle.RUNNING, (), "c0ffee", progress=health.progress)
    ward.clock.advance(301)
    ward.beat("crm.search")
    ward.monitor = HealthMonitor(ward.clock, ProbePools(pool, pool), lambda: {ONE: status})
    assert said(ward.look(heartbeat(**SHORT))) == TOO_LONG
    ward.restart()
    ward.beat("crm.search")
    ward.monitor = HealthMonitor(ward.clock, ProbePools(pool, pool), lambda: {ONE: status})
    assert said(ward.look(heartbeat(**SHORT))) == HEALTHY


def test_an_agent_that_never_beats_is_as_stale_as_it_is_old(ward: Ward) -> None:
    ward.beats = (None,)
    ward.clock.advance(59)
    assert said(ward.look(heartbeat())) == HEALTHY
    ward.clock.advance(2)
    assert said(ward.look(heartbeat())) == STALE


def test_the_stalest_replica_decides_and_only_it_is_restarted(ward: Ward) -> None:
    now = ward.clock.now()
    ward.clock.advance(100)
    ward.beats = (Heartbeat(now + 95), Heartbeat(now + 10))
    health = ward.look(heartbeat())
    assert (*said(health), health.restart, health.instances) == (*STALE, True, ("1",))
    assert health.message.startswith("1: no heartbeat for")


def test_a_replica_at_work_neither_hides_one_that_hangs_nor_is_cut_off(ward: Ward) -> None:
    """Both are stale; one of them waits for a tool, the other does not, and needs its restart."""
    now = ward.clock.now()
    ward.clock.advance(300)
    ward.beats = (Heartbeat(now + 10, pending=("crm",)), Heartbeat(now + 100))
    health = ward.look(heartbeat())
    assert (*said(health), health.restart, health.instances) == (*STALE, True, ("1",))


def test_each_replica_answers_its_own_probe(ward: Ward) -> None:
    ward.clock.advance(60)
    ward.beats = (None, None, None)
    assert said(ward.look(LIVENESS)) == HEALTHY
    ward.runner.broken_instances = {"2"}
    found = []
    for _ in range(3):
        ward.clock.advance(5)
        found.append(ward.look(LIVENESS))
    assert [health.restart for health in found] == [False, False, True]
    assert found[-1].instances == ("2",)
    assert found[-1].message.startswith("2: liveness probe failed 3 times")


# -- replicas that follow one after the other


def test_the_next_replica_follows_when_those_before_it_are_ready(ward: Ward) -> None:
    """Also where an earlier spec was not well: what is to be replaced keeps none waiting."""
    ward.clock.advance(60)
    ward.beats = (None, None, None)
    ward.behind = {"1", "2"}
    ward.runner.broken_instances = {"0", "2"}
    waiting = ward.look(READINESS)
    assert said(waiting) == (HealthState.STARTING, "NotReadyYet")
    assert waiting.instances == ("0", "2")
    ward.runner.broken_instances = {"2"}
    ward.clock.advance(1)
    follows = ward.look(READINESS)
    assert said(follows) == (HealthState.STARTING, "ReplicasFollow")
    assert follows.instances == ("2",), "begin with the one that is not well"
    assert ward.monitor.due() == {ONE}, "at once"
    assert ward.look(READINESS).recheck_at != ward.clock.monotonic(), "but not again and again, should it be held"


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
@pytest.mark.parametrize("kernel", [True, False])
def test_a_jump_neither_ages_nor_rejuvenates_a_heartbeat(ward: Ward, jump: float, kernel: bool) -> None:
    ward.beat()
    ward.look(heartbeat())
    ward.clock.advance(30)
    (ward.jump if kernel else ward.clock.jump)(jump)
    assert said(ward.look(heartbeat())) == HEALTHY
    ward.clock.advance(29)
    assert said(ward.look(heartbeat())) == HEALTHY
    ward.clock.advance(2)
    assert said(ward.look(heartbeat())) == STALE


def test_a_heartbeat_written_just_before_a_jump_and_seen_after_it_is_young(ward: Ward) -> None:
    ward.beat()
    ward.look(heartbeat())
    ward.clock.advance(20)
    ward.beat()
    ward.clock.advance(1)
    ward.jump(HOUR)
    assert said(ward.look(heartbeat())) == HEALTHY
    ward.clock.advance(61)
    assert said(ward.look(heartbeat())) == STALE


def test_a_heartbeat_file_that_vanishes_is_no_news(ward: Ward) -> None:
    ward.clock.advance(HOUR)
    ward.beat()
    ward.look(heartbeat())
    ward.beats = (None,)
    ward.clock.advance(30)
    assert said(ward.look(heartbeat())) == HEALTHY
    ward.clock.advance(31)
    assert said(ward.look(heartbeat())) == STALE


def test_agents_that_left_are_not_looked_at_again(ward: Ward) -> None:
    ward.look(LIVENESS)
    ward.monitor.forget([ONE, TWO])
    assert ward.monitor.next_due() is None


events = st.lists(
    st.tuples(
        st.floats(0, 30),
        st.sampled_from([0.0, 0.0, HOUR, -HOUR, 10.0, -10.0]),
        st.sampled_from(["beat", "nothing", "nothing"]),
    ),
    max_size=12,
)


@given(events)
def test_only_time_that_passes_counts(steps: list[tuple[float, float, str]]) -> None:
    """Whatever the wall clock does between looks, a heartbeat is stale when it is older than the limit by the
    time that really passed, give or take what passed between two looks."""
    clock = FrozenClock()
    with Inline() as pool:
        ward = Ward(clock, pool)
        ward.beat()
        ward.look(heartbeat())
        written = clock.monotonic()
        for passed, jump, event in steps:
            clock.advance(passed)
            if event == "beat":
                ward.beat()
                written = clock.monotonic()
            ward.jump(jump)
            health = ward.look(heartbeat())
            age = clock.monotonic() - written
            if age > 60 + 30:
                assert said(health) == STALE
            elif age <= 60 - 30:
                assert said(health) == HEALTHY


def test_a_probe_that_is_no_longer_asked_for_is_never_due_again(ward: Ward) -> None:
    probes = {"readiness": {"exec": {"command": ["ok"]}, "period": "1s"}}
    ward.clock.advance(5)
    assert said(ward.look({"probes": probes})) == HEALTHY
    assert ward.monitor.next_due() is not None
    ward.clock.advance(5)
    assert said(ward.look({"probes": {}})) == HEALTHY
    assert ward.monitor.next_due() is None
