"""Observe mode: what differs is reported, nothing is done about it."""

from gitops_agent.model.agent import Mode
from gitops_agent.model.plan import Decision, Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due_in_git, trim
from gitops_agent.plan.reasons import Hold


def observe_mode(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions of agents that are only observed. Nothing waits for it, and people are not asked."""
    held = [(action, agent) for action, agent in due_in_git(plan, context) if agent.mode is Mode.OBSERVE]
    findings = (
        Hold.OBSERVE_MODE.finding(
            action.key,
            f"{action.verb} is not done: the agent is in Observe mode",
            f"{action.message} To let it be repaired, set spec.reconcile.mode: Enforce in {agent.origin}, or in "
            "the overlay that sets it.",
        )
        for action, agent in held
    )
    actions = (action for action, _ in held)
    return trim("observe_mode", actions, findings, for_people=True, decision=Decision.ALERT)
