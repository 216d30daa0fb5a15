"""Admission: whether the newest commit may begin, and which wave goes next. Pure.

The commit as a whole must pass the guards; only then its waves begin, and go on.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gitops_agent.control.directives import with_approvals
from gitops_agent.model.agent import Agent, Resource
from gitops_agent.model.control import frozen_scopes, is_frozen
from gitops_agent.model.fields import Fields
from gitops_agent.model.health_spec import STOPPED, asked_before, read_health
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.passes import Live, RolloutDecision, SourceResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.policy_merge import stricter
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.snapshot import Snapshot, asks_the_same, changed_agents, with_agents_of
from gitops_agent.model.state import RolloutState, State
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PassContext, context_for, is_hands_off
from gitops_agent.plan.order import dependents
from gitops_agent.plan.sight import hidden_in, left_out
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
    in_force = _with_pauses_of(decision.in_force, source.target, state.rollout)
    in_force = _as_last_applied(in_force, state, live, around)
    return state, replace(
        decision, in_force=in_force, overdue_since=overdue_since, explained=around.catalog.explained
    )


def _advance(state: State, source: SourceResult, live: Live, around: PassContext) -> tuple[State, RolloutDecision]:
    target, in_force, rollout = source.target, source.in_force, state.rollout
    if target is None:
        assert in_force is not None
        return state, _decided(rollout, in_force, replace(in_force, policy=source.policy or in_force.policy))
    if transitions.is_followed(rollout, target) and not _thawed(state, target, live, around):
        return state, _as_target(rollout, in_force, target)
    candidate = candidate_plan(state, source, live, around)
    if candidate.blocked:
        return state, replace(_as_target(rollout, in_force, target), blocked=candidate)
    if transitions.is_under_way(rollout, target) and _may_be_shut(state, in_force, live):
        return state, _as_target(rollout, in_force, target)
    step = next_step(state, source, live, around)
    stepped = _after_step(rollout, step, target)
    if in_force is None or step.rollout.done:
        in_force = target
    elif step.released:
        in_force = with_agents_of(in_force, target, step.released)
    state = transitions.start_afresh(replace(state, rollout=stepped), step.released)
    return state, replace(_as_target(stepped, in_force, target), released=step.released)


def _may_be_shut(state: State, in_force: Snapshot | None, live: Live) -> bool:
    """Whether a gate that was open when we last looked may not be now: we could not look, or something exited.
    What stays out of sight is left out, and shuts no gate."""
    known = state.rollout.rollout
    if known is None or in_force is None:
        return True
    if not known.is_on_trial:  # what was proven may be started again without a word
        return False
    hidden = hidden_in(live, in_force.agents, state.reconcile.bases)
    is_blink = not (hidden - left_out(hidden, state.status.agents)).isdisjoint(known.moving)
    return is_blink or bool(replaced(known, in_force.agents, live.observed.seen))


def _after_step(state: RolloutState, step: RolloutStep, target: Snapshot) -> RolloutState:
    """The state when what a step releases follows the commit."""
    if step.rollout == state.rollout and not step.released:
        return state
    judged = state.judged_agents | step.released | frozenset(step.rollout.left)
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


def next_step(state: State, source: SourceResult, live: Live, around: PassContext) -> RolloutStep:
    """How the rollout of the newest commit goes on now. Nothing has changed yet when this returns."""
    target, in_force, rollout = source.target, source.in_force, state.rollout
    assert target is not None
    policy = stricter(target.policy, transitions.policy_before(rollout, in_force))
    if rollout.rollout is not None and transitions.is_under_way(rollout, target):
        away, thawed = _away(target, state, live, around), _thawed(state, target, live, around)
        covered = {key for key in (*rollout.rollout.on_trial, *rollout.rollout.waiting) if away(key)}
        regrouped = waves.regrouped(rollout.rollout, covered, thawed, target, policy)
        step = waves.proceed(regrouped, around.now.active)
        return replace(step, released=step.released | covered)
    if in_force is None:
        return waves.begin(target, target.policy, WaveCandidates(free=target.agents))
    return waves.begin(target, policy, _candidates(state, in_force, target, _away(target, state, live, around)))


def _away(target: Snapshot, state: State, live: Live, around: PassContext) -> Callable[[AgentKey], bool]:
    """Whether an agent is not ours to act on for now: only observed, paused, frozen or out of sight, or it waits
    for one that is out of sight. Such an agent is no canary, and holds no other."""
    wall, agents = around.now.wall, target.agents
    scopes = frozen_scopes(target.policy, around.directives.freezes, wall)
    lost = left_out(hidden_in(live, target.agents, state.reconcile.bases), state.status.agents)
    lost |= _owed(dependents(lost, agents) if lost else (), target, state.reconcile.bases)
    return lambda key: key in lost or is_hands_off(agents.get(key), wall) or is_frozen(key, scopes)


def _thawed(state: State, target: Snapshot, live: Live, around: PassContext) -> list[AgentKey]:
    """The agents that were left for later, that nothing covers any more, and that have no wave yet.
    First those that were reached before they were left: they have the least to lose."""
    rollout = state.rollout.rollout
    if rollout is None or not rollout.left or rollout.failed:
        return []
    away, placed = _away(target, state, live, around), frozenset(rollout.waiting)
    thawed = [key for key in rollout.left if key not in placed and not away(key)]
    return sorted(thawed, key=_owed(thawed, target, state.reconcile.bases).__contains__) if thawed else []


def _owed(keys: Iterable[AgentKey], target: Snapshot, bases: Mapping[ResourceKey, Base]) -> set[AgentKey]:
    """Those of some agents of which our record is not what their spec asks for. The record is walked once: a
    freeze may have left a whole fleet."""
    known = {key: dict[ResourceKey, Fields]() for key in keys}
    for base in bases.values() if known else ():
        if base.key.agent in known and not base.retained:
            known[base.key.agent][base.key] = base.fields
    agents = {key: target.agents.get(key) for key in known}
    wanted = {key: {r.key: r.fields for r in each.resources} if each else {} for key, each in agents.items()}
    return {key for key in known if wanted[key] != known[key]}


def _candidates(
    state: State, in_force: Snapshot, target: Snapshot, away: Callable[[AgentKey], bool]
) -> WaveCandidates:
    changed, before, after = changed_agents(in_force, target), in_force.agents, target.agents
    bases, rollout, known = state.reconcile.bases, state.rollout, state.rollout.rollout
    left = known.left if known is not None else ()
    on_record = {key.agent for key, base in bases.items() if not base.retained} if changed or left else set()
    moved = {key for key in changed & on_record if not asks_the_same(before.get(key), after.get(key))}
    owed = {key for key in left if key in on_record and key not in changed}
    here = {key for key in owed if not away(key)}
    owed = (owed - here) | _owed(here, target, bases)
    gated = [key for key in moved | owed if not away(key)]
    ordered = waves.in_order(gated, before, after, rollout.released, state.status.agents.not_ready)
    # What failed after every agent had followed is inherited: it holds no agent of another commit.
    is_open = known is not None and known.is_on_trial and not (known.done and known.failed)
    unfinished = known.moving if known is not None and is_open else ()
    reached = [key for key in unfinished if key in on_record and not away(key)]
    proving = {key for key in gated if key in owed or waves.proves(after.get(key), before.get(key))}
    asked = _earlier_health(state, [after[key] for key in {*gated, *reached} if key in after], reached)
    # What was left and now has a wave waits for it: the spec it follows until then was never applied.
    later = sorted((moved | owed).difference(gated) | set(left).intersection(gated))
    kinds = {key: waves.kind_of_change(before.get(key), after.get(key)) for key in gated}
    return WaveCandidates(ordered, changed.difference(gated), reached, proving, kinds, asked, later)


def _earlier_health(
    state: State, agents: Iterable[Agent], reached: Collection[AgentKey]
) -> dict[AgentKey, Fields]:
    """What was last asked of the health of agents, for those whose new spec asks less."""
    known, unready, bases = state.rollout.rollout, state.status.agents.not_ready, state.reconcile.bases
    # What a commit that did not get through has weakened stays weakened, whatever is pushed on top of it.
    carried = known.earlier_health if known is not None and reached else {}
    found: dict[AgentKey, Fields] = {}
    for agent in agents:
        runtime = next((each for each in agent.resources if each.key.kind == Kind.RUNTIME), None)
        if runtime is None or runtime.stopped:
            continue
        applied = bases.get(runtime.key)
        specs: list[Mapping[str, Any]] = [each.value for each in (carried.get(agent.key),) if each is not None]
        # A probe that does not pass now is nothing to go by: the commit may be there to mend it.
        if applied is not None and applied.fields != runtime.fields and agent.key not in unready:
            specs += [read_health(applied.fields)] if not applied.fields.value.get(STOPPED) else []
        if asked := _weakened(specs, read_health(runtime.fields)):
            found[agent.key] = Fields.of(asked)
    return found


def _weakened(specs: Iterable[Mapping[str, Any]], later: Mapping[str, Any]) -> dict[str, Any]:
    """What some specs ask of health and a later one does not, or less strictly; empty when there is nothing."""
    found = [asked for each in specs if (asked := asked_before(each, later))]
    probes = {name: probe for asked in found for name, probe in asked.get("probes", {}).items()}
    rest = {name: value for asked in found for name, value in asked.items()}
    return {**rest, "probes": probes} if found else {}


def _with_earlier_health(in_force: Snapshot, rollout: Rollout | None) -> Snapshot:
    """The snapshot with the agents on trial judged by what was asked of their health before, too."""
    if rollout is None or not rollout.earlier_health:
        return in_force
    known = (key for key in rollout.on_trial if key in rollout.earlier_health and key in in_force.agents)
    judged = {key: replace(in_force.agents[key], earlier_health=rollout.earlier_health[key]) for key in known}
    return replace(in_force, agents={**in_force.agents, **judged}) if judged else in_force


def _with_pauses_of(in_force: Snapshot, target: Snapshot | None, state: RolloutState) -> Snapshot:
    """The snapshot with what a commit says about whether agents are acted on at all: a pause begins and ends at
    once, also where the wave of its agent is still to come."""
    if target is None or state.rollout is None or not transitions.is_under_way(state, target):
        return in_force
    now, then = target.agents, in_force.agents
    moved = {
        key: replace(then[key], mode=now[key].mode, pause=now[key].pause)
        for key in state.rollout.waiting
        if key in now and key in then and (then[key].mode, then[key].pause) != (now[key].mode, now[key].pause)
    }
    return replace(in_force, agents={**then, **moved}) if moved else in_force


def _as_last_applied(in_force: Snapshot, state: State, live: Live, around: PassContext) -> Snapshot:
    """The snapshot with what was last applied to the agents that wait for a wave of their own: as for every other
    agent whose wave is still to come, drift and restarts follow that. What they may not do yet (a resource that
    comes, goes, starts or stops with the commit) is left to the guard ``own_wave``."""
    rollout, agents, bases = state.rollout.rollout, in_force.agents, state.reconcile.bases
    if rollout is None or not rollout.left:
        return in_force
    away = _away(in_force, state, live, around)
    waiting = (agents[key] for key in rollout.left if key in agents and not away(key))
    kept = {
        agent.key: replace(agent, resources=tuple(_last_applied(each, bases) for each in agent.resources))
        for agent in waiting
    }
    return replace(in_force, agents={**agents, **kept}) if kept else in_force


def _last_applied(resource: Resource, bases: Mapping[ResourceKey, Base]) -> Resource:
    base = bases.get(resource.key)
    if base is None or base.retained or base.driver != resource.driver:
        return resource
    is_stopped = bool(base.fields.value.get(STOPPED))
    return resource if resource.stopped or is_stopped else replace(resource, fields=base.fields)


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
