"""Handover: what an agent leaves behind when it moves to another driver or place goes when the new one is Ready.

Ready for as long as a gate asks (``rollout.bake``), so that one that dies after two seconds costs nobody the old
one. With ``runtime.exclusive`` it is the other way round: nothing is built while the old one may still run.
"""

from collections.abc import Iterable
from dataclasses import replace

from gitops_agent.model.agent import Agent
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.plan import Action, Decision, Plan, Verb, Verdict
from gitops_agent.model.quantity import seconds
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due_in_git, let_pass, trim
from gitops_agent.plan.handover import is_left, is_up, moves, runtimes
from gitops_agent.plan.reasons import Hold


def handover(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the end of what an agent leaves behind until the new one is Ready; of an exclusive one what is built,
    until the old one is gone."""
    moving = moves(plan.actions, context.snapshot.agents)
    if not moving:
        return let_pass("handover")
    building = {each.key.agent for each in plan.actions if each.key.agent in moving and _builds(each, moving)}
    ready_at = {key: _ready_at(agent, context) for key, agent in moving.items() if key not in building}
    waiting = {key for key, agent in moving.items() if agent.exclusive or _waits(ready_at.get(key), context.now)}
    held = [
        action for action, agent in due_in_git(plan, context) if agent.key in waiting and _is_held(action, agent)
    ]
    agents = dict.fromkeys(action.key.agent for action in held)
    verdict = trim("handover", held, (_finding(moving[key], plan.actions) for key in agents))
    moments = {each.key: ready_at.get(each.key.agent) for each in held}
    return replace(verdict, due_at={key: at for key, at in moments.items() if at is not None})


def _builds(action: Action, moving: dict[AgentKey, Agent]) -> bool:
    """Whether something of the new one is still to be made."""
    is_work = action.verb.touches_live and action.decision in (Decision.REPAIR, Decision.WAIT)
    return is_work and action.key.kind != Kind.HOOK and not is_left(action.key, moving[action.key.agent])


def _ready_at(agent: Agent, context: PlanContext) -> float | None:
    """When the new one has been Ready for long enough; None while it is not Ready."""
    if not is_up(agent, context):
        return None
    began = max(context.ready_since(agent.key), *(context.bases[each.key].applied_at for each in runtimes(agent)))
    # A clock that was set back must not make us wait for hours.
    bake = seconds(context.limits(agent.key.tenant).rollout.bake) if began <= context.now else 0.0
    return min(began, context.now) + bake


def _waits(ready_at: float | None, now: float) -> bool:
    return ready_at is None or now < ready_at


def _is_held(action: Action, agent: Agent) -> bool:
    left = is_left(action.key, agent)
    if agent.exclusive:
        return not left and action.key.kind != Kind.HOOK and action.verb is not Verb.STOP
    return left and action.verb is Verb.DELETE


def _finding(agent: Agent, actions: Iterable[Action]) -> Finding:
    of_agent = (each for each in actions if each.key.agent == agent.key and each.key.kind == Kind.RUNTIME)
    old = ", ".join(dict.fromkeys(each.driver for each in of_agent if is_left(each.key, agent)))
    new = ", ".join(dict.fromkeys(each.driver for each in runtimes(agent)))
    if agent.exclusive:
        return Hold.HANDOVER_WAITS.finding(
            agent.key,
            f"starts on {new} when the one on {old} is gone",
            "It is exclusive, so it never runs twice. It follows by itself.",
        )
    return Hold.HANDOVER_WAITS.finding(
        agent.key,
        f"runs on {old} until the one on {new} is ready",
        f"Then the one on {old} is ended. If the new one does not become ready, push a fix or a revert: "
        f"the one on {old} is left as it is.",
    )
