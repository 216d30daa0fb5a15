"""Paused agents: nothing is done until the pause ends or the document ends it."""

from gitops_agent.model.agent import Agent, pause_words
from gitops_agent.model.finding import Finding
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext, is_paused
from gitops_agent.plan.guards.verdicts import due_in_git, trim
from gitops_agent.plan.reasons import Hold


def paused(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions of agents whose pause is in force."""
    held = [(action, agent) for action, agent in due_in_git(plan, context) if is_paused(agent, context.now)]
    agents = {agent.key: agent for _, agent in held}
    return trim("paused", (action for action, _ in held), map(_finding, agents.values()), for_people=True)


def _finding(agent: Agent) -> Finding:
    assert agent.pause is not None
    return Hold.PAUSED.finding(
        agent.key,
        pause_words(agent.pause),
        f"Differences are still found and reported. To go on, set spec.reconcile.paused: false in {agent.origin}.",
    )
