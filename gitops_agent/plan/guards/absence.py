"""Absence: many agents that are gone at once come back by themselves, one first, then so many at a time.

Gone at once: their host was restarted, or so many died that it would be mass drift, were it not mere absence.
An agent is on its way from the moment it was let go until it is Ready, or until its time for that is over: one
that never becomes Ready must not keep the others waiting for ever. Nor must one that goes out of sight: it has
another turn when it is seen again. But when the first do not become Ready, starting more would not help: acting
freezes. What is let go is on record before it is done
(``reconcile/pace.py``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gitops_agent.model.control import covers
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.pace import MassReturn
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.model.quantity import counted
from gitops_agent.plan.context import PlanContext, time_given
from gitops_agent.plan.guards.drifts import explained_agents, gone_agents
from gitops_agent.plan.guards.threshold import Trip, trips
from gitops_agent.plan.guards.verdicts import due, how_to_unfreeze, let_pass, named, trim
from gitops_agent.plan.order import within_limits
from gitops_agent.plan.reasons import Hold
from gitops_agent.plan.sight import hidden_from, left_out


def absence(plan: Plan, context: PlanContext) -> Verdict:
    """Let the agents come back whose turn it is, and hold the others; ask for a freeze when the first fail."""
    gone = gone_agents(due(plan), context)
    if not gone:
        return let_pass("absence")
    returning = returning_now(context)
    together = {*gone, *returning.released, *returning.waiting, *_elsewhere(context)}
    tripped = tuple(trips(together, context, lambda limits: limits.mass_drift))
    explained = explained_agents(due(plan), context)
    bounded = [key for key in gone if key in explained or any(covers(trip.scope, key) for trip in tripped)]
    if not bounded:
        return let_pass("absence")
    if tripped and (failed := _failed(context)) and not returning.proven:
        held = [action for action in due(plan) if action.key.agent in bounded]
        findings = (_frozen(plan, tripped[0], failed),)
        return trim("absence", held, findings, for_people=True, freeze=tripped[0].scope)
    waiting = set(bounded) - _turn(bounded, returning, context, one=bool(tripped) and not returning.proven)
    held = [action for action in due(plan) if action.key.agent in waiting]
    finding = _finding(plan, tripped, waiting, is_restart=explained.issuperset(waiting), context=context)
    return trim("absence", held, (finding,) if held else ())


def returning_now(context: PlanContext) -> MassReturn:
    """Who is on the way back, with those that passes over single agents brought back before the mass was seen."""
    known, now = _on_record(context), context.now
    early = {key: context.active - (now - at) for key, at in context.just_repaired(absent=True).items()}
    released = _in_sight({**early, **known.released}, context)
    proven = known.proven or any(key in context.ready for key in released)
    return replace(known, released=released, proven=proven)


def _on_record(context: PlanContext) -> MassReturn:
    """Who was let go before this pass; empty once all of that is over, so that the next mass begins anew."""
    known = context.returning or MassReturn()
    known = replace(known, released=_in_sight(known.released, context))
    on_their_way = (is_on_its_way(key, at, context) for key, at in known.released.items())
    return known if known.waiting or any(on_their_way) else MassReturn()


def _in_sight(released: Mapping[AgentKey, float], context: PlanContext) -> Mapping[AgentKey, float]:
    """Those that were let go, without what stays out of sight."""
    lost = left_out(hidden_from(context), context.before) if released else frozenset[AgentKey]()
    return {key: at for key, at in released.items() if key not in lost}


def is_on_its_way(key: AgentKey, released_at: float, context: PlanContext) -> bool:
    """Whether an agent that was let go is not Ready, and still has time for that."""
    agent = context.snapshot.agents.get(key)
    if agent is None or key in context.ready:
        return False
    return context.active - released_at < time_given(agent, context.policy)


def _elsewhere(context: PlanContext) -> Iterable[AgentKey]:
    """The agents outside the scope that were gone when they were last looked at."""
    return () if context.scope is None else context.gone - context.scope


def _failed(context: PlanContext) -> list[AgentKey]:
    """The agents that were let go, can be looked at, and did not become Ready in their time."""
    released, hidden = _on_record(context).released, hidden_from(context)
    known = (key for key in released if key in context.snapshot.agents and key not in context.ready)
    late = (key for key in known if not is_on_its_way(key, released[key], context))
    return sorted(key for key in late if key not in hidden)


def _turn(gone: Sequence[AgentKey], returning: MassReturn, context: PlanContext, *, one: bool) -> set[AgentKey]:
    """Those that may go now: first who had a turn and died again, last who is known to fail and proves little."""
    released, failing = returning.released, {key.agent for key in context.attempts}
    queue = sorted(gone, key=lambda key: (key not in released, key in failing))
    on_their_way = {key for key, at in released.items() if is_on_its_way(key, at, context)} - set(gone)
    most = 1 if one else context.limits().host_restart.at_once
    tenants, used = ((key, key.tenant) for key in queue), (key.tenant for key in on_their_way)
    return set(within_limits(tenants, most, lambda tenant: context.limits(tenant).host_restart.at_once, used))


def _finding(
    plan: Plan, tripped: Sequence[Trip], waiting: set[AgentKey], *, is_restart: bool, context: PlanContext
) -> Finding:
    wait = f"{counted(len(waiting), 'agent')} {'waits' if len(waiting) == 1 else 'wait'} for a turn to come back"
    most = context.limits().host_restart.at_once
    rate = (
        f"{'One comes back first; when it is Ready, the' if tripped else 'The'} others follow by themselves, "
        f"at most {most} at a time (hostRestart.atOnce is {most} for the fleet, a tenant may have less)."
    )
    if tripped:
        rate += " If the first does not become Ready in its time, acting freezes."
    if is_restart or not tripped:
        return Hold.HOST_RESTARTED.finding(plan.commit[:10], f"the host was restarted; {wait}", rate)
    trip = tripped[0]
    why = f"{trip.allows('massDrift')}. Gone: {named(trip.agents)}."
    summary = f"{trip.count} were gone at once; {wait}"
    return Hold.MASS_ABSENCE.finding(trip.scope, summary, f"{why} {rate}", urgent=True)


def _frozen(plan: Plan, trip: Trip, failed: Sequence[AgentKey]) -> Finding:
    names, first = named(failed), failed[0]
    return Hold.MASS_ABSENCE.finding(
        trip.scope,
        f"{trip.count} are gone, and the first to come back did not become Ready: {names}",
        "Starting more would not help, so acting is frozen until people have looked: gitops-agent explain "
        f"{first} says what keeps it, gitops-agent logs {first} shows its output. When that is mended: "
        f"{how_to_unfreeze(trip.scope)} lifts the freeze and starts all of them; gitops-agent approve "
        f"{plan.digest} starts them and leaves the freeze in force.",
        urgent=True,
    )
