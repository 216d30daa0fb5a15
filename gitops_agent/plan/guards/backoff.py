"""Backoff: what failed is not tried again before its time."""

from __future__ import annotations

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Action, Plan, Verdict
from gitops_agent.model.quantity import iso
from gitops_agent.plan.guards.ruling import due, let_pass, trim
from gitops_agent.plan.reasons import Hold
from gitops_agent.plan.situation import Situation


def backoff(plan: Plan, situation: Situation) -> Verdict:
    """Hold the live actions whose next try is still to come."""
    if not situation.attempts:
        return let_pass("backoff")
    waiting = [
        (action, attempt)
        for action in due(plan)
        if (attempt := situation.attempts.get(action.key)) is not None and not attempt.is_due(situation.now)
    ]
    return trim(
        "backoff",
        (action.key for action, _ in waiting),
        (_finding(action, attempt) for action, attempt in waiting),
    )


_AGAIN = {
    False: "It is tried again by itself, with growing pauses.",
    True: "It is tried again every few minutes, but will fail until that is fixed, here or by a commit.",
}


def _finding(action: Action, attempt: Attempt) -> Finding:
    times = "once" if attempt.failures == 1 else f"{attempt.failures} times"
    return Finding(
        Severity.INFO,
        Hold.BACKOFF,
        str(action.key),
        f"{action.verb} failed {times}, next try at {iso(attempt.next_at)}",
        f"Last error: {attempt.error.rstrip('.')}. {_AGAIN[attempt.permanent]}",
    )
