"""The laws of the stage, on generated fleets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops_agent.model.catalog import BUILT_IN
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Action, Class, Decision, Effect, Plan, Verb
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.plan.action import make_patch
from gitops_agent.plan.build import build
from gitops_agent.plan.compare import before
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards import GUARDS, evaluate
from gitops_agent.plan.order import TEARDOWN
from gitops_agent.plan.three_way import ThreeWay
from tests.plan import make
from tests.plan.fleets import KEYS, snapshots, worlds
from tests.plan.simulator import World, settled

pytestmark = pytest.mark.unit
thorough = settings(suppress_health_check=list(HealthCheck))


@thorough
@given(snapshots(free=False))
def test_equal_states_give_an_empty_plan(desired: Snapshot) -> None:
    plan = settled(desired).plan(desired)
    assert plan.actions == ()
    assert plan.findings == ()


def until_nothing_waits(world: World, desired: Snapshot) -> World:
    """Apply until dependencies hold nothing any more; each round must make progress."""
    for _ in range(len(desired.agents) + 1):
        plan = world.plan(desired)
        if not plan.held:
            return world.apply(plan)
        assert plan.allowed, "actions wait and none is allowed"
        world = world.apply(plan)
    raise AssertionError("dependencies never came free")


@thorough
@given(snapshots(), worlds())
def test_plan_apply_plan_is_empty(desired: Snapshot, world: World) -> None:
    after = until_nothing_waits(world, desired).plan(desired)
    assert after.allowed == ()
    assert all(action.decision is not Decision.REPAIR for action in after.actions)


@thorough
@given(snapshots(), worlds())
def test_what_is_not_ours_is_never_touched(desired: Snapshot, world: World) -> None:
    adopting = {agent.key for agent in desired.agents.values() if agent.adopt}
    for action in world.plan(desired).allowed:
        thing = world.things.get(action.key)
        if thing is not None and action.verb.touches_live:
            assert thing.owner == "Ours" or (thing.owner == "None" and action.key.agent in adopting)


@thorough
@given(snapshots(free=False), worlds(), st.randoms(use_true_random=False))
def test_input_order_never_changes_a_plan(desired: Snapshot, world: World, random: Any) -> None:
    plan = world.plan(desired)
    agents, bases, seen = list(desired.agents.items()), list(world.bases.items()), world.observe()
    for each in (agents, bases, seen):
        random.shuffle(each)
    shuffled = replace(desired, agents=dict(agents))
    context = make.context(shuffled, dict(bases).values(), ready=frozenset(desired.agents))
    assert build(shuffled, iter(seen), context, {}) == plan


@thorough
@given(snapshots(free=False), worlds(), st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(KEYS)))
def test_a_guard_only_removes_or_blocks(desired: Snapshot, world: World, failed: Any, ready: Any) -> None:
    context = make.context(
        desired,
        world.bases.values(),
        attempts={key: Attempt(1, make.NOW + 1, "no") for key in failed},
        ready=frozenset(key.agent for key in ready),
    )
    guarded = build(desired, world.observe(), context, {})
    bare = plan_without_guards(guarded, desired, world)
    assert [strip(action) for action in guarded.actions] == [strip(action) for action in bare.actions]
    assert guarded.digest == bare.digest
    assert all(action in bare.allowed for action in guarded.allowed)
    assert guarded.held <= {action.key for action in bare.allowed}
    assert {action.key for action in bare.allowed} - {action.key for action in guarded.allowed} == guarded.held
    for guard in GUARDS:
        alone = evaluate(bare, context, [guard])
        assert all(action in bare.allowed for action in alone.allowed)
        (verdict,) = alone.verdicts or (None,)
        if verdict is not None and verdict.effect is Effect.PASS:
            assert alone.allowed == bare.allowed
    check_holding(guarded)


def plan_without_guards(guarded: Plan, desired: Snapshot, world: World) -> Plan:
    """The same plan, before any guard."""
    free = world.plan(desired)
    actions = tuple(
        replace(action, decision=Decision.REPAIR) if action.key in guarded.held else action
        for action in guarded.actions
    )
    return Plan(free.commit, actions, free.digest)


def strip(action: Action) -> Action:
    return replace(action, decision=Decision.REPAIR)


def check_holding(plan: Plan) -> None:
    """A block lets nothing of the commit through, and no later step of an agent overtakes a held one."""
    stopped: set[AgentKey] = set()
    for action in plan.actions:
        if action.key in plan.held:
            stopped.add(action.key.agent)
        elif action in plan.allowed:
            assert not (action.verb.touches_live and action.key.agent in stopped)
            assert not (plan.blocked and action.drift_class is Class.CHANGE)


@thorough
@given(snapshots(free=False), worlds())
def test_the_digest_ignores_time_sha_and_pid(desired: Snapshot, world: World) -> None:
    plan = world.plan(desired)
    revision = replace(desired.revision, sha="d" * 40, committed_at=5.0)
    moved = replace(desired, revision=revision)
    seen = [
        replace(each, observed_at=make.NOW + 3, handle=Fields.of({"pid": 4711}), live={"pid": 4711})
        for each in world.observe()
    ]
    bases = {key: replace(base, commit="e" * 40, applied_at=1.0) for key, base in world.bases.items()}
    context = PlanContext(now=make.NOW + 7, snapshot=moved, bases=bases)
    assert build(moved, seen, context, {}).digest == plan.digest


@thorough
@given(snapshots(free=False), worlds())
def test_teardown_runs_backwards(desired: Snapshot, world: World) -> None:
    plan = world.plan(desired)
    down = [action.verb in TEARDOWN for action in plan.actions]
    assert down == sorted(down, reverse=True)
    for agent in {action.key.agent for action in plan.actions}:
        kinds = [
            (action.verb in TEARDOWN, BUILT_IN.position(action.key.kind))
            for action in plan.actions
            if action.key.agent == agent
        ]
        assert [kind for teardown, kind in kinds if teardown] == sorted(
            (kind for teardown, kind in kinds if teardown), reverse=True
        )
        assert [kind for teardown, kind in kinds if not teardown] == sorted(
            kind for teardown, kind in kinds if not teardown
        )


@thorough
@given(snapshots(free=False), worlds(), st.sets(st.sampled_from(KEYS)))
def test_a_scoped_plan_is_the_part_of_the_whole(desired: Snapshot, world: World, picked: Any) -> None:
    scope = frozenset(key.agent for key in picked)
    whole = [strip(action) for action in world.plan(desired).actions if action.key.agent in scope]
    scoped = world.plan(desired, scope=scope)
    assert [strip(action) for action in scoped.actions] == whole


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text("abc/~", min_size=1, max_size=2), json_values, max_size=4)


@thorough
@given(objects, objects, st.none() | objects)
def test_a_patch_leads_exactly_to_what_is_desired(known: Any, wanted: Any, seen: Any) -> None:
    key = make.key("acme/bot")
    agent = make.agent("acme/bot", wanted)
    three_way = ThreeWay(key, agent, agent.resources[0], make.base(key, known), make.live(key, seen))
    patched = jsonpatch.apply_patch(before(three_way), list(make_patch(three_way, Verb.UPDATE)))
    assert Fields.of(patched) == Fields.of(wanted)
