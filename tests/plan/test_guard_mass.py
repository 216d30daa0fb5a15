"""The guards that count agents: approvals of a mass delete, mass change, mass drift, and trees that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.agent import Agent, Mode, Pause
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Severity
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Decision, Effect, Plan, Verdict
from gitops_agent.model.rollout import FailedTree
from tests.plan import make

pytestmark = pytest.mark.unit

Member = tuple[Agent, Base, Observation]


def fleet(count: int, tenant: str = "acme", **options: Any) -> list[Member]:
    return [make.running(f"{tenant}/bot-{number:03}", {"a": 1}, **options) for number in range(count)]


def verdict(plan: Plan, guard: str) -> Verdict:
    return next(each for each in plan.verdicts if each.guard == guard)


def digests(plan: Plan) -> frozenset[str]:
    return frozenset(action.digest for action in plan.actions)


# -- mass delete


def without(members: list[Member], lost: int, **options: Any) -> Plan:
    """The plan of a commit that drops the first agents."""
    desired = make.snapshot([declared for declared, *_ in members[lost:]])
    return make.plan(desired, [seen for *_, seen in members], [base for _, base, _ in members], **options)


def test_an_approved_mass_delete_goes_through() -> None:
    members = fleet(10)
    blocked = without(members, 6)
    assert blocked.blocked
    plan = without(members, 6, approved=digests(blocked))
    assert not plan.blocked
    assert len(plan.allowed) == 6


def test_the_finding_names_the_number_the_agents_the_digest_and_every_way_out() -> None:
    plan = without(fleet(30), 25)
    finding = verdict(plan, "mass_delete").findings[0]
    assert finding.summary == "25 of 30 agents of the fleet would be stopped or deleted"
    assert "at most 30 % of 30" in finding.detail
    assert "acme/bot-000, " in finding.detail
    assert "acme/bot-019 and 5 more" in finding.detail
    for way_out in (
        f"gitops-agent approve {plan.digest}",
        f'git notes --ref=gitops-agent-approvals add -m "Gitops-Approve: {plan.digest}" {plan.commit[:10]}',
        f'the trailer "Gitops-Approve: {plan.digest}"',
        "split the commit",
        "gitops-agent rollback",
    ):
        assert way_out in finding.detail


def test_one_action_that_nobody_approved_blocks_the_whole_commit() -> None:
    members = fleet(10)
    approved = digests(without(members, 6)) - {without(members, 6).actions[0].digest}
    plan = without(members, 6, approved=approved)
    assert plan.blocked
    assert plan.allowed == ()


def test_an_approval_is_void_once_live_has_moved() -> None:
    members = fleet(10)
    approved = digests(without(members, 6))
    moved = [(a, b, make.live(b.key, {"a": 7}) if n == 0 else seen) for n, (a, b, seen) in enumerate(members)]
    assert without(moved, 6, approved=approved).blocked


def test_an_approval_outlives_a_crash_in_the_middle() -> None:
    members = fleet(10)
    approved = digests(without(members, 6))
    plan = without(members[3:], 3, approved=approved)  # three of them are gone already
    assert not plan.blocked
    assert len(plan.allowed) == 3


def test_a_scoped_pass_needs_the_approval_of_what_it_would_do_and_no_more() -> None:
    members = fleet(10)
    scope = frozenset({members[0][0].key})
    approved = {action.digest for action in without(members, 6).actions if action.key.agent in scope}
    assert without(members, 6, scope=scope).blocked
    plan = make.plan(
        make.snapshot([declared for declared, *_ in members[6:]]),
        [members[0][2]],
        [base for _, base, _ in members],
        scope=scope,
        approved=approved,
    )
    assert not plan.blocked
    assert len(plan.allowed) == 1


@pytest.mark.parametrize("in_scope", [True, False])
def test_what_a_blind_driver_hides_was_in_no_plan_that_anybody_approved(in_scope: bool) -> None:
    members = fleet(10)
    approved = digests(without(members, 6))
    hidden = [replace(base, driver="asleep") if n == 0 else base for n, (_, base, _) in enumerate(members)]
    scope = frozenset(declared.key for declared, *_ in members[0 if in_scope else 1 :])
    plan = make.plan(
        make.snapshot([declared for declared, *_ in members[6:]]),
        [seen for *_, seen in members[1:]],
        hidden,
        unreachable=frozenset({"asleep"}),
        approved=approved,
        scope=scope,
    )
    assert plan.blocked is in_scope


def test_an_empty_source_can_not_be_approved() -> None:
    members = fleet(2)
    plan = without(members, 2)
    assert without(members, 2, approved=digests(plan)).blocked


# -- mass change


def changed(members: list[Member], count: int, policy: Any, **options: Any) -> Plan:
    """The plan of a commit that changes the first agents."""
    new = [make.agent(str(declared.key), {"a": 2}) for declared, *_ in members[:count]]
    desired = make.snapshot([*new, *(declared for declared, *_ in members[count:])], policy)
    return make.plan(desired, [seen for *_, seen in members], [base for _, base, _ in members], **options)


LIMIT = {"massChange": {"min": 3, "ratio": 0.5}}


@pytest.mark.parametrize(
    ("policy", "count", "blocks"),
    [
        (None, 10, False),  # off unless configured
        (LIMIT, 5, False),  # exactly the ratio
        (LIMIT, 6, True),
        ({"massChange": {"min": 7, "ratio": 0.5}}, 6, False),
        ({"tenants": {"acme": LIMIT}}, 6, True),
        ({"tenants": {"umbrella": LIMIT}}, 6, False),
    ],
)
def test_mass_change_is_off_unless_asked_for(policy: Any, count: int, blocks: bool) -> None:
    plan = changed(fleet(10), count, policy)
    assert plan.blocked is blocks
    assert (plan.allowed == ()) is blocks


def test_mass_change_is_approved_like_a_mass_delete() -> None:
    members = fleet(10)
    plan = changed(members, 6, LIMIT)
    (finding,) = verdict(plan, "mass_change").findings
    assert (finding.severity, finding.code) == (Severity.ERROR, "MassChange")
    assert finding.summary == "6 of 10 agents of the fleet would be changed"
    assert f"gitops-agent approve {plan.digest}" in finding.detail
    assert not changed(members, 6, LIMIT, approved=digests(plan)).blocked
    moved = [(a, b, make.live(b.key, {"a": 9})) for a, b, _ in members]
    assert changed(moved, 6, LIMIT, approved=digests(plan)).blocked


def test_mass_change_does_not_count_new_agents_drift_or_deletions() -> None:
    members = fleet(10)
    agents = [make.agent(f"acme/new-{n}", {"a": 1}) for n in range(9)]
    bases = [base for _, base, _ in members]
    plan = make.plan(make.snapshot([*agents, *(a for a, *_ in members)], LIMIT), [], bases)
    assert not plan.blocked


def test_the_stricter_of_two_policies_has_mass_change_on() -> None:
    old = PolicySpec.model_validate(LIMIT)
    assert changed(fleet(10), 6, None, earlier_policy=old).blocked


def test_a_scoped_pass_can_not_slip_one_change_of_many_through() -> None:
    members = fleet(10)
    assert changed(members, 6, LIMIT, scope=frozenset({members[0][0].key})).blocked


# -- mass drift


def drifted(members: list[Member], count: int, policy: Any = None, **options: Any) -> Plan:
    """The plan when the first agents were changed by somebody."""
    seen = [make.live(b.key, {"a": 9}) if n < count else live for n, (_, b, live) in enumerate(members)]
    desired = make.snapshot([declared for declared, *_ in members], policy)
    return make.plan(desired, seen, [base for _, base, _ in members], **options)


@pytest.mark.parametrize(
    ("size", "count", "trips"), [(10, 4, False), (10, 5, True), (20, 6, False), (20, 7, True), (5, 5, True)]
)
def test_mass_drift_needs_both_numbers(size: int, count: int, trips: bool) -> None:
    plan = drifted(fleet(size), count)
    said = verdict(plan, "mass_drift")
    assert (plan.allowed == ()) is trips
    assert not plan.blocked, "commits are another matter"
    assert said.freeze == ("*" if trips else "")
    if trips:
        assert said.for_people
        assert {action.decision for action in plan.actions} == {Decision.WAIT}


def test_mass_drift_says_what_it_means_and_how_to_go_on() -> None:
    plan = drifted(fleet(10), 6)
    (fleetwide,) = verdict(plan, "mass_drift").findings
    assert (fleetwide.severity, fleetwide.code, fleetwide.address) == (Severity.ERROR, "MassDrift", "*")
    assert fleetwide.summary == "6 of 10 agents of the fleet drifted at once"
    for words in (
        "usually means a wrong commit or a failing probe",
        "gitops-agent unfreeze --scope '*' --reason …",
        f"gitops-agent approve {plan.digest}",
        "acme/bot-005",
        "massDrift allows fewer than 5 agents",
    ):
        assert words in fleetwide.detail
    two = verdict(drifted([*fleet(10), *fleet(5, "umbrella")], 6), "mass_drift").findings
    assert [finding.address for finding in two] == ["*", "acme"]


def test_mass_drift_of_a_tenant_holds_the_tenant_alone() -> None:
    members = [*fleet(10), *fleet(90, "umbrella")]
    plan = drifted(members, 5)
    said = verdict(plan, "mass_drift")
    assert said.freeze == "acme"
    assert len(said.held) == 5
    seen = [make.live(b.key, {"a": 9}) if n < 5 or n == 99 else s for n, (_, b, s) in enumerate(members)]
    more = make.plan(make.snapshot([a for a, *_ in members]), seen, [b for _, b, _ in members])
    assert [str(action.key.agent) for action in more.allowed] == ["umbrella/bot-089"]


def test_several_tenants_are_all_held_and_frozen_one_after_the_other() -> None:
    members = [*fleet(10), *fleet(10, "umbrella"), *fleet(80, "vast")]
    seen = [make.live(b.key, {"a": 9}) if n < 5 or 10 <= n < 15 else s for n, (_, b, s) in enumerate(members)]
    desired, bases = make.snapshot([a for a, *_ in members]), [b for _, b, _ in members]
    plan = make.plan(desired, seen, bases)
    assert plan.allowed == ()
    assert verdict(plan, "mass_drift").freeze == "acme"
    first = Control(ControlVerb.FREEZE, "acme", "guard mass_drift", make.NOW, "x", plan=plan.digest)
    assert verdict(make.plan(desired, seen, bases, freezes=[first]), "mass_drift").freeze == "umbrella"


def test_what_is_frozen_already_does_not_trip_again() -> None:
    freeze = Control(ControlVerb.FREEZE, "*", "guard mass_drift", make.NOW, "x", plan="d" * 32)
    plan = drifted(fleet(10), 6, freezes=[freeze])
    assert plan.allowed == ()
    assert verdict(plan, "mass_drift").effect is Effect.PASS


def test_who_lifts_the_freeze_approves_exactly_that_plan() -> None:
    members = fleet(10)
    approved = digests(drifted(members, 6))
    assert len(drifted(members, 6, approved=approved).allowed) == 6
    assert len(drifted(members, 10, approved=approved).allowed) == 10, "four more are not mass drift"
    worse = [*members, *fleet(5, "umbrella")]
    more = make.plan(
        make.snapshot([a for a, *_ in worse]),
        [make.live(b.key, {"a": 9}) for _, b, _ in worse],
        [b for _, b, _ in worse],
        approved=approved,
    )
    assert {str(action.key) for action in more.allowed} == {str(a.key) for a in drifted(members, 6).actions}


FREEZE = {"massDrift": {"absence": "Freeze"}}


def gone(members: list[Member], reason: str, count: int = 10, policy: Any = None, **options: Any) -> Plan:
    seen = [make.live(b.key, None, reason=reason) if n < count else s for n, (_, b, s) in enumerate(members)]
    return make.plan(make.snapshot([a for a, *_ in members], policy), seen, [b for _, b, _ in members], **options)


@pytest.mark.parametrize(
    ("reason", "policy", "trips"),
    [
        ("ProcessGone", None, False),  # they come back in waves
        ("ProcessGone", FREEZE, True),
        ("ProcessGone", {"tenants": {"acme": FREEZE}}, True),
        ("HostRestarted", None, False),
        ("HostRestarted", FREEZE, False),
    ],
)
def test_agents_that_are_gone_are_mass_drift_only_where_the_policy_says_so(
    reason: str, policy: Any, trips: bool
) -> None:
    effect = verdict(gone(fleet(10), reason, policy=policy), "mass_drift").effect
    assert effect is (Effect.TRIM if trips else Effect.PASS)


def test_who_is_gone_and_differs_as_well_counts_as_drifted() -> None:
    keys = [(make.key(f"t/{n}", "config", "x"), make.key(f"t/{n}")) for n in range(10)]
    agents = [make.agent(f"t/{n}", [make.resource(k, {"a": 1}) for k in pair]) for n, pair in enumerate(keys)]
    bases = [make.base(k, {"a": 1}) for pair in keys for k in pair]
    seen = [make.live(runtime, None, reason="ProcessGone") for _, runtime in keys]
    edited = [*seen, *(make.live(config, {"a": 9}) for config, _ in keys)]
    assert verdict(make.plan(make.snapshot(agents), seen, bases), "mass_drift").effect is Effect.PASS
    assert verdict(make.plan(make.snapshot(agents), edited, bases), "mass_drift").effect is Effect.TRIM


def test_a_host_restart_explains_whatever_else_is_missing_of_an_agent() -> None:
    keys = [(make.key(f"t/{n}", "config", "x"), make.key(f"t/{n}")) for n in range(10)]
    agents = [make.agent(f"t/{n}", [make.resource(k, {"a": 1}) for k in pair]) for n, pair in enumerate(keys)]
    bases = [make.base(k, {"a": 1}) for pair in keys for k in pair]
    seen = [make.live(runtime, None, reason="HostRestarted") for _, runtime in keys]
    assert verdict(make.plan(make.snapshot(agents), seen, bases), "mass_drift").effect is Effect.PASS


@pytest.mark.parametrize("options", [{"mode": Mode.OBSERVE}, {"pause": Pause("x")}])
def test_what_would_not_be_repaired_anyway_does_not_count(options: Any) -> None:
    members = [*fleet(5, **options), *fleet(5, "umbrella")]
    seen = [make.live(b.key, {"a": 9}) if n < 6 else s for n, (_, b, s) in enumerate(members)]
    plan = make.plan(make.snapshot([a for a, *_ in members]), seen, [b for _, b, _ in members])
    assert [str(action.key.agent) for action in plan.allowed] == ["umbrella/bot-000"]


def test_adopting_is_no_drift() -> None:
    members = fleet(10)
    plan = make.plan(make.snapshot([a for a, *_ in members]), [s for *_, s in members])
    assert len(plan.allowed) == 10


def test_agents_outside_the_scope_count_by_what_was_last_seen() -> None:
    members = fleet(10)
    scope = frozenset({members[0][0].key})
    others = frozenset(a.key for a, *_ in members[1:5])
    desired, bases = make.snapshot([a for a, *_ in members]), [b for _, b, _ in members]
    seen = [make.live(bases[0].key, {"a": 9})]
    for drifted_elsewhere, count in ((others, 0), (frozenset(), 1), (others | scope, 0)):
        plan = make.plan(desired, seen, bases, scope=scope, drifted=drifted_elsewhere)
        assert len(plan.allowed) == count
    frozen = [Control(ControlVerb.FREEZE, str(key), "ann", make.NOW, "x") for key in others]
    assert len(make.plan(desired, seen, bases, scope=scope, drifted=others, freezes=frozen).allowed) == 1
    observed = make.snapshot([replace(a, mode=Mode.OBSERVE) if a.key in others else a for a, *_ in members])
    assert len(make.plan(observed, seen, bases, scope=scope, drifted=others).allowed) == 1


def test_agents_that_are_still_being_built_are_judged_by_the_gate_of_their_commit() -> None:
    young = [(a, replace(b, established=False), s) for a, b, s in fleet(10)]
    assert len(gone(young, "ProcessGone").allowed) == 10
    old = [(a, replace(b, applied_at=make.NOW - 999.0), s) for a, b, s in young]
    assert gone(old, "ProcessGone", policy=FREEZE).allowed == ()
    attempts = {b.key: Attempt(3, make.NOW - 1, "died again") for _, b, _ in old}
    assert len(gone(old, "ProcessGone", policy=FREEZE, attempts=attempts).allowed) == 10


# -- failed trees


def test_a_tree_that_failed_is_not_tried_again_and_drift_is_repaired_meanwhile() -> None:
    failed = FailedTree("t" * 40, "f" * 40, "acme/bot-000 was not Ready within 120 s.", make.NOW - 9)
    members = fleet(4)
    wanted = [make.agent("acme/bot-000", {"a": 2}), *(a for a, *_ in members[1:])]
    seen = [*(s for *_, s in members[:3]), make.live(members[3][1].key, None)]
    plan = make.plan(make.snapshot(wanted), seen, [b for _, b, _ in members], failed=failed)
    assert plan.blocked
    assert [str(action.key.agent) for action in plan.allowed] == ["acme/bot-003"]
    (finding,) = verdict(plan, "failed_tree").findings
    assert (finding.severity, finding.code) == (Severity.ERROR, "FailedBefore")
    assert "ffffffffff" in finding.summary
    for words in ("was not Ready within 120 s.", "gitops-agent retry ffffffffff", "gitops-agent rollback"):
        assert words in finding.detail
    quiet = make.plan(make.snapshot([a for a, *_ in members]), [s for *_, s in members], failed=failed)
    assert quiet.blocked
