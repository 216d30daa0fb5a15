"""Summary: a plan in numbers."""

from __future__ import annotations

from collections import Counter

from gitops_agent.model.plan import Decision, Plan, Verb


def summarise(plan: Plan) -> dict[str, int]:
    """How many actions of each verb the plan wants done, and how many of these a guard holds.

    What is only reported (ambiguities, orphans, questions) is not counted: nothing would be touched.
    """
    wanted = Counter(
        action.verb for action in plan.actions if action.decision is Decision.REPAIR or action.key in plan.held
    )
    return {**{verb.value: wanted[verb] for verb in Verb}, "held": len(plan.held)}
