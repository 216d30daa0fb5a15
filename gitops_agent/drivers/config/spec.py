"""Which agents have a bundle file, and what is in it."""

from __future__ import annotations

from gitops_agent.model.agent import Resource
from gitops_agent.model.bundle import bundle
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.key import AgentKey, Kind, ResourceKey

DRIVER = "config"
LOCAL_RUNTIMES = frozenset({"process"})


def config_key(agent: AgentKey) -> ResourceKey:
    """The name of an agent's bundle."""
    return ResourceKey(agent, Kind.CONFIG.value, "bundle")


def resources(agent: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
    """One bundle for an agent on a local runtime; stopped agents keep theirs."""
    spec = document.spec
    if spec.runtime.driver not in LOCAL_RUNTIMES or spec.lifecycle == "Retired":
        return ()
    return (Resource(key=config_key(agent), driver=DRIVER, fields=bundle(agent, document)),)
