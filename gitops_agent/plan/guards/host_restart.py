"""Explained absence: after a host or a node was lost, agents come back by themselves, but so many at a time.

An agent is under way from the moment it was applied until it is Ready, or until its time for that is over: one
that never becomes Ready must not keep the others waiting for ever.
"""

from collections.abc import Iterator

from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, let_pass, trim
from gitops_agent.plan.order import within_limits
from gitops_agent.plan.reasons import Hold


def host_restart(plan: Plan, context: PlanContext) -> Verdict:
    """Let ``hostRestart.atOnce`` agents of the fleet (a tenant: fewer) come back, and hold the others."""
    returning = [action for action in due(plan) if action.reason in context.catalog.explained]
    if not returning:
        return let_pass("host_restart")
    agents = dict.fromkeys(action.key.agent for action in returning)
    under_way = set(_under_way(context)) - agents.keys()
    fleet = context.limits().host_restart.at_once
    tenants, used = ((key, key.tenant) for key in agents), (key.tenant for key in under_way)
    go = within_limits(tenants, fleet, lambda tenant: context.limits(tenant).host_restart.at_once, used)
    waiting = agents.keys() - go
    finding = Hold.HOST_RESTART.finding(
        plan.commit[:10],
        f"the host was restarted; agents that wait for their turn to come back: {len(waiting)}",
        f"hostRestart.atOnce is {fleet} for the fleet (a tenant may have less), and {len(under_way)} are on their "
        "way. The next ones follow by themselves as soon as those are Ready; to have more at once, raise "
        "hostRestart.atOnce in the Policy document.",
    )
    held = [action for action in returning if action.key.agent in waiting]
    return trim("host_restart", held, (finding,) if held else ())


def _under_way(context: PlanContext) -> Iterator[AgentKey]:
    """The agents that were given something lately and are not Ready yet."""
    agents, now = context.snapshot.agents, context.now
    yield from (agent for agent in context.busy if agent not in context.ready)
    for key, base in context.bases.items():
        if key.kind != Kind.RUNTIME or key.agent in context.ready:
            continue
        agent = agents.get(key.agent)
        if agent is not None and 0 <= now - base.applied_at < agent.health_timeout:
            yield key.agent
