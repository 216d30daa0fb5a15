"""Sight: of which agents something could not be looked at, and what that leaves open. Pure.

A read that failed is no empty answer. So nothing is concluded about what is out of sight, and nothing of it is
planned. It is left out of waves and gates like what is frozen, and the rest goes on without it.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from gitops_agent.model.agent import Agent
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.passes import Live
from gitops_agent.model.status import AgentStatus
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.handover import is_let_go

Bases = Mapping[ResourceKey, Base]


def hidden_agents(
    agents: Mapping[AgentKey, Agent], bases: Bases, unreachable: Collection[str], unseen: AbstractSet[AgentKey]
) -> frozenset[AgentKey]:
    """The agents to which nothing may be done: something of them is with a driver that could not be asked, or
    could not be looked at though its driver answered (``unseen``).
    No runtime may start on an unknown config, and no config may go from under a runtime that may be there.
    One that only leaves something behind where we cannot look is built in the other place, and ended there: so it
    can be moved away from a driver that is down. An exclusive one cannot: it may run there."""
    if not unreachable:
        return frozenset(unseen)
    wanted = {key for key, agent in agents.items() for each in agent.resources if each.driver in unreachable}
    # Of most agents nothing is there but what is wanted there, and this is asked several times a pass.
    left = [key for key in out_of_sight(bases, unreachable) if key.agent not in wanted]
    elsewhere = {agent for agent, _ in places_in_sight(bases, unreachable)} if left else set()
    bound = (
        key.agent
        for key in left
        if not is_let_go(key, agents.get(key.agent), runs_elsewhere=key.agent in elsewhere)
    )
    return frozenset({*unseen, *wanted, *bound})


def hidden_in(live: Live, agents: Mapping[AgentKey, Agent], bases: Bases) -> frozenset[AgentKey]:
    """Those hidden in one observation."""
    observed = live.observed
    return hidden_agents(agents, bases, observed.unreachable, observed.unseen_agents)


def hidden_from(context: PlanContext) -> frozenset[AgentKey]:
    """Those hidden from one plan."""
    return hidden_agents(context.snapshot.agents, context.bases, context.unreachable, context.unseen)


def out_of_sight(bases: Bases, unreachable: Collection[str]) -> list[ResourceKey]:
    """What is on record with a driver that could not be asked."""
    return [key for key, base in bases.items() if base.driver in unreachable] if unreachable else []


def places_in_sight(bases: Bases, unreachable: Collection[str]) -> frozenset[tuple[AgentKey, str]]:
    """Where a runtime of which agent is on record that can be looked at: agents, each with a driver."""
    runtimes = (base for key, base in bases.items() if key.kind == Kind.RUNTIME and not base.retained)
    return frozenset((base.key.agent, base.driver) for base in runtimes if base.driver not in unreachable)


def left_out(hidden: Collection[AgentKey], before: Mapping[AgentKey, AgentStatus]) -> frozenset[AgentKey]:
    """Those out of sight that the rest does not wait for: the pass before could not look at them either.
    One failed look is waited for, or a moment without an answer would cost a rollout its canary."""
    return frozenset(key for key in hidden if key not in before or before[key].is_out_of_sight)
