"""Mass drift: too many agents drifted at once. The desired state or what we observe is wrong more often than that.

Counted are agents whose drift would be repaired now, or asks to be. Not counted: what is left alone anyway
(Observe mode, pauses, freezes), absence that is explained (the host was restarted), what people approved, our own
record, and agents that are still being built: those are for the gate of their commit to decide.

What was repaired a moment ago counts too: events come one by one, and a pass may have repaired the first few
before it could see the others.
"""

from collections.abc import Iterable

from gitops_agent.model.control import covers
from gitops_agent.model.finding import Finding
from gitops_agent.model.freezes import frozen_scopes, is_frozen
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Decision, Plan, Verdict
from gitops_agent.model.quantity import seconds
from gitops_agent.plan.context import PlanContext, is_hands_off
from gitops_agent.plan.guards.threshold import Trip, trips
from gitops_agent.plan.guards.verdicts import due, how_to_unfreeze, let_pass, named, trim
from gitops_agent.plan.reasons import Hold

_REPAIRABLE = (Decision.REPAIR, Decision.ASK, Decision.WAIT)


def mass_drift(plan: Plan, context: PlanContext) -> Verdict:
    """Hold all repairs of drift in the fleet or a tenant where too many agents drifted, and ask for a freeze."""
    agents = _unexplained((action for action in plan.actions if action.key not in plan.held), context)
    repairs = [action for action in due(plan) if _is_unapproved_drift(action, context)]
    if not agents or not repairs:
        return let_pass("mass_drift")
    repaired = _just_repaired(context)
    agents |= _elsewhere(context) | repaired
    tripped = tuple(trips(agents, context, lambda limits: limits.mass_drift))
    if not tripped:
        return let_pass("mass_drift")
    held = [action for action in repairs if any(covers(trip.scope, action.key.agent) for trip in tripped)]
    findings = [_finding(plan, trip, repaired) for trip in tripped]
    # The widest scope comes first. Of several tenants each is frozen in a pass of its own; all are held from now.
    return trim("mass_drift", held, findings, for_people=True, freeze=tripped[0].scope if held else "")


def _unexplained(actions: Iterable[Action], context: PlanContext) -> frozenset[AgentKey]:
    """The agents of some actions that count as drifted."""
    drifts = [action for action in actions if _is_unapproved_drift(action, context)]
    explained = {action.key.agent for action in drifts if action.reason in context.catalog.explained}
    return frozenset(each.key.agent for each in drifts if not _is_being_built(each, context)) - explained


def _is_unapproved_drift(action: Action, context: PlanContext) -> bool:
    drift = action.drift_class.is_drift and action.verb.touches_live and action.decision in _REPAIRABLE
    return drift and not (context.approved and action.digest in context.approved)


def _is_being_built(action: Action, context: PlanContext) -> bool:
    """Whether no commit has converged with it yet, and it has not lived long, or never long at a time."""
    base = context.bases.get(action.key)
    if base is None or base.established:
        return False
    agent = context.snapshot.agents.get(action.key.agent)
    time = agent.health_timeout if agent is not None else 0.0
    return action.key in context.attempts or 0 <= context.now - base.applied_at < time


def _elsewhere(context: PlanContext) -> frozenset[AgentKey]:
    """Agents outside the scope that had drift when they were last looked at, and that we would act on."""
    if context.scope is None:
        return frozenset()
    agents, now = context.snapshot.agents, context.now
    frozen = frozen_scopes(context.snapshot.policy, context.freezes, now)
    outside = (key for key in context.drifted if key in agents and key not in context.scope)
    return frozenset(key for key in outside if not (is_hands_off(agents[key], now) or is_frozen(key, frozen)))


def _just_repaired(context: PlanContext) -> frozenset[AgentKey]:
    """Agents whose drift was repaired so lately that it belongs to what is seen now."""
    return frozenset(
        agent
        for agent, at in context.recently_repaired().items()
        if 0 <= context.now - at < seconds(context.limits(agent.tenant).mass_drift.window)
    )


def _finding(plan: Plan, trip: Trip, recently_repaired: frozenset[AgentKey]) -> Finding:
    recently_repaired &= trip.agents
    repaired = f" Repaired before that was seen: {named(recently_repaired)}." if recently_repaired else ""
    return Hold.MASS_DRIFT.finding(
        trip.scope,
        f"{trip.count} drifted at once",
        f"{trip.allows('massDrift')}. Drifted: {named(trip.agents)}.{repaired} So many agents at once usually "
        "means a wrong commit or a failing probe, not real drift, so nothing is repaired and acting is frozen "
        "until people have looked: gitops-agent drift says what differs and since when. If the repairs are right: "
        f"{how_to_unfreeze(trip.scope)} approves exactly this plan and lifts the freeze; gitops-agent approve "
        f"{plan.digest} lets this plan through and leaves the freeze in force. If the desired state is wrong, "
        "push a fix first.",
    )
