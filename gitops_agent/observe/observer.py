"""Looking at the live systems for a pass: ask the drivers, judge health, look again at what was touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor

from gitops_agent.drivers.plugins import Connections
from gitops_agent.model.agent import Resource
from gitops_agent.model.catalog import Catalog
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.observe import Observed, observe
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.targets import HealthSources, health_targets
from gitops_agent.ports import JournalReader, Scope
from gitops_agent.status.proceedings import Look


class Lookout:
    """The eyes of a pipeline."""

    def __init__(
        self, drivers: Connections, monitor: HealthMonitor, journal: JournalReader, eyes: Executor
    ) -> None:
        self._drivers = drivers
        self._monitor = monitor
        self._journal = journal
        self._eyes = eyes

    @property
    def catalog(self) -> Catalog:
        """The kinds and reasons of the installed drivers."""
        return self._drivers.plugins.catalog

    def observe(self, desired: Snapshot, scope: Scope) -> Observed:
        """What is live within the scope, and what stands in the way of what is desired."""
        bases = self._journal.bases()
        return observe(self._drivers, scope, bases, self._eyes, _resources(desired, scope))

    def look(self, snapshot: Snapshot, scope: Scope) -> Look:
        """What is live within the scope, and how healthy it is."""
        return self.judge(self.observe(snapshot, scope), snapshot, scope)

    def judge(self, observed: Observed, snapshot: Snapshot, scope: Scope) -> Look:
        """How healthy what was seen is, measured by what this snapshot asks of it."""
        drivers = self._drivers
        sources = HealthSources(observed.seen, self._journal.bases(), drivers.executing, drivers.plugins.catalog)
        return Look(observed, self._monitor.evaluate(health_targets(snapshot, scope, sources), scope), scope)

    def again(self, snapshot: Snapshot, look: Look, actions: Iterable[Action]) -> Look:
        """What was touched is looked at once more, so that the report says how things are now."""
        touched = frozenset(action.key.agent for action in actions if action.verb.touches_live)
        if not touched:
            return look
        fresh = self.look(snapshot, touched)
        kept = {key: seen for key, seen in look.observed.seen.items() if key.agent not in touched}
        merged = Observed(
            kept | dict(fresh.observed.seen), {**look.observed.unreachable, **fresh.observed.unreachable}
        )
        return Look(merged, {**look.health, **fresh.health}, look.scope)

    def due(self) -> frozenset[AgentKey]:
        """The agents that must be looked at now."""
        return self._monitor.due()

    def next_due(self) -> float | None:
        """Seconds until somebody must be looked at again."""
        return self._monitor.next_due()

    def forget(self, agents: Iterable[AgentKey]) -> None:
        """These left Git."""
        self._monitor.forget(agents)


def _resources(snapshot: Snapshot, scope: Scope) -> Iterator[Resource]:
    """The desired resources in scope."""
    agents = snapshot.agents.values() if scope is None else (snapshot.agents.get(key) for key in scope)
    return (resource for agent in agents if agent is not None for resource in agent.resources)
