"""Handover: an agent that runs in one place and is to run in another, by another driver or elsewhere. Pure.

Unless its document says ``runtime.exclusive``, the new one is built first and the old one goes when the new one is
Ready: ``order_actions`` puts the end of the old one last, the guard ``handover`` says when. Until then the old one
is kept: should it die, it is started again as it was last applied. An exclusive one never runs twice: there the
old one goes first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gitops_agent.model.agent import Agent, Resource
from gitops_agent.model.health_spec import STOPPED
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Action, Decision, Verb
from gitops_agent.plan.context import PlanContext, resting
from gitops_agent.plan.three_way import ThreeWay


def moves(actions: Iterable[Action], agents: Mapping[AgentKey, Agent]) -> dict[AgentKey, Agent]:
    """The agents that are to run and of which a runtime is left that Git has moved elsewhere."""
    left = (action.key for action in actions if action.key.kind == Kind.RUNTIME and _is_about_live(action))
    found = ((key, agents[key.agent]) for key in left if key.agent in agents)
    return {agent.key: agent for key, agent in found if is_left(key, agent) and runtimes(agent)}


def _is_about_live(action: Action) -> bool:
    """Whether it ends a runtime, or starts one again: what is only forgotten runs nowhere."""
    return action.verb in (Verb.DELETE, Verb.CREATE)


def is_left(key: ResourceKey, agent: Agent) -> bool:
    """Whether a resource is no part of its agent any more. Hooks belong to a life, not to a place."""
    return key.kind != Kind.HOOK and all(each.key != key for each in agent.resources)


def is_let_go(key: ResourceKey, agent: Agent | None, *, runs_elsewhere: bool) -> bool:
    """Whether a resource binds its agent no longer, whatever became of it: what is to run may run elsewhere,
    unless it is exclusive; and what is to end ends elsewhere, if it is there."""
    if agent is None or not runtimes(agent):
        return runs_elsewhere
    return not agent.exclusive and is_left(key, agent)


def runtimes(agent: Agent) -> tuple[Resource, ...]:
    """The runtimes of an agent that are to run."""
    return tuple(each for each in agent.resources if each.key.kind == Kind.RUNTIME and not each.stopped)


def is_up(agent: Agent, context: PlanContext) -> bool:
    """Whether an agent is Ready where Git wants it: what says so may be older than the move."""
    return agent.key in context.ready and all(each.key in context.bases for each in runtimes(agent))


def as_kept(three_way: ThreeWay, context: PlanContext) -> ThreeWay:
    """The legs of something that Git does not want; those of a runtime that is kept, and gone, ask for it as it
    was last applied. Only what was Ready once is worth it: a half-made one is not."""
    agent, base = three_way.agent, three_way.base
    if agent is None or base is None or three_way.present or not _is_kept(base, agent, context):
        return three_way
    last = Resource(base.key, base.driver, base.fields, idempotent=base.idempotent)
    return replace(three_way, desired=last, is_kept=True)


def _is_kept(base: Base, agent: Agent, context: PlanContext) -> bool:
    is_runtime = base.key.kind == Kind.RUNTIME and bool(runtimes(agent))
    ran = base.established and not (base.retained or base.fields.value.get(STOPPED))
    return is_runtime and ran and not agent.exclusive and not is_up(agent, context)


def as_rested(action: Action, context: PlanContext) -> Action:
    """The start of one that is kept, left for later while its last try is too young: the new one, whose steps come
    after it, must not wait for that."""
    is_due = action.decision is not Decision.REPAIR or resting(context, action.key) is None
    return action if is_due else replace(action, decision=Decision.WAIT)
