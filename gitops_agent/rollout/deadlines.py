"""Deadlines: since when agents are not Ready, and whose time is up. Pure, in seconds of active time."""

from collections.abc import Collection, Iterator, Mapping

from gitops_agent.model.agent import Agent
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.quantity import seconds

Since = Mapping[AgentKey, float]
Agents = Mapping[AgentKey, Agent]


def started(since: Since, starting: Collection[AgentKey], stopping: Collection[AgentKey], active: float) -> Since:
    """The same deadlines with some agents' time running from now on (unless it does already), others' ended."""
    news = [key for key in starting if key not in since]
    if not news and not any(key in since for key in stopping):
        return since
    kept = {key: at for key, at in since.items() if key not in stopping}
    return {**kept, **dict.fromkeys(news, active)}


def time_given(agent: Agent, policy: PolicySpec) -> float:
    """Seconds an agent may take to become Ready: its own time, or less if the policy says so."""
    most = limits_of(policy, agent.key.tenant).rollout.health_timeout
    return agent.health_timeout if most is None else min(agent.health_timeout, seconds(most))


def overdue(since: Since, agent: Agent, policy: PolicySpec, active: float) -> float | None:
    """The seconds an agent was given, once they are over."""
    begun = since.get(agent.key)
    if begun is None:
        return None
    given = time_given(agent, policy)
    return given if active - begun > given else None


def late(since: Since, agents: Agents, policy: PolicySpec, active: float) -> list[AgentKey]:
    """The agents whose time is over."""
    known = (agents[key] for key in since if key in agents)
    return [agent.key for agent in known if overdue(since, agent, policy, active) is not None]


def time_left(since: Since, agents: Agents, policy: PolicySpec, active: float) -> Iterator[float]:
    """Seconds until the time of an agent is over, for each whose time runs."""
    for key, begun in since.items():
        if key in agents and (left := begun + time_given(agents[key], policy) - active) >= 0.0:
            yield left
