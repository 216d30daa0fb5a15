"""Mass drift: too many agents drifted at once. The desired state or what we observe is wrong more often than that.

Counted are agents whose drift would be repaired now, or asks to be. Not counted: agents that are simply gone (they
come back in waves, unless ``massDrift.absence`` is Freeze and no restart of the host explains it), what is left
alone anyway (Observe mode, pauses, freezes), what people approved, our own record, and agents that are still being
built: those are for the gate of their commit to decide.

What was repaired a moment ago counts too: events come one by one, and a pass may have repaired the first few
before it could see the others.
"""

from gitops_agent.model.control import covers, frozen_scopes, is_frozen
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext, is_hands_off
from gitops_agent.plan.guards.drifts import explained_agents, gone_agents, is_being_built, is_unapproved_drift
from gitops_agent.plan.guards.threshold import Trip, trips
from gitops_agent.plan.guards.verdicts import due, how_to_unfreeze, let_pass, named, trim
from gitops_agent.plan.reasons import Hold


def mass_drift(plan: Plan, context: PlanContext) -> Verdict:
    """Hold all repairs of drift in the fleet or a tenant where too many agents drifted, and ask for a freeze."""
    agents = _differing(plan, context)
    repairs = [action for action in due(plan) if is_unapproved_drift(action, context)]
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


def _differing(plan: Plan, context: PlanContext) -> frozenset[AgentKey]:
    """The agents that count as drifted."""
    open_ = [action for action in plan.actions if action.key not in plan.held]
    drifts = [action for action in open_ if is_unapproved_drift(action, context)]
    explained = explained_agents(drifts, context)
    returning = {key for key in gone_agents(open_, context) if not _freezes(key, context)}
    drifted = frozenset(each.key.agent for each in drifts if not is_being_built(each, context))
    return drifted - explained - returning


def _freezes(key: AgentKey, context: PlanContext) -> bool:
    """Whether agents of a tenant that are gone count like all that differ."""
    return context.limits(key.tenant).mass_drift.absence == "Freeze"


def _elsewhere(context: PlanContext) -> frozenset[AgentKey]:
    """Agents outside the scope that had drift when they were last looked at, and that we would act on."""
    if context.scope is None:
        return frozenset()
    agents, now = context.snapshot.agents, context.now
    frozen = frozen_scopes(context.snapshot.policy, context.freezes, now)
    drifted = {*context.drifted, *(key for key in context.gone if _freezes(key, context))}
    outside = (key for key in drifted if key in agents and key not in context.scope)
    return frozenset(key for key in outside if not (is_hands_off(agents[key], now) or is_frozen(key, frozen)))


def _just_repaired(context: PlanContext) -> frozenset[AgentKey]:
    """Agents whose drift was repaired so lately that it belongs to what is seen now."""
    absent = (key for key in context.just_repaired(absent=True) if _freezes(key, context))
    return frozenset({*context.just_repaired(absent=False), *absent})


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
