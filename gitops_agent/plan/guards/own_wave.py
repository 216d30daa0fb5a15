"""Waves of their own: what a commit asked of agents that were frozen, paused or out of sight goes out in waves.

A commit passes such agents without touching them. Should that end for many at one moment, they must not all be
touched at that moment. ``rollout/`` gives them waves with gates; until theirs comes, they wait.
"""

from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, is_from_commit, let_pass, trim
from gitops_agent.plan.reasons import Hold


def own_wave(plan: Plan, context: PlanContext) -> Verdict:
    """Hold what waited for the end of a freeze or a pause, or to be seen again, until its agent's wave comes."""
    waiting = [action for action in due(plan) if action.key.agent in context.left and is_from_commit(action)]
    if not waiting:
        return let_pass("own_wave")
    count = len({action.key.agent for action in waiting})
    finding = Hold.PAUSE_ENDED.finding(
        plan.commit[:10],
        "1 agent waits for a wave of its own" if count == 1 else f"{count} agents wait for waves of their own",
        "What commits asked for during a freeze or a pause, or while its driver did not answer, goes out like a "
        "rollout: one agent, then a tenth, then the rest, each Ready before the next. It goes on by itself. If "
        "one does not become Ready, push a fix or a revert.",
    )
    return trim("own_wave", waiting, (finding,))
