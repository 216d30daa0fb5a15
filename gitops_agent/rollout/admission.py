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
from gitops_agent.model.snapshot import Snapshot, asks_the_same, changed_agents
from gitops_agent.model.state import RolloutState, State
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PassContext, context_for, is_hands_off
from gitops_agent.rollout import state as transitions
from gitops_agent.rollout import waves
from gitops_agent.rollout.retries import start_afresh
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
    stepped = transitions.after_step(rollout, step, target)
    if step.released:
        stepped = replace(stepped, judged_agents=stepped.judged_agents | step.released)
    in_force = transitions.in_force_after(step, in_force, target)
    state = start_afresh(replace(state, rollout=stepped), step.released)
    return state, replace(_as_target(stepped, in_force, target), released=step.released)


def candidate_plan(state: State, source: SourceResult, live: Live, around: PassContext) -> Plan:
    """The plan that takes every agent to a commit at once: what the commit as a whole is judged by."""
    target = source.target
    assert target is not None
    failed = transitions.failed_before(state.rollout, target.revision)
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
    return waves.begin(
        target, policy, _candidates(rollout, in_force, target, state.reconcile.bases, around.now.wall)
    )


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
    if in_force is None:
        return _decided(rollout, None, target)
    return _decided(rollout, in_force, transitions.seen_as(rollout, in_force, target))


def _decided(rollout: RolloutState, before: Snapshot | None, in_force: Snapshot) -> RolloutDecision:
    earlier = transitions.policy_before(rollout, before)
    return RolloutDecision(in_force, stricter(in_force.policy, earlier), earlier)
