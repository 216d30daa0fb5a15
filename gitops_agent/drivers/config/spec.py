"""Which agents have a bundle file, and what is in it."""

from gitops_agent.drivers.api import AgentKey, Compilation, Kind, Resource, ResourceKey

DRIVER = "config"


def config_key(agent: AgentKey) -> ResourceKey:
    """The name of an agent's bundle."""
    return ResourceKey(agent, Kind.CONFIG.value, "bundle")


def resources(asked: Compilation) -> tuple[Resource, ...]:
    """One bundle for an agent whose runtime reads it from a file; stopped agents keep theirs."""
    if not asked.bundle_file or asked.document.spec.lifecycle == "Retired":
        return ()
    return (Resource(key=config_key(asked.agent), driver=DRIVER, fields=asked.bundle),)
