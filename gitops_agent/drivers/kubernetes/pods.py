"""Which pods are an agent's: what a label says is anybody's to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_agent.drivers.api import AgentKey
from gitops_agent.drivers.kubernetes.cache import Entry, ObjectCache
from gitops_agent.drivers.kubernetes.kinds import POD, WORKLOADS
from gitops_agent.drivers.kubernetes.objects import is_pod_of, stands_for_resource


def workloads_of(cache: ObjectCache, agent: AgentKey) -> list[Entry]:
    """The workloads of an agent that we applied."""
    found = (each for kind in WORKLOADS for each in cache.of_agent(agent, kind))
    return [each for each in found if stands_for_resource(each)]


def pods_of(cache: ObjectCache, agent: AgentKey) -> list[Entry]:
    """The pods of an agent: in the namespace of its workload, and made by the controller of one of that kind."""
    workloads = [each.object() for each in workloads_of(cache, agent)]
    return [
        entry
        for entry in cache.of_agent(agent, POD)
        if _is_controlled(pod := entry.object()) and any(is_pod_of(each, pod) for each in workloads)
    ]


def _is_controlled(pod: Mapping[str, Any]) -> bool:
    return any(each.get("controller") for each in pod["metadata"].get("ownerReferences") or ())
