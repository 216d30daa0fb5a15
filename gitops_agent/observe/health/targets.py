"""Which agents are asked for their health, and by which spec: the one last applied, or else the desired one."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from gitops_agent.drivers.api import Executing
from gitops_agent.drivers.plugins import Connections
from gitops_agent.model.agent import Agent, Lifecycle, Resource
from gitops_agent.model.catalog import Catalog
from gitops_agent.model.health import Health
from gitops_agent.model.health_spec import DEFAULTS, read_health, with_asked_before
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.passes import Live
from gitops_agent.model.snapshot import Snapshot, agents_in

START_MARGIN_SECONDS = 2.0
"""How exactly the start of a process is known, in seconds."""

ProbeSpec = Mapping[str, Any]


class HealthTarget(NamedTuple):
    """One agent whose health is asked for: what was observed of its runtime.
    ``spec``: the probes and heartbeat in force; ``asked_since``: since when, None when they are not on record yet.
    ``kept``: stopped is not absence (``model.agent.Resource``). ``suspicion``: the driver's reason code when it
    reports a live agent to be stuck. ``others``: the health of the agent's other resources."""

    agent: AgentKey
    runtime: Observation | None
    spec: Mapping[str, Any] = DEFAULTS
    stopped: bool = False
    executing: Executing | None = None
    asked_since: float | None = None
    kept: bool = False
    suspicion: str | None = None
    others: tuple[Health, ...] = ()

    @property
    def copies(self) -> "tuple[HealthTarget, ...]":
        """One target for each running copy, with what is about it alone: each has a health of its own."""
        seen = self.runtime
        if seen is None or len(seen.instances) < 2:
            return (self,)
        named = any(each.reason for each in seen.instances)
        return tuple(
            self._replace(
                runtime=replace(seen, instances=(each,)), suspicion=each.reason if named else self.suspicion
            )
            for each in seen.instances
        )

    @property
    def instance(self) -> str:
        """The id of the one copy that it is about."""
        return self.runtime.instances[0].id if self.runtime is not None and self.runtime.instances else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where HTTP probes go: each address of an instance, or else that of the runtime."""
        if self.runtime is None:
            return ()
        own = dict.fromkeys(each.address for each in self.runtime.instances if each.address)
        return tuple(own) or ((self.runtime.address,) if self.runtime.address else ())

    def began_with(self, started_at: float) -> bool:
        """Whether an agent that started then has run under the present probes from its start."""
        return self.asked_since is None or started_at >= self.asked_since - START_MARGIN_SECONDS

    @property
    def probes(self) -> dict[str, ProbeSpec]:
        """The probes that are asked for, by name."""
        asked = self.spec.get("probes")
        return {name: spec for name, spec in asked.items() if spec} if asked else {}


def health_targets(
    snapshot: Snapshot, live: Live, bases: Mapping[ResourceKey, Base], drivers: Connections
) -> list[HealthTarget]:
    """One target for each agent in scope that has a runtime."""
    seen, catalog = live.observed.seen, drivers.plugins.catalog
    executing = cache(drivers.executing)  # a driver has one answer for all of its agents
    retired, kind = Lifecycle.RETIRED, Kind.RUNTIME  # looked up once: they are asked for of every agent
    found = []
    for agent in agents_in(snapshot, live.scope):
        runtimes = [each for each in agent.resources if each.key.kind == kind]
        if agent.lifecycle is retired or not runtimes:
            continue
        runtime = runtimes[0]
        own, others = seen.get(runtime.key), _others(agent, runtime, seen)
        if runtime.stopped:  # nothing is asked of it but that it stops
            found.append(HealthTarget(agent.key, own, stopped=True, kept=runtime.kept, others=others))
            continue
        known = bases.get(runtime.key)
        fields, since = (known.fields, known.applied_at) if known is not None else (runtime.fields, None)
        spec, before = read_health(fields), agent.earlier_health
        found.append(
            HealthTarget(
                agent.key,
                own,
                spec if before is None else with_asked_before(spec, before.value),
                executing=executing(runtime.driver) if own is not None and own.fields is not None else None,
                asked_since=since,
                suspicion=_suspicion(own, catalog),
                others=others,
            )
        )
    return found


def _suspicion(seen: Observation | None, catalog: Catalog) -> str | None:
    """The reason of a driver by which it reports a live agent to be stuck."""
    if seen is None or seen.reason is None or seen.fields is None:
        return None
    reason = catalog.reason(seen.driver, seen.reason)
    return seen.reason if reason is not None and reason.cross_check else None


def _others(agent: Agent, runtime: Resource, seen: Mapping[ResourceKey, Observation]) -> tuple[Health, ...]:
    """What drivers report of the health of an agent's other resources."""
    observed = [seen.get(each.key) for each in agent.resources if each is not runtime]
    reported = [each.health for each in observed if each is not None and each.health is not None]
    return tuple(reported) if reported else ()
