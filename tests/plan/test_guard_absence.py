"""Agents that are gone together come back in waves: one first, then so many at a time; or acting freezes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.agent import Agent
from gitops_agent.model.finding import Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.pace import MassReturn
from gitops_agent.model.plan import Decision, Effect, Plan, Verdict
from tests.plan import make

pytestmark = pytest.mark.unit

Member = tuple[Agent, Base, Observation]
ACTIVE = 5000.0


def fleet(count: int, tenant: str = "acme", **options: Any) -> list[Member]:
    """Agents that run for long."""
    members = [make.running(f"{tenant}/bot-{number:03}", {"a": 1}, **options) for number in range(count)]
    return [(agent, replace(base, applied_at=make.NOW - 9999.0), seen) for agent, base, seen in members]


def key(number: int, tenant: str = "acme") -> AgentKey:
    return AgentKey(tenant, f"bot-{number:03}")


def returning(back: int, seconds_ago: float = 5.0, *, proven: bool = False) -> MassReturn:
    """The first agents were let go a while ago, and others wait."""
    released = {key(number): ACTIVE - seconds_ago for number in range(back)}
    return MassReturn(released, waiting=frozenset({key(7)}), proven=proven)


def plan_of(
    members: list[Member],
    gone: int,
    policy: Any = None,
    reason: str = "ProcessGone",
    back: int = 0,
    **options: Any,
) -> Plan:
    """The plan when the first so many are gone; the first of them (``back``) are there again."""
    seen = [
        make.live(b.key, None, reason=reason) if back <= number < gone else s
        for number, (_, b, s) in enumerate(members)
    ]
    options.setdefault("active", ACTIVE)
    return make.plan(make.snapshot([a for a, *_ in members], policy), seen, [b for _, b, _ in members], **options)


def verdict(plan: Plan, guard: str = "absence") -> Verdict:
    return next(each for each in plan.verdicts if each.guard == guard)


def allowed(plan: Plan) -> list[str]:
    return [str(action.key.agent) for action in plan.allowed]


@pytest.mark.parametrize(("gone", "count"), [(1, 1), (4, 4), (5, 1), (8, 1), (12, 1)])
def test_few_come_back_at_once_and_of_many_one_first(gone: int, count: int) -> None:
    plan = plan_of(fleet(12), gone)
    assert len(plan.allowed) == count
    assert not plan.blocked
    assert verdict(plan).freeze == ""
    assert {action.decision for action in plan.actions if action.key in plan.held} <= {Decision.WAIT}


def test_the_finding_says_how_many_and_what_comes_next() -> None:
    (finding,) = plan_of(fleet(12), 8).findings
    assert (finding.severity, finding.code, finding.address) == (Severity.WARNING, "MassAbsence", "*")
    assert (
        finding.summary == "8 of 12 agents of the fleet were gone at once; 7 agents wait for a turn to come back"
    )
    for words in ("massDrift allows fewer than 5", "One comes back first", "hostRestart.atOnce is 10"):
        assert words in finding.detail


@pytest.mark.parametrize("reason", ["ProcessGone", "HostRestarted"])
@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        (0, 0),  # the first is not Ready yet
        (1, 10),
    ],
)
def test_the_others_follow_when_the_first_is_ready(reason: str, ready: int, expected: int) -> None:
    known = frozenset(key(number) for number in range(ready))
    plan = plan_of(fleet(25), 25, reason=reason, back=1, returning=returning(1), ready=known)
    assert len(plan.allowed) == expected


@pytest.mark.parametrize(("ready", "expected"), [(1, 1), (5, 5), (10, 10)])
def test_so_many_at_a_time_once_one_has_proven_it(ready: int, expected: int) -> None:
    known = frozenset(key(number) for number in range(ready))
    plan = plan_of(fleet(25), 25, back=10, returning=returning(10, proven=True), ready=known)
    assert len(plan.allowed) == expected


def test_the_tail_is_bounded_like_the_head() -> None:
    """Few are left, but they belong to many."""
    members, known = fleet(25), frozenset(key(number) for number in range(12))
    plan = plan_of(
        members, 25, {"hostRestart": {"atOnce": 2}}, back=22, returning=returning(22, proven=True), ready=known
    )
    assert plan.allowed == ()
    assert len(plan_of(members, 25, back=22).allowed) == 3


def test_one_that_never_becomes_ready_keeps_the_others_waiting_no_longer_than_its_time() -> None:
    members, known = fleet(25, health_timeout=4.0), frozenset({key(0)})
    assert len(plan_of(members, 25, back=10, returning=returning(10, 3.9), ready=known).allowed) == 1
    assert len(plan_of(members, 25, back=10, returning=returning(10, 4.0), ready=known).allowed) == 10


def test_acting_freezes_when_the_first_does_not_become_ready_in_its_time() -> None:
    members = fleet(12, health_timeout=4.0)
    assert plan_of(members, 8, back=1, returning=returning(1, 3.9)).allowed == ()
    plan = plan_of(members, 8, back=1, returning=returning(1, 4.0))
    assert plan.allowed == ()
    found = verdict(plan)
    assert (found.freeze, found.for_people) == ("*", True)
    (finding,) = found.findings
    assert finding.code == "MassAbsence"
    assert finding.summary.endswith("the first to come back did not become Ready: acme/bot-000")
    for words in (
        "gitops-agent explain acme/bot-000",
        "gitops-agent unfreeze --scope '*'",
        f"gitops-agent approve {plan.digest}",
    ):
        assert words in finding.detail
    approved = frozenset(action.digest for action in plan.actions)
    again = plan_of(members, 8, back=1, approved=approved)
    assert len(again.allowed) == 7, "people have looked"


def test_the_first_has_another_try_while_its_time_lasts_and_no_other_takes_its_place() -> None:
    plan = plan_of(fleet(12), 8, returning=MassReturn({key(3): ACTIVE - 5.0}))
    assert allowed(plan) == ["acme/bot-003"]


def test_one_that_is_known_to_fail_is_not_the_first() -> None:
    members = fleet(12)
    attempts = {members[0][1].key: Attempt(3, make.NOW - 1, "died again")}
    assert allowed(plan_of(members, 8, attempts=attempts)) == ["acme/bot-001"]


def test_many_of_a_tenant_bind_the_tenant_alone() -> None:
    members = [*fleet(5), *fleet(95, "umbrella")]
    gone = {agent.key for agent, *_ in (*members[:5], *members[5:8])}
    seen = [make.live(b.key, None, reason="ProcessGone") if b.key.agent in gone else s for _, b, s in members]
    plan = make.plan(make.snapshot([a for a, *_ in members]), seen, [b for _, b, _ in members])
    assert allowed(plan) == ["acme/bot-000", "umbrella/bot-000", "umbrella/bot-001", "umbrella/bot-002"]


def test_a_scoped_pass_counts_what_was_gone_elsewhere_and_what_was_just_brought_back() -> None:
    members, scope = fleet(12), frozenset({key(2)})
    seen = [make.live(members[2][1].key, None, reason="ProcessGone")]
    desired, bases = make.snapshot([a for a, *_ in members]), [b for _, b, _ in members]
    recent = {key(number): make.NOW - 2.0 for number in (0, 1)}

    def scoped(**options: Any) -> Plan:
        return make.plan(desired, seen, bases, scope=scope, active=ACTIVE, **options)

    elsewhere = frozenset({key(3), key(4)})
    assert len(scoped(gone=elsewhere).allowed) == 1
    both = {"gone": elsewhere, "recently_repaired": lambda absent: recent if absent else {}}
    assert scoped(**both).allowed == (), "the two before it are the first"
    assert len(scoped(**both, ready=frozenset({key(0)})).allowed) == 1


def test_after_a_reboot_few_come_back_without_a_first() -> None:
    plan = plan_of(fleet(30), 4, {"hostRestart": {"atOnce": 3}}, "HostRestarted")
    assert len(plan.allowed) == 3
    (finding,) = plan.findings
    assert (finding.severity, finding.code) == (Severity.INFO, "HostRestarted")
    assert finding.summary == "the host was restarted; 1 agent waits for a turn to come back"
    assert not verdict(plan).for_people


def test_a_tenant_may_come_back_more_slowly() -> None:
    members = [*fleet(10), *fleet(10, "umbrella")]
    policy = {"hostRestart": {"atOnce": 6}, "tenants": {"acme": {"hostRestart": {"atOnce": 2}}}}
    back = allowed(plan_of(members, 20, policy, returning=returning(0, proven=True)))
    assert [agent.split("/")[0] for agent in back] == ["acme"] * 2 + ["umbrella"] * 4


def test_where_the_policy_freezes_absence_nothing_comes_back() -> None:
    plan = plan_of(fleet(12), 8, {"massDrift": {"absence": "Freeze"}})
    assert plan.allowed == ()
    assert verdict(plan, "mass_drift").freeze == "*"
    assert verdict(plan).effect is Effect.PASS
