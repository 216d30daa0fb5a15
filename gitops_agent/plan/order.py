"""Order: teardown first and backwards, then bring-up along dependsOn; of an agent that moves the other way round.
Independent of the order of input.

And how many at a time, where a number bounds that: of the fleet, and of each tenant.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import TypeVar

from gitops_agent.model.agent import Agent
from gitops_agent.model.catalog import BUILT_IN, HOOK, RUNTIME, Catalog
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Verb
from gitops_agent.model.policy_merge import percent
from gitops_agent.plan.handover import is_left, moves

T = TypeVar("T")
TEARDOWN = frozenset({Verb.DELETE, Verb.STOP, Verb.RELEASE, Verb.FORGET})


def order_actions(
    actions: Iterable[Action], agents: Mapping[AgentKey, Agent], catalog: Catalog = BUILT_IN
) -> tuple[Action, ...]:
    """The actions in the order in which they are to be done.
    Teardown comes first, so that an agent that moved to another tenant, or is exclusive, never runs twice. What
    moves to another driver is built there before what it leaves behind goes."""
    listed = tuple(actions)
    depth = depths({action.key.agent for action in listed}, agents)
    moving = {key: agent for key, agent in moves(listed, agents).items() if not agent.exclusive}

    def place(action: Action) -> tuple[int, AgentKey, float, str, str]:
        """Where an action comes in bring-up: dependencies first, then by agent, then by kind."""
        key, ends = action.key, action.verb in TEARDOWN and action.key.kind == HOOK.name
        # A hook for the end is called when the runtime is gone and what the agent was made of is still there.
        rank = RUNTIME.position - 0.5 if ends else catalog.position(key.kind)
        return depth[key.agent], key.agent, rank, key.kind, key.id

    def turn(action: Action) -> tuple[int, AgentKey, int, float, str, str]:
        """The same with the steps of a handover: what is left is kept up, the new one is built, what is left goes
        backwards. Hooks are last, because they wait for all that."""
        level, key, rank, kind, name = place(action)
        if key not in moving or not is_left(action.key, moving[key]):
            return level, key, 3 if kind == HOOK.name else 1, rank, kind, name
        ends = action.verb in TEARDOWN
        return level, key, 2 if ends else 0, -rank if ends else rank, kind, name

    first = [action for action in listed if action.verb in TEARDOWN and action.key.agent not in moving]
    rest = [action for action in listed if action.verb not in TEARDOWN or action.key.agent in moving]
    return (*sorted(first, key=place, reverse=True), *sorted(rest, key=turn))


def depths(wanted: Iterable[AgentKey], agents: Mapping[AgentKey, Agent]) -> dict[AgentKey, int]:
    """The length of the longest chain of dependencies below each wanted agent.
    Looks only at what the wanted agents reach. A cycle (refused at load) is cut where it closes, and a chain may
    be as long as the fleet, so this walks with a stack of its own."""
    known: dict[AgentKey, int] = {}
    for root in sorted(set(wanted)):
        stack = [] if root in known else [(root, iter(_dependencies(root, agents)))]
        entered = {root}
        while stack:
            agent, rest = stack[-1]
            following = next((key for key in rest if key not in known and key not in entered), None)
            if following is not None:
                entered.add(following)
                stack.append((following, iter(_dependencies(following, agents))))
                continue
            stack.pop()
            known[agent] = 1 + max((known.get(key, -1) for key in _dependencies(agent, agents)), default=-1)
    return known


def dependents(needed: Iterable[AgentKey], agents: Mapping[AgentKey, Agent]) -> set[AgentKey]:
    """The agents that depend on some of those needed, directly or through others."""
    above: dict[AgentKey, list[AgentKey]] = {}
    for key, agent in agents.items():
        for other in agent.depends_on:
            above.setdefault(other, []).append(key)
    found, stack = set[AgentKey](), list(needed)
    while stack:
        more = [key for key in above.get(stack.pop(), ()) if key not in found]
        found.update(more)
        stack += more
    return found


def _dependencies(agent: AgentKey, agents: Mapping[AgentKey, Agent]) -> tuple[AgentKey, ...]:
    found = agents.get(agent)
    return () if found is None else tuple(sorted(key for key in found.depends_on if key in agents))


def within_limits(
    tenants: Iterable[tuple[T, str]], most: int, own: Callable[[str], int], used: Iterable[str] = ()
) -> dict[T, None]:
    """The first things (each with its tenant) that there is room for, in their order: so many in all, and of each
    tenant no more than its own limit. ``used``: the tenants of those that take up room already."""
    count = Counter(used)
    left = most - count.total()
    taken: dict[T, None] = {}
    for thing, tenant in tenants:
        if left <= 0:
            break
        if count[tenant] < own(tenant):
            count[tenant] += 1
            left -= 1
            taken[thing] = None
    return taken


def share(text: str, count: int) -> int:
    """A percentage of so many, at least one."""
    return max(1, ceil(percent(text) * count / 100))
