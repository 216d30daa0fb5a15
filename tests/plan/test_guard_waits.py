"""The guards that time releases: oscillation and the circuit breaker; and asks that people approve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.agent import Agent
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import AgentInstance, Base, Observation, Owner
from gitops_agent.model.outcome import Circuit
from gitops_agent.model.plan import Confidence, Decision, Plan, Verdict
from tests.plan import make

pytestmark = pytest.mark.unit

Member = tuple[Agent, Base, Observation]


def fleet(count: int, tenant: str = "acme", **options: Any) -> list[Member]:
    """Agents that run for long."""
    members = [make.running(f"{tenant}/bot-{number:03}", {"a": 1}, **options) for number in range(count)]
    return [(agent, replace(base, applied_at=make.NOW - 9999.0), seen) for agent, base, seen in members]


def verdict(plan: Plan, guard: str) -> Verdict:
    return next(each for each in plan.verdicts if each.guard == guard)


# -- oscillation


def repaired(moments: list[float], policy: Any = None, **options: Any) -> Plan:
    """The plan for an agent that died, and was brought back so many seconds ago."""
    declared, recorded, _ = make.running("acme/bot", {"a": 1})
    repairs = {recorded.key: [make.NOW - ago for ago in moments]}
    return make.plan(make.snapshot([declared], policy), [], [recorded], repairs=repairs, **options)


@pytest.mark.parametrize(
    ("moments", "policy", "holds"),
    [
        ([1.0] * 4, None, False),
        ([1.0] * 5, None, True),
        ([1.0] * 4 + [600.0], None, False),  # exactly a window ago is out
        ([1.0] * 4 + [599.0], None, True),
        ([1.0, 2.0], {"oscillation": {"repairs": 2}}, True),
        ([1.0, 61.0], {"oscillation": {"repairs": 2, "window": "1m"}}, False),
        ([1.0, 2.0], {"tenants": {"acme": {"oscillation": {"repairs": 2}}}}, True),
        ([1.0, 2.0], {"tenants": {"umbrella": {"oscillation": {"repairs": 2}}}}, False),
    ],
)
def test_a_resource_repaired_too_often_is_held(moments: list[float], policy: Any, holds: bool) -> None:
    plan = repaired(moments, policy)
    assert (plan.allowed == ()) is holds
    assert not verdict(plan, "oscillation").for_people, "time releases it"
    if holds:
        assert (plan.actions[0].confidence, plan.actions[0].decision) == (Confidence.MEDIUM, Decision.WAIT)


def test_repeated_drift_says_how_often_and_when_it_is_tried_again() -> None:
    plan = repaired([300.0, 200.0, 100.0, 50.0, 20.0, 10.0])
    (finding,) = plan.findings
    assert verdict(plan, "oscillation").due_at == {plan.actions[0].key: make.NOW + 400.0}
    assert (finding.severity, finding.code) == (Severity.WARNING, "RepeatedDrift")
    # Two of the six have to leave the window of ten minutes: the second one left 200 s ago.
    assert finding.summary.startswith("repaired 6 times within 10m")
    assert finding.summary.endswith("next try at 1970-01-12T13:53:20Z")
    for words in ("fewer than 5 repairs", "gitops-agent retry acme/bot", "gitops-agent explain acme/bot"):
        assert words in finding.detail
    again = make.NOW + 400.0
    assert repaired([300.0, 200.0, 100.0, 50.0, 20.0, 10.0], now=again - 1).allowed == ()
    assert repaired([300.0, 200.0, 100.0, 50.0, 20.0, 10.0], now=again).allowed != ()


def test_what_a_commit_asks_for_is_never_repeated_drift() -> None:
    _, recorded, seen = make.running("acme/bot", {"a": 1})
    repairs = {recorded.key: [make.NOW - 1.0] * 99}
    plan = make.plan(make.snapshot([make.agent("acme/bot", {"a": 2})]), [seen], [recorded], repairs=repairs)
    assert len(plan.allowed) == 1


# -- circuit breaker


def with_circuit(open_until: float | None, **options: Any) -> Plan:
    members = fleet(4)
    circuit = Circuit("fake", failing=tuple("abcde"), open_until=open_until, trips=1, error="no answer.")
    bases = [b for _, b, _ in members]
    return make.plan(make.snapshot([a for a, *_ in members]), [], bases, circuits={"fake": circuit}, **options)


@pytest.mark.parametrize(
    ("open_until", "count"),
    [
        (None, 4),
        (make.NOW + 30, 0),
        (make.NOW + 0.001, 0),
        (make.NOW, 1),  # half open: one may prove that it works again
        (make.NOW - 9999, 1),
        (make.NOW + 9999, 1),  # written down before the wall clock was set back
    ],
)
def test_a_driver_rests_and_then_proves_itself_with_one_action(open_until: float | None, count: int) -> None:
    plan = with_circuit(open_until)
    assert len(plan.allowed) == count
    assert plan.allowed == plan.actions[:count]
    if count < 4:
        (finding,) = plan.findings
        assert (finding.severity, finding.code, finding.address) == (
            Severity.WARNING,
            "BreakerOpen",
            "driver fake",
        )
        assert "5 agents failed in a row" in finding.summary
        assert f"{4 - count} actions wait. Last error: no answer." in finding.detail
        assert {action.decision for action in plan.actions if action.key in plan.held} == {Decision.WAIT}


def test_one_action_at_a_time_also_over_several_passes() -> None:
    assert with_circuit(make.NOW, busy=frozenset({AgentKey("acme", "bot-000")})).allowed == ()


def two_drivers(circuits: dict[str, Circuit]) -> Plan:
    """Two agents, each with a config of one driver and a runtime of another; all of it is gone."""
    agents, bases = [], []
    for name in ("t/a", "t/b"):
        config, runtime = make.key(name, "config", "x"), make.key(name)
        resources = [make.resource(config, {"a": 1}), replace(make.resource(runtime, {"a": 1}), driver="process")]
        agents.append(make.agent(name, resources))
        bases += [make.base(config, {"a": 1}), replace(make.base(runtime, {"a": 1}), driver="process")]
    return make.plan(make.snapshot(agents), [], bases, circuits=circuits)


def test_other_drivers_go_on_but_no_step_overtakes_a_held_one() -> None:
    resting, half = (
        Circuit("process", tuple("abcde"), make.NOW + 9, 1),
        Circuit("process", tuple("abcde"), make.NOW - 9, 1),
    )
    configs = ["t/a:config/x", "t/b:config/x"]
    assert [str(action.key) for action in two_drivers({"process": resting}).allowed] == configs
    one = ["t/a:config/x", "t/a:runtime/process", "t/b:config/x"]
    assert [str(action.key) for action in two_drivers({"process": half}).allowed] == one
    both = {"process": half, "fake": replace(half, driver="fake")}
    assert [str(action.key) for action in two_drivers(both).allowed] == one[:2]
    shut = {"process": half, "fake": replace(resting, driver="fake")}
    assert two_drivers(shut).allowed == ()


def test_the_record_is_kept_whatever_a_driver_does() -> None:
    declared, _, seen = make.running("acme/bot", {"a": 1})
    circuits = {"fake": Circuit("fake", tuple("abcde"), make.NOW + 9, 1)}
    assert len(make.plan(make.snapshot([declared]), [seen], circuits=circuits).allowed) == 1


# -- asks


def asking(**options: Any) -> Plan:
    """The plan for something that is gone and must not be made twice."""
    key = make.key("acme/bot")
    agent = make.agent("acme/bot", [make.resource(key, {"a": 1}, idempotent=False)])
    return make.plan(make.snapshot([agent]), [], [make.base(key, {"a": 1})], **options)


def test_an_ask_names_the_plan_to_approve_and_is_done_once_people_did() -> None:
    plan = asking()
    (action,) = plan.actions
    assert action.decision is Decision.ASK
    assert f"gitops-agent approve {plan.digest}" in plan.findings[0].detail
    assert asking(approved={"0" * 32}).allowed == ()
    approved = asking(approved={action.digest})
    assert [each.decision for each in approved.allowed] == [Decision.REPAIR]
    assert approved.findings == ()
    assert approved.digest == plan.digest


def test_an_approved_repair_on_old_evidence_is_void_when_live_moves() -> None:
    declared, recorded, seen = make.running("acme/bot", {"a": 1})

    def look(value: int, **options: Any) -> Plan:
        old = replace(seen, fields=Fields.of({"a": value}), observed_at=make.NOW - 999)
        return make.plan(make.snapshot([declared]), [old], [recorded], **options)

    approved = {action.digest for action in look(5).actions}
    assert len(look(5, approved=approved).allowed) == 1
    assert look(6, approved=approved).allowed == ()


@pytest.mark.parametrize("owner", [Owner.NONE, Owner.OTHER])
def test_what_is_not_clearly_ours_can_not_be_approved(owner: Owner) -> None:
    declared, recorded, _ = make.running("acme/bot", {"a": 1})
    foreign = make.live(recorded.key, {"a": 2}, owner)
    plan = make.plan(make.snapshot([declared]), [foreign], [recorded])
    approved = {action.digest for action in plan.actions}
    again = make.plan(make.snapshot([declared]), [foreign], [recorded], approved=approved)
    assert len(again.actions) == 1
    assert again.allowed == ()


# -- what is not in Git


def started(*ages: float | None) -> tuple[AgentInstance, ...]:
    return tuple(AgentInstance(str(n), None if age is None else make.NOW - age) for n, age in enumerate(ages))


@pytest.mark.parametrize(
    ("ages", "policy", "ends"),
    [
        ((601.0,), None, True),
        ((599.0,), None, False),
        ((601.0, 3.0), None, False),
        ((None,), None, False),  # of unknown age
        ((3.0,), {"orphans": {"minAge": "2s"}}, True),
        ((601.0,), {"tenants": {"acme": {"orphans": {"minAge": "1h"}}}}, False),
    ],
)
def test_an_orphan_is_ended_with_an_approval_and_only_when_it_is_old_enough(
    ages: tuple[float | None, ...], policy: Any, ends: bool
) -> None:
    declared, recorded, seen = make.running("acme/bot", {"a": 1})
    orphan = make.live(make.key("acme/orphan"), {"a": 1}, instances=started(*ages))

    def look(**options: Any) -> Plan:
        return make.plan(make.snapshot([declared], policy), [seen, orphan], [recorded], **options)

    plan = look()
    assert plan.allowed == (), "never by itself"
    (finding,) = plan.findings
    assert f"gitops-agent approve {plan.digest}" in finding.detail
    approved = {action.digest for action in plan.actions}
    assert [action.verb.value for action in look(approved=approved).allowed] == (["delete"] if ends else [])


@pytest.mark.parametrize(("age", "decision"), [(601.0, Decision.REPAIR), (599.0, Decision.QUARANTINE)])
def test_an_extra_replica_is_ended_when_it_is_old_enough(age: float, decision: Decision) -> None:
    declared, recorded, _ = make.running("acme/bot", {"replicas": 1})
    seen = make.live(recorded.key, {"replicas": 2}, reason="ExtraReplica", extra=started(age), authoritative=True)
    plan = make.plan(make.snapshot([declared]), [seen], [recorded])
    assert [action.decision for action in plan.actions] == [decision]
    if decision is Decision.QUARANTINE:
        assert "older than orphans.minAge" in plan.findings[0].detail
