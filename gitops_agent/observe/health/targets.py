"""Who is to be judged healthy, and by which spec: the one last applied, or the desired one before that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from gitops_agent.model.agent import Agent, Lifecycle, Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import Kind, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.observe.health.history import DEFAULTS, Subject
from gitops_agent.ports import Driver, Runner, Scope


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
            found.append(_subject(agent, runtime, seen.get(runtime.key), bases, runners.get(runtime.driver)))
    return found


def _subject(
    agent: Agent,
    runtime: Resource,
    seen: Observation | None,
    bases: Mapping[ResourceKey, Base],
    runner: Runner | None,
) -> Subject:
    if runtime.dormant:  # nothing is asked of it but that it stops
        return Subject(agent.key, seen, runtime.fields, DEFAULTS, dormant=True, runner=runner)
    known = bases.get(runtime.key)
    health = _first(agent, Kind.HEALTH)
    asked = bases.get(health.key) if health is not None else None
    return Subject(
        agent.key,
        seen,
        known.fields if known else runtime.fields,
        _enforced(health, asked),
        runner=runner,
        asked_since=asked.applied_at if asked else None,
    )


def _first(agent: Agent, kind: Kind) -> Resource | None:
    for resource in agent.resources:
        if resource.key.kind == kind:
            return resource
    return None


def _enforced(health: Resource | None, asked: Base | None) -> Mapping[str, object]:
    if health is None:
        return DEFAULTS
    return _decoded(asked.fields if asked else health.fields)


@lru_cache(4096)  # most agents of a fleet are asked the same, pass after pass
def _decoded(spec: Fields) -> Mapping[str, object]:
    return spec.value
