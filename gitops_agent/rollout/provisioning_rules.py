"""Provisioning that cannot finish: which new agents are out of time, and what is then desired of them. Pure.

An agent is being provisioned from the first thing that was made for it until it is Ready for the first time. What
was there when some commit converged is provisioned for good: losing it would be a loss, and no compensation.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from gitops_agent.model.agent import Agent, Lifecycle
from gitops_agent.model.document import PolicySpec, Provisioning
from gitops_agent.model.fields import canonical, digest
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Base
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.quantity import seconds


def may_compensate(policy: PolicySpec) -> bool:
    """Whether anybody asks for compensation at all; most fleets do not, and then nobody is looked at."""
    return any(each.provisioning.on_timeout == "Compensate" for each in (policy, *policy.tenants.values()))


def under_way(
    agents: Mapping[AgentKey, Agent], bases: Iterable[Base], ready: Container[AgentKey]
) -> Iterator[AgentKey]:
    """The agents that are being provisioned: something of them is on record, nothing of it established."""
    known: dict[AgentKey, bool] = {}
    for base in bases:
        if base.key.kind != Kind.HOOK and not base.retained:
            known[base.key.agent] = known.get(base.key.agent, False) or base.established
    for key, established in known.items():
        agent = agents.get(key)
        if not established and agent is not None and agent.lifecycle is Lifecycle.RUNNING and key not in ready:
            yield key


def terms(policy: PolicySpec, agent: AgentKey) -> Provisioning:
    """What holds for an agent."""
    return limits_of(policy, agent.tenant).provisioning


def out_of_time(spent: Mapping[AgentKey, float], policy: PolicySpec) -> dict[AgentKey, str]:
    """Of the agents under way (with the seconds they had so far), those that are to be taken down, and why."""
    found = {}
    for key, had in spent.items():
        limit = terms(policy, key)
        if limit.on_timeout == "Compensate" and had >= seconds(limit.deadline):
            found[key] = f"not Ready within {limit.deadline}"
    return found


def compensated(agent: Agent, why: str) -> Agent:
    """The same agent with nothing desired of it: the plan then takes down what is on record, in reverse order."""
    return replace(agent, resources=(), abandoned=why)


def spec_digest(agent: Agent) -> str:
    """What an agent asks for, so that it is known when it asks for something else."""
    return digest(canonical([[str(each.key), each.fields.digest] for each in agent.resources]))
