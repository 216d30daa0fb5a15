"""Mass change: a commit would change too many agents that are there. Off unless the policy has the section,
because the waves of a rollout bound what a bad change can do.

Like mass delete it counts the whole record against the whole snapshot, also in a scoped pass.
"""

from collections.abc import Iterator

from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.plan import Action, Plan, Verdict
from gitops_agent.plan.context import PlanContext, is_hands_off
from gitops_agent.plan.guards.threshold import Trip, trips
from gitops_agent.plan.guards.verdicts import block, how_to_approve, is_from_commit, let_pass, named, takes_away
from gitops_agent.plan.reasons import Hold
from gitops_agent.plan.sight import hidden_from


def mass_change(plan: Plan, context: PlanContext) -> Verdict:
    """Block when the changed agents reach ``min`` and exceed ``ratio`` of a tenant or of the fleet, unless people
    approved every change in this plan."""
    if not any(each.mass_change for each in (context.policy, *context.policy.tenants.values())):
        return let_pass("mass_change")
    # Where a document asks us not to act, what waits is counted when it may happen.
    agents, now = context.snapshot.agents, context.now
    changing = [a for a in plan.actions if _changes(a) and not is_hands_off(agents.get(a.key.agent), now)]
    if not changing or all(action.digest in context.approved for action in changing):
        return let_pass("mass_change")
    changed = {action.key.agent for action in changing} | set(_elsewhere(context))
    tripped = trips(changed, context, lambda limits: limits.mass_change)
    return block("mass_change", plan, (_finding(plan, trip) for trip in tripped))


def _changes(action: Action) -> bool:
    """Whether it carries a commit into what an agent already has."""
    known = action.key.kind != Kind.HOOK and action.base is not None
    return known and action.verb.touches_live and is_from_commit(action) and not takes_away(action)


def _elsewhere(context: PlanContext) -> Iterator[AgentKey]:
    """The agents outside the scope, or out of sight, whose record is behind what is desired."""
    agents, scope = context.snapshot.agents, context.scope
    hidden = hidden_from(context)
    if scope is None and not hidden:
        return
    for key, agent in agents.items():
        planned = key not in hidden and (scope is None or key in scope)
        if planned or is_hands_off(agent, context.now):
            continue
        asked = (each for each in agent.resources if each.key.kind != Kind.HOOK and not each.stopped)
        known = ((resource, context.bases.get(resource.key)) for resource in asked)
        if any(base is not None and base.fields != resource.fields for resource, base in known):
            yield key


def _finding(plan: Plan, trip: Trip) -> Finding:
    return Hold.MASS_CHANGE.finding(
        plan.commit[:10],
        f"{trip.count} would be changed",
        f"{trip.allows('massChange')}. Changed would be: {named(trip.agents)}. Nothing this commit asks for is "
        f"done. If intended, approve this plan: {how_to_approve(plan)}. Or split the commit and push "
        "the parts one after the other. If not: gitops-agent rollback.",
    )
