"""Drift reports on demand: what is live against what is in force."""

from dataclasses import replace

from gitops_agent.errors import UsageError
from gitops_agent.model.key import AgentKey, named
from gitops_agent.model.passes import Observed
from gitops_agent.model.plan import Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.plan.sight import hidden_agents
from gitops_agent.query.fleet import FleetReader, one_agent
from gitops_agent.query.plan_preview import Planner
from gitops_agent.report.drift import Extent, drift_shape, drifting, only
from gitops_agent.report.words import Shape
from gitops_agent.support.clock import SystemClock


def masked_report(reader: FleetReader, plan: Plan, snapshot: Snapshot, observed: Observed) -> Shape:
    """The report on one observation: a plan for what is in force, with what the journal remembers of it."""
    agents, bases = snapshot.agents, reader.journal.state().reconcile.bases
    hidden = hidden_agents(agents, bases, observed.unreachable, observed.unseen_agents)
    fleet = Extent(len(agents), len(agents.keys() - hidden))
    shape = drift_shape(plan, reader.journal, reader.instance, fleet, observed, reader.now)
    return {**reader.redactor.tree(shape)}


def drift_report(planner: Planner, instance: str, agent: str | None = None, tenant: str | None = None) -> Shape:
    """The report of ``drift`` on everything, on one agent or on one tenant; UsageError when there is none of that
    name. Observes the live systems and plans for what is in force; writes nothing, takes no lock."""
    plan, in_force, observed = planner.survey()
    known = {*in_force.agents, *(action.key.agent for action in drifting(plan))}
    if tenant is not None and all(key.tenant != tenant for key in known):
        names = ", ".join(sorted({key.tenant for key in known})) or "none yet"
        raise UsageError(f"no agent has the tenant {tenant!r}", hint=f"tenants: {names}")
    key = one_agent(agent, named(agent, known), known) if agent else None
    reader = FleetReader(planner.journal, instance, SystemClock().now(), planner.redactor)
    unseen = {each: why for each, why in observed.unseen.items() if _is_asked(each.agent, key, tenant)}
    observed = replace(observed, unseen=unseen)
    return masked_report(reader, only(plan, agent=key, tenant=tenant), in_force, observed)


def _is_asked(agent: AgentKey, only_agent: AgentKey | None, tenant: str | None) -> bool:
    return (only_agent is None or agent == only_agent) and (tenant is None or agent.tenant == tenant)
