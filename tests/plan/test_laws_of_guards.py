"""The laws of guards and approvals, on generated fleets in generated trouble."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.fields import Fields
from gitops_agent.model.outcome import Attempt, Circuit
from gitops_agent.model.pace import MassReturn
from gitops_agent.model.plan import Action, Decision, Effect, Plan, Verdict
from gitops_agent.model.rollout import FailedTree
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.plan.guards import GUARDS, evaluate, with_verdict
from gitops_agent.plan.guards.mass_delete import mass_delete
from gitops_agent.plan.guards.verdicts import is_from_commit, takes_away
from tests.plan import make
from tests.plan.fleets import KEYS, NAMES, snapshots, worlds
from tests.plan.simulator import World

pytestmark = pytest.mark.unit
thorough = settings(suppress_health_check=list(HealthCheck))

SCOPES = ("*", "acme", "umbrella/a")
some_keys = st.sets(st.sampled_from(KEYS))
some_agents = some_keys.map(lambda keys: frozenset(key.agent for key in keys))
troubles = st.fixed_dictionaries(
    {
        "attempts": some_keys.map(lambda keys: {key: Attempt(1, make.NOW + 1, "no") for key in keys}),
        "ready": some_agents,
        "busy": some_agents | st.just(frozenset()),
        "drifted": some_agents,
        "gone": some_agents,
        "active": st.just(1000.0),
        "returning": st.none()
        | st.builds(
            MassReturn, some_agents.map(lambda keys: dict.fromkeys(keys, 900.0)), some_agents, st.booleans()
        ),
        "owed": st.sampled_from([0.0, 1.5, 9.0]).map(lambda owed: lambda _scope, _per_minute: owed),
        "scope": st.none() | some_agents,
        "repairs": some_keys.map(lambda keys: {key: [make.NOW - 1.0] * 9 for key in keys}),
        "freezes": st.lists(
            st.builds(
                Control,
                st.just(ControlVerb.FREEZE),
                st.sampled_from(SCOPES),
                st.just("ann"),
                st.sampled_from([0.0, make.NOW]),
                plan=st.sampled_from(["", "d"]),
            ),
            max_size=2,
        ),
        "circuits": st.sampled_from([None, make.NOW - 9, make.NOW + 9]).map(
            lambda until: {"fake": Circuit("fake", ("t/a",), until, 1, "no")}
        ),
        "failed": st.none() | st.just(FailedTree("t" * 40, "f" * 40, "why", 1.0)),
    }
)
limits = st.fixed_dictionaries(
    {
        "actionsPerMinute": st.integers(1, 9),
        "massDelete": st.fixed_dictionaries({"min": st.integers(1, 4), "ratio": st.sampled_from([0.0, 0.5])}),
        "massDrift": st.fixed_dictionaries({"min": st.integers(1, 4), "ratio": st.sampled_from([0.0, 0.5])}),
        "massChange": st.none() | st.just({"min": 1, "ratio": 0.2}),
    }
)


def with_limits(desired: Snapshot, policy: Any) -> Snapshot:
    return replace(desired, policy=make.snapshot([], policy).policy)


def told(action: Action) -> Any:
    """What an approval is bound to, in plain values."""
    return action.verb, action.key, *(leg and leg.raw for leg in (action.base, action.desired, action.live))


def strip(action: Action) -> Action:
    return replace(action, decision=Decision.REPAIR)


def keys(actions: tuple[Action, ...]) -> set[Any]:
    return {action.key for action in actions}


@thorough
@given(snapshots(free=False), worlds(), limits, troubles)
def test_guards_hold_and_nothing_else(desired: Snapshot, world: World, policy: Any, trouble: Any) -> None:
    desired = with_limits(desired, policy)
    plan = world.plan(desired, **trouble)
    context = make.context(desired, world.bases.values(), **trouble)
    actions = tuple(strip(action) if action.key in plan.held else action for action in plan.actions)
    before = bare = Plan(plan.commit, actions, plan.digest)
    for number, guard in enumerate(GUARDS):
        after = evaluate(bare, context, GUARDS[: number + 1])
        assert after.held >= before.held, "what is held stays held"
        assert keys(after.allowed) == keys(before.allowed) - after.held
        assert [strip(action) for action in after.actions] == [strip(action) for action in bare.actions]
        assert after.digest == bare.digest
        alone = guard(bare, context)
        assert alone.held <= keys(bare.allowed), "nobody holds what would not be done anyway"
        assert not (alone.held and alone.effect is Effect.PASS)
        assert all(finding.detail.endswith(".") for finding in alone.findings), "every finding has a way out"
        before = after
    if bare.actions:
        assert (before.held, before.actions, before.verdicts) == (plan.held, plan.actions, plan.verdicts)


class Unlike(Fields):
    """Fields that equal no others, so that they have to be looked into."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = Fields.__hash__


@thorough
@given(snapshots(), worlds())
def test_mass_delete_counts_the_same_when_it_looks_into_every_record(desired: Snapshot, world: World) -> None:
    desired = with_limits(desired, {"massDelete": {"min": 1, "ratio": 0.0}})
    resources = [each for agent in desired.agents.values() for each in agent.resources]
    bases = world.bases | {each.key: make.base(each.key, each.fields.value) for each in resources}
    ready = frozenset(key.agent for key in bases)
    context = make.context(desired, bases.values(), ready=ready, unreachable=frozenset({"elsewhere"}))
    unlike = {key: replace(base, fields=Unlike(base.fields.raw)) for key, base in bases.items()}
    plan = world.plan(desired)
    assert mass_delete(plan, context) == mass_delete(plan, replace(context, bases=unlike))


@thorough
@given(snapshots(free=False), worlds(), some_keys)
def test_one_more_verdict_only_holds_more(desired: Snapshot, world: World, picked: Any) -> None:
    plan = world.plan(desired)
    more = with_verdict(plan, Verdict("lease", Effect.TRIM, frozenset(picked)))
    assert more.held >= plan.held
    assert keys(more.allowed) == keys(plan.allowed) - more.held
    assert [strip(action) for action in more.actions] == [strip(action) for action in plan.actions]


@thorough
@given(snapshots(free=False), worlds(), worlds(), snapshots(free=False), limits)
def test_an_approval_covers_no_action_whose_hashes_moved(
    desired: Snapshot, world: World, moved: World, newer: Snapshot, policy: Any
) -> None:
    """What people approved in one world lets nothing through in another but the very same actions."""
    approved_plan = world.plan(with_limits(desired, policy))
    approved = frozenset(action.digest for action in approved_plan.actions)
    known = {told(action) for action in approved_plan.actions}
    later = with_limits(newer, policy)
    without, with_ = moved.plan(later), moved.plan(later, approved=approved)
    assert with_.digest == without.digest
    assert {action.digest in approved for action in with_.actions if told(action) in known} <= {True}
    assert {action.digest in approved for action in with_.actions if told(action) not in known} <= {False}
    released = [
        action for action in with_.allowed if strip(action) not in [strip(each) for each in without.allowed]
    ]
    for action in released:
        # A mass delete or change is released as a whole, and brings along what the commit builds besides; nothing
        # is taken away, and no drift is repaired, that was not approved as it stands.
        if takes_away(action) or not is_from_commit(action):
            assert told(action) in known


@thorough
@given(snapshots(free=False), worlds(), limits)
def test_with_the_whole_plan_approved_only_what_is_in_it_is_done(
    desired: Snapshot, world: World, policy: Any
) -> None:
    desired = with_limits(desired, policy)
    plan = world.plan(desired)
    approved = frozenset(action.digest for action in plan.actions)
    again = world.plan(desired, approved=approved)
    assert {told(action) for action in again.allowed} <= {told(action) for action in plan.actions}
    assert {verdict.guard for verdict in again.verdicts if verdict.effect is Effect.BLOCK} <= {"empty_source"}
    assert all(verdict.effect is Effect.PASS for verdict in again.verdicts if verdict.guard == "mass_drift")
    for action in again.allowed:
        assert action.decision is Decision.REPAIR


@thorough
@given(snapshots(free=False), worlds(), limits, st.booleans())
def test_an_operators_freeze_stops_all_acting_whatever_was_approved(
    desired: Snapshot, world: World, policy: Any, approve: bool
) -> None:
    desired = with_limits(desired, policy)
    approved = frozenset(action.digest for action in world.plan(desired).actions) if approve else frozenset()
    freeze = Control(ControlVerb.FREEZE, "*", "ann", make.NOW, "x")
    assert not [a for a in world.plan(desired, freezes=[freeze], approved=approved).allowed if a.verb.touches_live]


def test_the_generated_scopes_are_of_the_generated_fleet() -> None:
    assert "umbrella/a" in NAMES
