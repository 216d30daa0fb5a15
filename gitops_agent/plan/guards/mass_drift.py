"""Mass drift: too many agents drifted at once. The desired state or our eyes are wrong more often than the world.

Counted are agents whose drift would be repaired now, or asks to be. Not counted: what we keep our hands off anyway
(Observe mode, pauses, freezes), absence that is explained (the host was restarted), what people approved, our own
record, and agents that are still being built: whether those live is for the gate of their commit to judge.

What was repaired a moment ago counts too: events bring deaths one by one, and a pass may have mended the first few
before it could see the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gitops_agent.model.control import covers
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Decision, Plan, Verdict
from gitops_agent.model.quantity import seconds
from gitops_agent.plan.guards.freeze import is_frozen
from gitops_agent.plan.guards.ruling import due, how_to_unfreeze, let_pass, named, trim
from gitops_agent.plan.guards.threshold import Trip, trips
from gitops_agent.plan.reasons import Hold, Reason
from gitops_agent.plan.situation import Situation, is_hands_off

_REPAIRABLE = (Decision.REPAIR, Decision.ASK, Decision.WAIT)


def mass_drift(plan: Plan, situation: Situation) -> Verdict:
    """Hold all repairs of drift in the fleet or a tenant where too many agents drifted, and ask for a freeze."""
    agents = unexplained((action for action in plan.actions if action.key not in plan.held), situation)
    repairs = [action for action in due(plan) if _is_unapproved_drift(action, situation)]
    if not agents or not repairs:
        return let_pass("mass_drift")
    agents |= _elsewhere(situation) | _just_mended(situation)
    tripped = tuple(trips(agents, situation, lambda limits: limits.mass_drift))
    if not tripped:
        return let_pass("mass_drift")
    held = [action.key for action in repairs if any(covers(trip.scope, action.key.agent) for trip in tripped)]
    said = [_finding(plan, trip, _just_mended(situation)) for trip in tripped]
    verdict = trim("mass_drift", held, said, for_people=True)
    # The widest scope comes first. Of several tenants each is frozen in a pass of its own; all are held from now.
    return replace(verdict, freeze=tripped[0].scope) if held else verdict


def unexplained(actions: Iterable[Action], situation: Situation) -> frozenset[AgentKey]:
    """The agents of some actions that count as drifted."""
    drifts = [action for action in actions if _is_unapproved_drift(action, situation)]
    explained = {action.key.agent for action in drifts if action.reason == Reason.HOST_RESTARTED}
    return frozenset(
        action.key.agent
        for action in drifts
        if action.key.agent not in explained and not _is_being_built(action, situation)
    )


def _is_unapproved_drift(action: Action, situation: Situation) -> bool:
    return (
        action.cls.is_drift
        and action.verb.touches_live
        and action.decision in _REPAIRABLE
        and not (situation.approved and action.digest in situation.approved)
    )


def _is_being_built(action: Action, situation: Situation) -> bool:
    """Whether no commit has converged with it yet, and it has not lived long, or never long at a time."""
    base = situation.bases.get(action.key)
    if base is None or base.established:
        return False
    agent = situation.snapshot.agents.get(action.key.agent)
    time = agent.health_timeout if agent is not None else 0.0
    return action.key in situation.attempts or 0 <= situation.now - base.applied_at < time


def _elsewhere(situation: Situation) -> frozenset[AgentKey]:
    """Agents outside the scope that had drift when they were last looked at, and that we would act on."""
    if situation.scope is None:
        return frozenset()
    agents, now = situation.snapshot.agents, situation.now
    return frozenset(
        key
        for key in situation.drifted
        if key not in situation.scope
        and key in agents
        and not is_hands_off(agents[key], now)
        and not is_frozen(key, situation)
    )


def _just_mended(situation: Situation) -> frozenset[AgentKey]:
    """Agents whose drift was repaired so lately that it belongs to what is seen now."""
    return frozenset(
        agent
        for agent, at in situation.mended.items()
        if 0 <= situation.now - at < seconds(situation.limits(agent.tenant).mass_drift.window)
    )


def _finding(plan: Plan, trip: Trip, mended: frozenset[AgentKey]) -> Finding:
    mended &= trip.agents
    repaired = f" Repaired before that was seen: {named(mended)}." if mended else ""
    return Finding(
        Severity.ERROR,
        Hold.MASS_DRIFT,
        trip.scope,
        f"{trip.count} drifted at once",
        f"{trip.allows('massDrift')}. Drifted: {named(trip.agents)}.{repaired} So much at once means more "
        "often that the desired state or our eyes are wrong than that the world is, so nothing is repaired and "
        "acting is frozen until people have looked: gitops-agent drift says what differs and since when. If the "
        "repairs are right: "
        f"{how_to_unfreeze(trip.scope)} approves exactly this plan and lifts the freeze; gitops-agent approve "
        f"{plan.digest} lets this plan through and leaves the freeze in force. If the desired state is wrong, "
        "push a fix first.",
    )
