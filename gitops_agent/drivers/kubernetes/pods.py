"""Which objects and pods are an agent's: what a label says is anybody's to write."""

from __future__ import annotations

from collections.abc import Iterable

from gitops_agent.drivers.api import AgentKey
from gitops_agent.drivers.kubernetes.cache import Entry, ObjectCache
from gitops_agent.drivers.kubernetes.kinds import POD, WORKLOADS, ObjectKind
from gitops_agent.drivers.kubernetes.objects import is_pod_of, stands_for_resource


def own_objects(cache: ObjectCache, agent: AgentKey, kinds: Iterable[ObjectKind]) -> list[Entry]:
    """The objects of some kinds that we applied for an agent, in namespaces of its tenant: one elsewhere is a
    copy, as of a backup, or of a tenant that passes its own off as this agent's."""
    found = (each for kind in kinds for each in cache.of_agent(agent, kind))
    return [each for each in found if stands_for_resource(each) and cache.is_of(agent.tenant, each.namespace)]


def workloads_of(cache: ObjectCache, agent: AgentKey) -> list[Entry]:
    """The workloads of an agent."""
    return own_objects(cache, agent, WORKLOADS)


def pods_of(cache: ObjectCache, agent: AgentKey) -> list[Entry]:
    """The pods of an agent: those that the controllers of its workloads keep."""
    workloads = [each.object() for each in workloads_of(cache, agent)]
    return [
        entry
        for entry in cache.of_agent(agent, POD)
        if any(is_pod_of(each, pod) for pod in (entry.object(),) for each in workloads)
    ]
