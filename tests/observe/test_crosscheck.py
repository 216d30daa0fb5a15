"""Each source lies in turn about an agent that is alive: one lie repairs nothing, two sources that agree do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.agent import Agent, Origin, Resource
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.observation import Observation
from gitops_agent.model.plan import Action, Confidence, Decision, Verb
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import Health, HealthState
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PlanContext
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.faults import (
    Lie,
    LyingExecutor,
    hears_always,
    hears_until,
    says_running,
    says_suspended,
)
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key
from tests.pipeline.world import Inline
from tests.reconcile.make import ONE, SHA, base

from .ward import HEALTHY, NO_UPTIME, Ward, said

pytestmark = pytest.mark.unit
HOUR = 3600.0
BEATS = {"heartbeat": {"staleAfter": "60s", "onStale": "Restart"}}
DISAGREE = (HealthState.HEALTHY, "SourcesDisagree")
NEVER_READY = (HealthState.STUCK, "SourcesDisagree")


def asks(*names: str, **more: Any) -> dict[str, Any]:
    words = {"liveness": "alive", "readiness": "ready"}
    probes = {name: {"exec": {"command": [words[name]]}, "period": "10s"} for name in names}
    return {**NO_UPTIME, "probes": probes, **more}


ALL = asks("liveness", "readiness", **BEATS)


CATALOG = Plugins([MemoryDriver().plugin]).catalog


class Case(Ward):
    """An agent that is well, beats and answers, as the sources present it, and the plan that follows."""

    def __init__(self) -> None:
        super().__init__(FrozenClock(), Inline())
        self.lies: list[Lie] = []
        self.hangs = False
        self.stopped = False

    def lie(self, *lies: Lie, **probes: bool) -> None:
        self.lies, self.ask = list(lies), LyingExecutor(self.runner, probes)

    def observed(self) -> Observation:
        if not (self.hangs or self.stopped):
            self.beat()
        self.runner.ok = not (self.hangs or self.stopped)
        seen: Sequence[Observation] = [self.seen()]
        for lie in [says_suspended] * self.stopped + self.lies:
            seen = lie(seen)
        return seen[0]

    def passes(self, spec: dict[str, Any], minutes: float = 5) -> tuple[Health, list[Action]]:
        """Passes every few seconds for a while: the last verdict, and the last plan that was not empty."""
        actions: list[Action] = []
        for _ in range(int(minutes * 60 / 5)):
            self.clock.advance(5)
            seen = self.observed()
            health = self.judge(seen, spec)
            actions = self.plan(seen, health) or actions
            if any(action.decision is Decision.REPAIR for action in actions):
                break
        return health, actions

    def plan(self, seen: Observation, health: Health) -> list[Action]:
        assert seen.fields is not None
        runtime = Resource(runtime_key(ONE), "memory", seen.fields)
        agent = Agent(ONE, Origin("one.yaml", 1, "b"), (runtime,))
        snapshot = Snapshot(Revision(SHA, "t", (), "", 0, 0, ""), {ONE: agent}, PolicySpec())
        known = base(runtime.key, seen.fields, applied_at=self.clock.now() - 1000)
        context = PlanContext(now=self.clock.now(), snapshot=snapshot, bases={runtime.key: known}, catalog=CATALOG)
        return list(build(snapshot, [seen], context, {ONE: health}).actions)


@pytest.fixture
def case() -> Case:
    made = Case()
    health, actions = made.passes(ALL, minutes=0.5)
    assert (said(health), actions) == (HEALTHY, [])
    return made


def repairs(actions: Sequence[Action]) -> list[Verb]:
    return [action.verb for action in actions if action.decision is Decision.REPAIR]


# -- one lies, and the agent is well


def test_the_driver_lies(case: Case) -> None:
    case.lie(says_suspended)
    health, actions = case.passes(ALL)
    assert said(health) == NEVER_READY, "whatever its probes answer"
    assert health.disputes == "Suspended"
    assert [(a.reason, a.decision, a.confidence) for a in actions] == [
        ("SourcesDisagree", Decision.ALERT, Confidence.LOW)
    ]
    for source in (
        "memory driver: pid 7 is suspended",
        "heartbeat: written",
        "liveness probe: passes",
        "readiness",
    ):
        assert source in health.message


@pytest.mark.parametrize("probes", [{"alive": False}, {"ready": False}])
def test_a_probe_lies_that_it_is_dead(case: Case, probes: dict[str, bool]) -> None:
    case.lie(**probes)
    health, actions = case.passes(ALL)
    assert actions == []
    assert not health.restart


def test_a_liveness_probe_that_is_outvoted_is_named(case: Case) -> None:
    case.lie(alive=False)
    health, _ = case.passes(ALL)
    assert said(health) == DISAGREE, "Ready is for readiness to say"
    assert "liveness probe: fails (alive: exit code 1)" in health.message
    assert "heartbeat: written within 60 s" in health.message
    assert (health.agree, health.oppose) == (1, 2)


def test_the_heartbeat_lies_that_it_is_stale(case: Case) -> None:
    case.lie(hears_until(case.clock.now()))
    health, actions = case.passes(ALL)
    assert (said(health), actions) == (DISAGREE, [])
    assert health.disputes == "HeartbeatStale"


@pytest.mark.parametrize(
    "lie",
    [{"lies": [says_running]}, {"alive": True}, {"ready": True}, {"lies": ["always"]}],
    ids=["driver", "liveness", "readiness", "heartbeat"],
)
def test_one_that_lies_that_it_is_well_saves_nobody(case: Case, lie: dict[str, Any]) -> None:
    """The agent hangs: two others agree on it."""
    lies = [hears_always(case.clock) if each == "always" else each for each in lie.pop("lies", [])]
    case.lie(*lies, **lie)
    case.hangs = True
    health, actions = case.passes(ALL)
    assert repairs(actions) == [Verb.RESTART]
    assert health.agree >= 2
    told = {evidence.source for evidence in actions[0].evidence}
    assert told >= {"heartbeat", "liveness probe", "readiness probe"}


# -- a tie, and nobody else to ask


@pytest.mark.parametrize(
    ("spec", "lie"),
    [
        (asks("liveness", **BEATS), {"alive": False}),
        (asks("liveness", "readiness"), {"alive": False}),
        (asks("readiness"), {"lies": [says_suspended]}),
        (BEATS | NO_UPTIME, {"lies": [says_suspended]}),
    ],
)
def test_a_tie_repairs_nothing_and_says_so(spec: dict[str, Any], lie: dict[str, Any]) -> None:
    case = Case()
    case.passes(spec, minutes=0.5)
    case.lie(*lie.pop("lies", ()), **lie)
    health, actions = case.passes(spec)
    assert repairs(actions) == []
    assert said(health) == (NEVER_READY if health.disputes == "Suspended" else DISAGREE)
    assert health.agree == health.oppose == 1
    assert all(action.decision is Decision.ALERT for action in actions), "people are waited for, not time"
    assert "not repaired, because the sources disagree" in health.message


def test_a_heartbeat_from_before_it_was_suspended_does_not_keep_an_agent_from_being_resumed() -> None:
    case = Case()
    spec = BEATS | NO_UPTIME
    case.passes(spec, minutes=0.5)
    case.stopped = True
    since = case.clock.now()
    health, actions = case.passes(spec)
    assert (said(health), repairs(actions)) == ((HealthState.STUCK, "Suspended"), [Verb.UPDATE])
    assert case.clock.now() - since == 5, "the first look"
    assert {"heartbeat", "memory driver"} <= {evidence.source for evidence in actions[0].evidence}


def test_with_probes_a_suspended_agent_is_resumed_at_once(case: Case) -> None:
    """They are asked now, long before their period has passed, and do not answer."""
    case.stopped = True
    before = case.clock.now()
    _, actions = case.passes(ALL)
    assert repairs(actions) == [Verb.UPDATE]
    assert case.clock.now() - before == 5


@pytest.mark.parametrize("sign", ["hangs", "stopped"])
def test_an_accused_agent_is_asked_now_and_not_when_its_probe_is_due(sign: str) -> None:
    spec = asks("liveness", "readiness", **BEATS)
    for probe in spec["probes"].values():
        probe["period"] = "1h"
    case = Case()
    case.passes(spec, minutes=0.5)
    asked = len(case.runner.asked)
    setattr(case, sign, True)
    _, actions = case.passes(spec)
    assert len(repairs(actions)) == 1
    assert len(case.runner.asked) == asked + 2


def test_a_probe_that_never_passed_as_it_is_now_defined_supports_no_accusation(case: Case) -> None:
    """A typo in readiness and a lie of liveness: one source is wrong, the other is not heard."""
    spec = asks("liveness", "readiness", **BEATS)
    spec["probes"]["readiness"]["exec"]["command"] = ["raedy"]
    case.lie(alive=False, raedy=False)
    health, actions = case.passes(spec)
    assert (health.state, health.reason, actions) == (HealthState.STARTING, "SourcesDisagree", [])
    assert "readiness probe: has never passed as it is now defined" in health.message


def test_an_accuser_may_change_its_mind(case: Case) -> None:
    """The restart waits for something; when the agent answers again, nobody speaks of it any more."""
    case.lie(alive=False)
    case.passes(asks("liveness"))
    case.lie()
    case.clock.advance(1)
    assert said(case.judge(case.observed(), asks("liveness"))) == HEALTHY


# -- alone it is believed


@pytest.mark.parametrize(
    ("spec", "verb"),
    [(asks("liveness"), Verb.RESTART), (BEATS | NO_UPTIME, Verb.RESTART), (NO_UPTIME, Verb.UPDATE)],
    ids=["liveness", "heartbeat", "driver"],
)
def test_what_the_author_asked_for_alone_is_believed(spec: dict[str, Any], verb: Verb) -> None:
    case = Case()
    case.passes(spec, minutes=0.5)
    case.hangs = verb is Verb.RESTART
    case.stopped = verb is Verb.UPDATE
    _, actions = case.passes(spec)
    assert repairs(actions) == [verb]


def test_readiness_alone_never_restarts(case: Case) -> None:
    case.hangs = True
    health, actions = case.passes(asks("readiness"))
    assert (said(health), actions) == ((HealthState.UNHEALTHY, "ReadinessFailed"), [])


def test_a_dispute_hides_no_loss_of_readiness(case: Case) -> None:
    """Two against two: nothing is repaired, and the agent is not Ready, because its readiness says so."""
    case.lie(says_suspended, ready=False)
    health, actions = case.passes(ALL)
    assert said(health) == (HealthState.UNHEALTHY, "SourcesDisagree")
    assert (health.agree, health.oppose, repairs(actions)) == (2, 2, [])


def test_the_driver_alone_decides_that_it_is_gone(case: Case) -> None:
    case.lie(alive=True, ready=True)
    gone = replace(case.observed(), fields=None, state="Missing", reason="ProcessGone", instances=())
    health = case.judge(gone, ALL)
    assert said(health) == (HealthState.UNHEALTHY, "ProcessGone")


# -- tool calls


def test_a_tool_call_in_progress_is_cut_off_only_by_two_that_agree() -> None:
    case = Case()
    spec = asks("liveness", "readiness", **BEATS)
    case.passes(spec, minutes=0.5)
    case.hangs = True
    case.beat("crm.search")
    case.lie(ready=True)
    health, actions = case.passes(spec)
    assert (*said(health), actions) == (*DISAGREE, [])
    assert "crm.search" in health.message
    case.lie()
    health, actions = case.passes(spec)
    assert repairs(actions) == [Verb.RESTART]


def test_a_tool_call_in_progress_keeps_nobody_from_being_resumed() -> None:
    case = Case()
    case.passes(BEATS | NO_UPTIME, minutes=0.5)
    case.stopped = True
    case.beat("crm.search")
    _, actions = case.passes(BEATS | NO_UPTIME)
    assert repairs(actions) == [Verb.UPDATE]


# -- clocks


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
@pytest.mark.parametrize("spec", [ALL, BEATS | NO_UPTIME, asks("liveness")], ids=["all", "heartbeat", "liveness"])
def test_a_clock_that_jumps_repairs_nothing(spec: dict[str, Any], jump: float) -> None:
    case = Case()
    case.passes(spec, minutes=0.5)
    for _ in range(2):
        case.jump(jump)
        health, actions = case.passes(spec, minutes=2)
        assert (said(health), actions) == (HEALTHY, [])


SOURCES = ("driver", "heartbeat", "alive", "ready")


@given(st.sets(st.sampled_from(SOURCES)), st.sampled_from([0.0, HOUR, -HOUR]))
def test_a_minority_of_liars_never_repairs_and_a_majority_always_does(liars: set[str], jump: float) -> None:
    """Four sources: one liar is outvoted, two make a tie, three are believed. Readiness alone accuses nobody."""
    case = Case()
    case.passes(ALL, minutes=0.5)
    lies = [says_suspended] * ("driver" in liars) + [hears_until(case.clock.now())] * ("heartbeat" in liars)
    case.lie(*lies, **{name: False for name in ("alive", "ready") if name in liars})
    case.jump(jump)
    _, actions = case.passes(ALL, minutes=3)
    # The driver takes part only when it has something to say: without it three are left.
    needed = 3 if "driver" in liars else 2
    assert bool(repairs(actions)) == (len(liars) >= needed)
