"""Admission: whether the newest commit may begin, and which wave goes next. Pure.

The commit as a whole must pass the guards; only then its waves begin, and go on.
"""

from dataclasses import replace
from typing import Any

from gitops_agent.control.directives import with_approvals
from gitops_agent.model.agent import Agent, Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.health_spec import asked_before, read_health
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.passes import Live, RolloutDecision, SourceResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.policy_merge import stricter
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.snapshot import Snapshot, asks_the_same, changed_agents, with_agents_of
from gitops_agent.model.state import RolloutState, State
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PassContext, context_for, is_hands_off
from gitops_agent.rollout import state as transitions
from gitops_agent.rollout import waves
from gitops_agent.rollout.exits import replaced
from gitops_agent.rollout.waves import RolloutStep, WaveCandidates


def advance(state: State, source: SourceResult, live: Live, around: PassContext) -> tuple[State, RolloutDecision]:
    """The state with what this pass releases, and what is in force for it."""
    before = state.rollout.rollout
    state, decision = _advance(state, source, live, around)
    is_overdue = waves.pause_left(before, around.now.active) == 0.0 and state.rollout.rollout is before
    overdue_since = before.passed_at if before is not None and is_overdue else None
    return state, replace(decision, overdue_since=overdue_since, explained=around.catalog.explained)


def _advance(state: State, source: SourceResult, live: Live, around: PassContext) -> tuple[State, RolloutDecision]:
    target, in_force, rollout = source.target, source.in_force, state.rollout
    if target is None:
        assert in_force is not None
        return state, _decided(rollout, in_force, replace(in_force, policy=source.policy or in_force.policy))
    if transitions.is_followed(rollout, target):
        return state, _as_target(rollout, in_force, target)
    candidate = candidate_plan(state, source, live, around)
    if candidate.blocked:
        return state, replace(_as_target(rollout, in_force, target), blocked=candidate)
    if transitions.is_under_way(rollout, target) and _may_be_shut(rollout, in_force, live):
        return state, _as_target(rollout, in_force, target)
    step = next_step(state, source, around)
    stepped = _after_step(rollout, step, target)
    if in_force is None or step.rollout.done:
        in_force = target
    elif step.released:
        in_force = with_agents_of(in_force, target, step.released)
    state = transitions.start_afresh(replace(state, rollout=stepped), step.released)
    return state, replace(_as_target(stepped, in_force, target), released=step.released)


def _may_be_shut(rollout: RolloutState, in_force: Snapshot | None, live: Live) -> bool:
    """Whether a gate that was open when we last looked may not be now: we could not look, or something exited."""
    if live.observed.unreachable or rollout.rollout is None or in_force is None:
        return True
    return bool(replaced(rollout.rollout, in_force.agents, live.observed.seen))


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
    candidates = _candidates(state, in_force, target, around.now.wall)
    return waves.begin(target, policy, candidates)


def _candidates(state: State, in_force: Snapshot, target: Snapshot, wall: float) -> WaveCandidates:
    changed, before, after = changed_agents(in_force, target), in_force.agents, target.agents
    bases, rollout, known = state.reconcile.bases, state.rollout, state.rollout.rollout
    on_record = {key.agent for key, base in bases.items() if not base.retained} if changed else set[AgentKey]()
    here = {key for key in on_record if not is_hands_off(after.get(key), wall)}
    gated = [key for key in changed & here if not asks_the_same(before.get(key), after.get(key))]
    ordered = waves.in_order(gated, before, after, rollout.released)
    reached = [key for key in known.moving if key in here] if known is not None and not known.done else []
    proving = {key for key in gated if waves.proves(after.get(key), before.get(key))}
    # What a commit that did not get through has weakened stays weakened, whatever is pushed on top of it.
    carried = known.earlier_health if known is not None and reached else {}
    unready = state.status.agents.not_ready
    earlier = {
        # A probe that does not pass now is nothing to go by: the commit may be there to mend it.
        key: _asked_before(None if key in unready else before.get(key), after.get(key), carried.get(key))
        for key in {*gated, *reached}
    }
    asked = {key: Fields.of(each) for key, each in earlier.items() if each}
    return WaveCandidates(ordered, changed.difference(gated), reached, proving, asked)


def _asked_before(old: Agent | None, new: Agent | None, carried: Fields | None) -> dict[str, Any]:
    """What was asked of the health of an agent where its new spec asks less; empty when it does not."""
    was, now = _runtime(old), _runtime(new)
    if now is None or now.stopped or (was is not None and was.fields == now.fields and carried is None):
        return {}
    later = read_health(now.fields)
    ran = was is not None and not was.stopped
    specs = ([read_health(was.fields)] if was is not None and ran else []) + ([carried.value] if carried else [])
    found = [asked for each in specs if (asked := asked_before(each, later))]
    probes = {name: probe for asked in found for name, probe in asked.get("probes", {}).items()}
    rest = {name: value for asked in found for name, value in asked.items()}
    return {**rest, "probes": probes} if found else {}


def _runtime(agent: Agent | None) -> Resource | None:
    resources = agent.resources if agent is not None else ()
    return next((each for each in resources if each.key.kind == Kind.RUNTIME), None)


def _with_earlier_health(in_force: Snapshot, rollout: Rollout | None) -> Snapshot:
    """The snapshot with the agents on trial judged by what was asked of their health before, too."""
    if rollout is None or not rollout.earlier_health:
        return in_force
    known = (key for key in rollout.on_trial if key in rollout.earlier_health and key in in_force.agents)
    judged = {key: replace(in_force.agents[key], earlier_health=rollout.earlier_health[key]) for key in known}
    return replace(in_force, agents={**in_force.agents, **judged}) if judged else in_force


def _as_target(rollout: RolloutState, in_force: Snapshot | None, target: Snapshot) -> RolloutDecision:
    """What is in force, under the policy of a commit, and in its name once its rollout has begun."""
    if in_force is None:
        return _decided(rollout, None, target)
    name = target if transitions.is_under_way(rollout, target) else in_force
    seen = replace(in_force, policy=target.policy, revision=name.revision, findings=name.findings)
    return _decided(rollout, in_force, seen)


def _decided(rollout: RolloutState, before: Snapshot | None, in_force: Snapshot) -> RolloutDecision:
    earlier = transitions.policy_before(rollout, before)
    in_force = _with_earlier_health(in_force, rollout.rollout)
    return RolloutDecision(in_force, stricter(in_force.policy, earlier), earlier)
