"""The marks by which objects in a cluster are known as ours: labels, annotations, and the field manager."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gitops_agent.drivers.api import AgentKey
from gitops_agent.model.fields import digest

DRIVER = "kubernetes"
MANAGER = "gitops-agent"
RESTART_MANAGER = "gitops-agent-restart"
"""Owns the annotation that asks for a rolling restart, so that our next apply does not take it away again."""

MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE, TENANT, AGENT = "gitops-agent.dev/instance", "gitops-agent.dev/tenant", "gitops-agent.dev/agent"
PLACE = "gitops-agent.dev/place"
"""On what was applied by a driver with a place of its own (``runtime.kubernetes.context``): two names of one
cluster see each other's objects as little as two clusters do."""

SPEC = "gitops-agent.dev/spec"
CONFIG_DIGEST = "gitops-agent.dev/config"
VALUES = "gitops-agent.dev/values"
"""On a Secret: the mark of the values that it was last given."""

WRITING = "gitops-agent.dev/secret"
"""On the template of pods: the writing of the Secret that they begin with."""

HEARTBEAT = "gitops-agent.dev/heartbeat"
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
CREATED_BY = "gitops-agent.dev/created-by"
"""On a namespace: the instance that made it; one without it is never deleted."""

CONTAINER = "agent"
"""The name of the container that runs the agent."""

BUNDLE_VOLUME, BUNDLE_FOLDER = "gitops-agent-bundle", "/etc/gitops-agent"
"""The volume with the agent's bundle, and where it is in the container."""

Object = Mapping[str, Any]
"""One object of the API, as JSON."""


def labels_of(instance: str, agent: AgentKey) -> dict[str, str]:
    """The labels of everything that belongs to an agent, pods included."""
    return {MANAGED_BY: MANAGER, INSTANCE: instance, TENANT: agent.tenant, AGENT: agent.name}


def selector_of(agent: AgentKey) -> dict[str, str]:
    """The labels by which a workload finds its pods: never changed, because a selector cannot be."""
    return {TENANT: agent.tenant, AGENT: agent.name}


def agent_of(labels: Mapping[str, str]) -> AgentKey | None:
    """The agent that labels name; None when they name none."""
    tenant, name = labels.get(TENANT), labels.get(AGENT)
    return AgentKey(tenant, name) if tenant and name else None


def place_labels(place: str) -> dict[str, str]:
    """The label of what a driver applies at a place; none at the default one."""
    if not place:
        return {}
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", place)
    return {PLACE: plain if plain == place and len(place) <= 63 else f"{plain[:50]}-{digest(place.encode())[:8]}"}


def place_selector(place: str) -> str:
    """The selector of what a driver applied at a place."""
    return ",".join(f"{name}={value}" for name, value in place_labels(place).items()) or f"!{PLACE}"
