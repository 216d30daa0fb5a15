"""Observe mode: what differs is reported, nothing is done about it."""

from dataclasses import replace

from gitops_agent.model.agent import Mode
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.plan import Decision, Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, trim
from gitops_agent.plan.reasons import Hold


def observe_mode(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions of agents that are only observed."""
    agents = context.snapshot.agents
    held = [
        action
        for action in due(plan)
        if (agent := agents.get(action.key.agent)) is not None and agent.mode is Mode.OBSERVE
    ]
    findings = [
        Finding(
            Severity.INFO,
            Hold.OBSERVE_MODE,
            str(action.key),
            f"{action.verb} is not done: the agent is in Observe mode",
            f"{action.message} To let it be repaired, set spec.reconcile.mode: Enforce in "
            f"{agents[action.key.agent].origin}, or in the overlay that sets it.",
        )
        for action in held
    ]
    verdict = trim("observe_mode", (action.key for action in held), findings, for_people=True)
    return replace(verdict, decision=Decision.ALERT)  # nothing waits for it, and people are not asked
