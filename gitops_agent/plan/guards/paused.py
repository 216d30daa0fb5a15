"""Paused agents: nothing is done until the pause ends or the document ends it."""

from gitops_agent.model.agent import Agent
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.model.quantity import iso
from gitops_agent.plan.context import PlanContext, is_paused
from gitops_agent.plan.guards.verdicts import due, trim
from gitops_agent.plan.reasons import Hold


def paused(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions of agents whose pause is in force."""
    agents = context.snapshot.agents
    held = [
        action
        for action in due(plan)
        if (agent := agents.get(action.key.agent)) is not None and is_paused(agent, context.now)
    ]
    waiting = dict.fromkeys(action.key.agent for action in held)
    findings = (_finding(agents[key]) for key in waiting)
    return trim("paused", (action.key for action in held), findings, for_people=True)


def _finding(agent: Agent) -> Finding:
    assert agent.pause is not None
    until = "until the document says otherwise" if agent.pause.until is None else f"until {iso(agent.pause.until)}"
    return Finding(
        Severity.INFO,
        Hold.PAUSED,
        str(agent.key),
        f"paused {until}: {agent.pause.reason or 'no reason given'}",
        f"Differences are still found and reported. To go on, set spec.reconcile.paused: false in {agent.origin}.",
    )
