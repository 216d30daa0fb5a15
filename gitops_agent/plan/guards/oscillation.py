"""Oscillation: what was repaired too often in a window is left alone until the window has moved on.

Something keeps undoing the repair, and one more would not last either. Time releases it, not
people; confidence is medium at most meanwhile, and the decision is to wait.
"""

from dataclasses import replace

from gitops_agent.model.document import Oscillation
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.plan import Action, Class, Confidence, Plan, Verdict
from gitops_agent.model.quantity import iso, seconds
from gitops_agent.plan.context import PlanContext, recent_repairs
from gitops_agent.plan.guards.verdicts import due, trim
from gitops_agent.plan.reasons import Hold


def oscillation(plan: Plan, context: PlanContext) -> Verdict:
    """Hold repairs of drift that were made ``repairs`` times in ``window`` already."""
    held, findings = [], []
    due_at: dict[ResourceKey, float] = {}
    for action in due(plan):
        # What was repaired too often has never high confidence: no need to ask the record about the others.
        if not action.drift_class.is_drift or action.confidence is Confidence.HIGH:
            continue
        limit = context.limits(action.key.agent.tenant).oscillation
        repairs = recent_repairs(context, action.key)
        if len(repairs) >= limit.repairs:
            held.append(action)
            due_at[action.key] = repairs[-limit.repairs] + seconds(limit.window)
            findings.append(_finding(action, len(repairs), limit, due_at[action.key]))
    return replace(trim("oscillation", held, findings), due_at=due_at)


def _finding(action: Action, repairs: int, limit: Oscillation, again: float) -> Finding:
    agent = action.key.agent
    # What ends by itself is no repair undone: its own output says why.
    ends = action.drift_class is Class.MISSING_EXTERNAL
    why = f"It keeps ending: see gitops-agent logs {agent}." if ends else "Something undoes the repair."
    return Hold.REPEATED_DRIFT.finding(
        action.key,
        f"repaired {repairs} times within {limit.window}, and drifted again; next try at {iso(again)}",
        f"{action.message} {why} oscillation allows fewer than {limit.repairs} repairs of one resource within "
        f"{limit.window}. It is tried again by itself when the window has moved on; to try now, gitops-agent "
        f"retry {agent}. See gitops-agent explain {agent}.",
    )
