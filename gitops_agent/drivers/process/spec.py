"""What a document asks of the process table. Pure."""

from __future__ import annotations

from gitops_agent.drivers.local.spec import runtime_key, runtime_resources
from gitops_agent.model.agent import Resource
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.key import AgentKey, ResourceKey

DRIVER = "process"


def process_key(agent: AgentKey) -> ResourceKey:
    """The name of an agent's processes."""
    return runtime_key(agent, DRIVER)


def resources(agent: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
    """The processes of an agent; ValueError in one sentence when the document cannot be run this way."""
    return runtime_resources(DRIVER, agent, document)
