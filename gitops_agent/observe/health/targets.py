"""Which agents are asked for their health, and by which spec: the one last applied, or else the desired one."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gitops_agent.drivers.api import Executing
from gitops_agent.model.agent import Agent, Lifecycle, Resource
from gitops_agent.model.catalog import BUILT_IN, Catalog
from gitops_agent.model.health import Health
from gitops_agent.model.health_spec import read_health
from gitops_agent.model.key import Kind, ResourceKey, Scope
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.observe.health.history import HealthTarget


@dataclass(frozen=True, slots=True)
class HealthSources:
    """What targets are made of besides the snapshot. ``executing``: how a driver runs commands as an agent."""

    seen: Mapping[ResourceKey, Observation]
    bases: Mapping[ResourceKey, Base]
    executing: Callable[[str], Executing | None] = lambda _driver: None
    catalog: Catalog = BUILT_IN


def health_targets(snapshot: Snapshot, scope: Scope, sources: HealthSources) -> list[HealthTarget]:
    """One target for each agent in scope that has a runtime."""
    agents = snapshot.agents.values() if scope is None else (snapshot.agents.get(key) for key in scope)
    found = []
    for agent in agents:
        if agent is None or agent.lifecycle is Lifecycle.RETIRED:
            continue
        runtime = next((each for each in agent.resources if each.key.kind == Kind.RUNTIME), None)
        if runtime is not None:
            found.append(_target(agent, runtime, sources))
    return found


def _target(agent: Agent, runtime: Resource, sources: HealthSources) -> HealthTarget:
    seen = sources.seen.get(runtime.key)
    others = tuple(_others(agent, runtime, sources))
    if runtime.stopped:  # nothing is asked of it but that it stops
        return HealthTarget(agent.key, seen, stopped=True, kept=runtime.kept, others=others)
    known = sources.bases.get(runtime.key)
    running = seen is not None and seen.fields is not None
    return HealthTarget(
        agent.key,
        seen,
        read_health(known.fields if known is not None else runtime.fields),
        executing=sources.executing(runtime.driver) if running else None,
        asked_since=known.applied_at if known is not None else None,
        suspicion=_suspicion(seen, sources.catalog),
        others=others,
    )


def _suspicion(seen: Observation | None, catalog: Catalog) -> str | None:
    """The reason of a driver by which it reports a live agent to be stuck."""
    if seen is None or seen.reason is None or seen.fields is None:
        return None
    reason = catalog.reasons.get((seen.driver, seen.reason))
    return seen.reason if reason is not None and reason.cross_check else None


def _others(agent: Agent, runtime: Resource, sources: HealthSources) -> Iterator[Health]:
    for resource in agent.resources:
        seen = sources.seen.get(resource.key) if resource is not runtime else None
        if seen is not None and seen.health is not None:
            yield seen.health
