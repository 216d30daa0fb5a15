"""Oscillation: what was repaired too often in a window is left alone until the window has moved on.

Something keeps undoing the repair, and one more would not last either. Time releases it, not
people; confidence is medium at most meanwhile, and the decision is to wait.
"""

from gitops_agent.model.document import Oscillation
from gitops_agent.model.finding import Finding
from gitops_agent.model.plan import Action, Confidence, Plan, Verdict
from gitops_agent.model.quantity import iso, seconds
from gitops_agent.plan.context import PlanContext, recent_repairs
from gitops_agent.plan.guards.verdicts import due, trim
from gitops_agent.plan.reasons import Hold


def oscillation(plan: Plan, context: PlanContext) -> Verdict:
    """Hold repairs of drift that were made ``repairs`` times in ``window`` already."""
    held, findings = [], []
    for action in due(plan):
        # What was repaired too often has never high confidence: no need to ask the record about the others.
        if not action.drift_class.is_drift or action.confidence is Confidence.HIGH:
            continue
        limit = context.limits(action.key.agent.tenant).oscillation
        repairs = recent_repairs(context, action.key)
        if len(repairs) >= limit.repairs:
            held.append(action)
            findings.append(_finding(action, repairs, limit))
    return trim("oscillation", held, findings)


def _finding(action: Action, repairs: tuple[float, ...], limit: Oscillation) -> Finding:
    again = repairs[-limit.repairs] + seconds(limit.window)
    return Hold.REPEATED_DRIFT.finding(
        action.key,
        f"repaired {len(repairs)} times within {limit.window}, and drifted again; next try at {iso(again)}",
        f"{action.message} Something undoes the repair. oscillation allows fewer than {limit.repairs} repairs of "
        f"one resource within {limit.window}. It is tried again by itself when the window has moved on; to try "
        f"now, gitops-agent retry {action.key.agent}. See gitops-agent explain {action.key.agent}.",
    )
