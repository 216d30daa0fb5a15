"""Backoff: what failed is not tried again before its time."""

from gitops_agent.model.finding import Finding
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Action, Plan, Verdict
from gitops_agent.model.quantity import iso
from gitops_agent.plan.context import PlanContext, resting
from gitops_agent.plan.guards.verdicts import due, trim
from gitops_agent.plan.reasons import Hold


def backoff(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions whose next try is still to come."""
    waiting = [(action, attempt) for action in due(plan) if (attempt := resting(context, action.key)) is not None]
    return trim("backoff", (action for action, _ in waiting), (_finding(*each, context) for each in waiting))


def _finding(action: Action, attempt: Attempt, context: PlanContext) -> Finding:
    again = "It is tried again by itself, with growing pauses."
    if attempt.permanent:
        longest = context.limits(action.key.agent.tenant).backoff.longest
        again = f"It is tried again every {longest}, but will fail until that is fixed, here or by a commit."
    times = "once" if attempt.failures == 1 else f"{attempt.failures} times"
    summary = f"{action.verb} failed {times}, next try at {iso(attempt.next_at)}"
    return Hold.BACKOFF.finding(action.key, summary, f"Last error: {attempt.error.rstrip('.')}. {again}")
