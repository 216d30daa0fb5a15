"""The end of a pause: what a commit asked for meanwhile reaches the agents as its waves would have.

A commit passes agents whose pause is in force without touching them. Should the pauses of many end at one moment,
they must not all be touched at that moment: one first, then a tenth, then the rest, each Ready before the next.
All that is needed for that is on record: which agents were changed since their pause ended.
"""

from gitops_agent.model.agent import Agent
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due_in_git, is_from_commit, let_pass, trim
from gitops_agent.plan.order import share
from gitops_agent.plan.reasons import Hold


def pause_end(plan: Plan, context: PlanContext) -> Verdict:
    """Hold what waited for pauses that have ended, but for the agents whose turn it is."""
    waiting = [
        action
        for action, agent in due_in_git(plan, context)
        if is_from_commit(action) and action.key in context.bases and _has_ended_by(agent, context.now)
    ]
    if not waiting:
        return let_pass("pause_end")
    queue = list(dict.fromkeys(action.key.agent for action in waiting))
    agents, bases = context.snapshot.agents, context.bases
    changed_at = ((key.agent, base.applied_at) for key, base in bases.items() if base.applied_at <= context.now)
    woken = {key for key, at in changed_at if _has_ended_by(agents.get(key), at)} - set(queue)
    unready = sorted(key for key in woken if key not in context.ready)
    turn = set() if unready else set(queue[: _room(len(woken), len(queue), context)])
    why = f"until {unready[0]} is Ready" if unready else "for those before them"
    finding = Hold.PAUSE_ENDED.finding(
        plan.commit[:10],
        f"{len(queue) - len(turn)} agents whose pause has ended wait {why}",
        "What commits asked for during a pause goes out like a rollout: one agent, then a tenth, then the rest, "
        "each Ready before the next. It goes on by itself. If one does not become Ready, push a fix or a revert.",
        urgent=bool(unready),
    )
    held = [action for action in waiting if action.key.agent not in turn]
    return trim("pause_end", held, (finding,) if held else ())


def _has_ended_by(agent: Agent | None, at: float) -> bool:
    until = agent.pause.until if agent is not None and agent.pause is not None else None
    return until is not None and until <= at


def _room(woken: int, queue: int, context: PlanContext) -> int:
    """How many more may go now that all that went are Ready."""
    rollout = context.limits().rollout
    second = rollout.canary + share(rollout.second, woken + queue)
    return next((size - woken for size in (rollout.canary, second) if woken < size), queue)
