"""Admission: whether the newest commit may begin, and which wave goes next. Pure.

The commit as a whole must pass the guards; only then its waves begin, and go on.
"""

from collections.abc import Mapping
from dataclasses import replace

from gitops_agent.control.directives import with_approvals
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.passes import Live, RolloutDecision, SourceResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.policy_merge import stricter
from gitops_agent.model.snapshot import Snapshot, asks_the_same, changed_agents, with_agents_of
from gitops_agent.model.state import RolloutState, State
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PassContext, context_for, is_hands_off
from gitops_agent.rollout import state as transitions
from gitops_agent.rollout import waves
from gitops_agent.rollout.waves import RolloutStep, WaveCandidates


def advance(state: State, source: SourceResult, live: Live, around: PassContext) -> tuple[State, RolloutDecision]:
    """The state with what this pass releases, and what is in force for it."""
    target, in_force, rollout = source.target, source.in_force, state.rollout
    if target is None:
        assert in_force is not None
        return state, _decided(rollout, in_force, replace(in_force, policy=source.policy or in_force.policy))
    if transitions.is_followed(rollout, target):
        return state, _as_target(rollout, in_force, target)
    candidate = candidate_plan(state, source, live, around)
    if candidate.blocked:
        return state, replace(_as_target(rollout, in_force, target), blocked=candidate)
    if live.observed.unreachable and transitions.is_under_way(rollout, target):
        # A gate that was open when we last looked may not be now.
        return state, _as_target(rollout, in_force, target)
    step = next_step(state, source, around)
    stepped = _after_step(rollout, step, target)
    if in_force is None or step.rollout.done:
        in_force = target
    elif step.released:
        in_force = with_agents_of(in_force, target, step.released)
    state = transitions.start_afresh(replace(state, rollout=stepped), step.released)
    return state, replace(_as_target(stepped, in_force, target), released=step.released)


def _after_step(state: RolloutState, step: RolloutStep, target: Snapshot) -> RolloutState:
    """The state when what a step releases follows the commit."""
    if step.rollout == state.rollout and not step.released:
        return state
    judged = state.judged_agents | step.released
    if step.rollout.done:
        sha = target.revision.sha
        return replace(state, enforced=sha, released={}, rollout=step.rollout, judged_agents=judged)
    released = {**state.released, **dict.fromkeys(step.released, target.revision.sha)}
    return replace(state, released=released, rollout=step.rollout, judged_agents=judged)


def candidate_plan(state: State, source: SourceResult, live: Live, around: PassContext) -> Plan:
    """The plan that takes every agent to a commit at once: what the commit as a whole is judged by."""
    target = source.target
    assert target is not None
    # The failure of this tree, if it was brought back as another commit.
    same = (each for each in state.rollout.failed_trees if each.tree == target.revision.tree)
    failed = next((each for each in same if each.commit != target.revision.sha), None)
    earlier = transitions.policy_before(state.rollout, source.in_force)
    context = context_for(state, target, live, earlier, around, failed)
    plan = build(target, live.observed.seen.values(), context, live.health, is_whole=True)
    return with_approvals(plan, around.directives)


def next_step(state: State, source: SourceResult, around: PassContext) -> RolloutStep:
    """How the rollout of the newest commit goes on now. Nothing has changed yet when this returns."""
    target, in_force, rollout = source.target, source.in_force, state.rollout
    assert target is not None
    if rollout.rollout is not None and transitions.is_under_way(rollout, target):
        return waves.proceed(rollout.rollout, around.now.active)
    if in_force is None:
        return waves.begin(target, target.policy, WaveCandidates(free=target.agents))
    policy = stricter(target.policy, transitions.policy_before(rollout, in_force))
    candidates = _candidates(rollout, in_force, target, state.reconcile.bases, around.now.wall)
    return waves.begin(target, policy, candidates)


def _candidates(
    rollout: RolloutState, in_force: Snapshot, target: Snapshot, bases: Mapping[ResourceKey, Base], wall: float
) -> WaveCandidates:
    changed, before, after = changed_agents(in_force, target), in_force.agents, target.agents
    on_record = {key.agent for key, base in bases.items() if not base.retained} if changed else set[AgentKey]()
    here = {key for key in on_record if not is_hands_off(after.get(key), wall)}
    gated = [key for key in changed & here if not asks_the_same(before.get(key), after.get(key))]
    ordered = waves.in_order(gated, before, after, rollout.released)
    reached = rollout.rollout.moving if rollout.rollout is not None and not rollout.rollout.done else ()
    proving = {key for key in gated if waves.proves(after.get(key), before.get(key))}
    return WaveCandidates(ordered, changed.difference(gated), [key for key in reached if key in here], proving)


def _as_target(rollout: RolloutState, in_force: Snapshot | None, target: Snapshot) -> RolloutDecision:
    """What is in force, under the policy of a commit, and in its name once its rollout has begun."""
    if in_force is None:
        return _decided(rollout, None, target)
    name = target if transitions.is_under_way(rollout, target) else in_force
    seen = replace(in_force, policy=target.policy, revision=name.revision, findings=name.findings)
    return _decided(rollout, in_force, seen)


def _decided(rollout: RolloutState, before: Snapshot | None, in_force: Snapshot) -> RolloutDecision:
    earlier = transitions.policy_before(rollout, before)
    return RolloutDecision(in_force, stricter(in_force.policy, earlier), earlier)
