"""Who is to be judged healthy, and by which spec: the one last applied, or the desired one before that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from gitops_agent.model.agent import Agent, Lifecycle, Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import Kind, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import Driver, Scope
from gitops_agent.reconcile.health import DEFAULTS, Subject


def subjects(
    snapshot: Snapshot,
    seen: Mapping[ResourceKey, Observation],
    bases: Mapping[ResourceKey, Base],
    scope: Scope,
    drivers: Iterable[Driver],
) -> list[Subject]:
    """One subject for each agent in scope that has a runtime."""
    runners = {driver.name: driver.runner for driver in drivers}
    agents = snapshot.agents.values() if scope is None else (snapshot.agents.get(key) for key in scope)
    found = []
    for agent in agents:
        if agent is None or agent.lifecycle is Lifecycle.RETIRED:
            continue
        runtime = _first(agent, Kind.RUNTIME)
        if runtime is not None:
            # Of an agent that is to be stopped nothing is asked but that it stops.
            spec = DEFAULTS if runtime.dormant else _enforced(_first(agent, Kind.HEALTH), bases)
            observation = seen.get(runtime.key)
            known = bases.get(runtime.key)
            fields = known.fields if known and not runtime.dormant else runtime.fields
            found.append(
                Subject(agent.key, observation, fields, spec, runtime.dormant, runners.get(runtime.driver))
            )
    return found


def _first(agent: Agent, kind: Kind) -> Resource | None:
    for resource in agent.resources:
        if resource.key.kind == kind:
            return resource
    return None


def _enforced(health: Resource | None, bases: Mapping[ResourceKey, Base]) -> Mapping[str, object]:
    if health is None:
        return DEFAULTS
    base = bases.get(health.key)
    return _decoded(base.fields if base else health.fields)


@lru_cache(4096)  # most agents of a fleet are asked the same, pass after pass
def _decoded(spec: Fields) -> Mapping[str, object]:
    return spec.value
