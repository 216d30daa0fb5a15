"""Snapshot: the whole desired state at a revision. It is complete and valid, or it does not exist."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from gitops_agent.model.agent import Agent
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, Scope
from gitops_agent.model.revision import Revision


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every agent desired at one revision, and the policy in force. ``findings`` holds no errors."""

    revision: Revision
    agents: Mapping[AgentKey, Agent]
    policy: PolicySpec
    findings: tuple[Finding, ...] = ()


def agents_in(snapshot: Snapshot, scope: Scope) -> Collection[Agent]:
    """The agents of a snapshot within a scope."""
    agents = snapshot.agents
    return agents.values() if scope is None else [agents[key] for key in scope if key in agents]


def changed_agents(old: Snapshot | None, new: Snapshot) -> frozenset[AgentKey]:
    """The agents whose desired state differs between two snapshots, added and removed ones included.
    Unchanged agents are the same object when they come from the same blob, so the common case is one ``is``."""
    if old is None:
        return frozenset(new.agents)
    before, after = old.agents, new.agents
    if before is after:
        return frozenset()
    changed = {key for key, agent in after.items() if (was := before.get(key)) is not agent and was != agent}
    added = sum(key not in before for key in changed)
    if len(before) + added > len(after):  # else nothing can have been removed
        changed.update(key for key in before if key not in after)
    return frozenset(changed)


def asks_the_same(one: Agent | None, other: Agent | None) -> bool:
    """Whether two specs of an agent ask for the same: where a document stands, and what it says to people, do not
    count."""
    if one is None or other is None or one is other:
        return one is other
    return one == replace(other, origin=one.origin, description=one.description, labels=one.labels)


def with_agents_of(snapshot: Snapshot, other: Snapshot, keys: Iterable[AgentKey]) -> Snapshot:
    """A snapshot in which some agents are as another one has them: added, replaced or gone."""
    agents = dict(snapshot.agents)
    for key in keys:
        if key in other.agents:
            agents[key] = other.agents[key]
        else:
            agents.pop(key, None)
    return replace(snapshot, agents=agents)
