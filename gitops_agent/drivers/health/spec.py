"""What a document asks of an agent's health, when it asks anything."""

from __future__ import annotations

from gitops_agent.model.agent import Resource
from gitops_agent.model.document import AgentDocument, Probes, Runtime
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, Kind, ResourceKey

DRIVER = "health"
NO_PROBES = Probes()
MIN_UPTIME: str = Runtime.model_fields["min_uptime"].default


def health_key(agent: AgentKey) -> ResourceKey:
    """The name of an agent's health record."""
    return ResourceKey(agent, Kind.HEALTH.value, "probes")


def resources(agent: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
    """One record when probes, heartbeat or minUptime are not the defaults."""
    spec = document.spec
    plain = spec.probes == NO_PROBES and spec.heartbeat is None and spec.runtime.min_uptime == MIN_UPTIME
    if plain or spec.lifecycle == "Retired":
        return ()
    fields = {
        "probes": spec.probes.model_dump(by_alias=True),
        "heartbeat": spec.heartbeat.model_dump(by_alias=True) if spec.heartbeat else None,
        "minUptime": spec.runtime.min_uptime,
    }
    return (Resource(key=health_key(agent), driver=DRIVER, fields=Fields.of(fields)),)
