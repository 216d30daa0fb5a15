"""What a document asks of the process table. Pure."""

from __future__ import annotations

from gitops_agent.drivers.api import AgentKey, Compilation, Resource, ResourceKey
from gitops_agent.drivers.local.spec import runtime_key, runtime_resources

DRIVER = "process"


def process_key(agent: AgentKey) -> ResourceKey:
    """The name of an agent's processes."""
    return runtime_key(agent, DRIVER)


def resources(asked: Compilation) -> tuple[Resource, ...]:
    """The processes of an agent; Refused in one sentence when the document cannot be run this way."""
    return runtime_resources(DRIVER, asked)
