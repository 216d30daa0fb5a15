"""The end of a pause: what a commit asked for meanwhile reaches the agents as its waves would have.

A commit passes agents whose pause is in force without touching them. Should the pauses of many end at one moment,
they must not all be touched at that moment: one first, then a tenth, then the rest, each Ready before the next.
All that is needed for that is on record: which agents were changed since their pause ended.
"""

from collections.abc import Iterator
from math import ceil

from gitops_agent.model.agent import Agent
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.model.policy_merge import percent
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, is_from_commit, let_pass, trim
from gitops_agent.plan.reasons import Hold


def pause_end(plan: Plan, context: PlanContext) -> Verdict:
    """Hold what waited for pauses that have ended, but for the agents whose turn it is."""
    agents = context.snapshot.agents
    waiting = [
        action
        for action in due(plan)
        if is_from_commit(action)
        and action.key in context.bases
        and (agent := agents.get(action.key.agent)) is not None
        and _has_ended(agent, context)
    ]
    if not waiting:
        return let_pass("pause_end")
    queue = tuple(dict.fromkeys(action.key.agent for action in waiting))
    woken = set(_woken(context)) - set(queue)
    unready = sorted(key for key in woken if key not in context.ready)
    turn = set() if unready else set(queue[: _room(len(woken), len(queue), context)])
    held = [action.key for action in waiting if action.key.agent not in turn]
    return trim("pause_end", held, (_finding(plan, len(queue) - len(turn), unready),) if held else ())


def _has_ended(agent: Agent, context: PlanContext) -> bool:
    return agent.pause is not None and agent.pause.until is not None and agent.pause.until <= context.now


def _woken(context: PlanContext) -> Iterator[AgentKey]:
    """The agents that were changed since their pause ended."""
    agents = context.snapshot.agents
    for key, base in context.bases.items():
        agent = agents.get(key.agent)
        ended = agent.pause.until if agent is not None and agent.pause is not None else None
        if ended is not None and ended <= base.applied_at <= context.now:
            yield key.agent


def _room(woken: int, queue: int, context: PlanContext) -> int:
    """How many more may go now that all that went are Ready."""
    rollout = context.limits().rollout
    second = rollout.canary + max(1, ceil(percent(rollout.second) * (woken + queue) / 100))
    return next((size - woken for size in (rollout.canary, second) if woken < size), queue)


def _finding(plan: Plan, waiting: int, unready: list[AgentKey]) -> Finding:
    why = f"until {unready[0]} is Ready" if unready else "for those before them"
    return Finding(
        Severity.WARNING if unready else Severity.INFO,
        Hold.PAUSE_ENDED,
        plan.commit[:10],
        f"{waiting} agents whose pause has ended wait {why}",
        "What commits asked for during a pause goes out like a rollout: one agent, then a tenth, then the rest, "
        "each Ready before the next. It goes on by itself. If one does not become Ready, push a fix or a revert.",
    )
