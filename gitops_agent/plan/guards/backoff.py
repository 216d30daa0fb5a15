"""Backoff: what failed is not tried again before its time."""

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Action, Plan, Verdict
from gitops_agent.model.quantity import iso
from gitops_agent.plan.context import PlanContext, resting
from gitops_agent.plan.guards.verdicts import due, let_pass, trim
from gitops_agent.plan.reasons import Hold


def backoff(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions whose next try is still to come."""
    if not context.attempts:
        return let_pass("backoff")
    waiting = [(action, attempt) for action in due(plan) if (attempt := resting(context, action.key)) is not None]
    return trim(
        "backoff",
        (action.key for action, _ in waiting),
        (_finding(action, attempt, context) for action, attempt in waiting),
    )


def _finding(action: Action, attempt: Attempt, context: PlanContext) -> Finding:
    again = "It is tried again by itself, with growing pauses."
    if attempt.permanent:
        longest = context.limits(action.key.agent.tenant).backoff.longest
        again = f"It is tried again every {longest}, but will fail until that is fixed, here or by a commit."
    times = "once" if attempt.failures == 1 else f"{attempt.failures} times"
    return Finding(
        Severity.INFO,
        Hold.BACKOFF,
        str(action.key),
        f"{action.verb} failed {times}, next try at {iso(attempt.next_at)}",
        f"Last error: {attempt.error.rstrip('.')}. {again}",
    )
