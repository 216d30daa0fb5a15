"""Looking at the live systems for a pass: ask the drivers, judge health, look again at what was touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor

from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Action
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.observe import Observed, observe
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.targets import subjects
from gitops_agent.ports import Claims, Driver, JournalReader, Scope
from gitops_agent.status.proceedings import Look


class Lookout:
    """The eyes of a pipeline."""

    def __init__(
        self, drivers: tuple[Driver, ...], monitor: HealthMonitor, journal: JournalReader, eyes: Executor
    ) -> None:
        self._drivers = drivers
        self._monitor = monitor
        self._journal = journal
        self._eyes = eyes

    def observe(self, desired: Snapshot, scope: Scope) -> Observed:
        """What is live within the scope, and what stands in the way of what is desired."""
        bases = self._journal.bases()
        return observe(self._drivers, scope, bases, self._eyes, _claims(desired, scope, bases))

    def look(self, snapshot: Snapshot, scope: Scope) -> Look:
        """What is live within the scope, and how healthy it is."""
        return self.judge(self.observe(snapshot, scope), snapshot, scope)

    def judge(self, observed: Observed, snapshot: Snapshot, scope: Scope) -> Look:
        """How healthy what was seen is, measured by what this snapshot asks of it."""
        judged = subjects(snapshot, observed.seen, self._journal.bases(), scope, self._drivers)
        return Look(observed, self._monitor.judge(judged, scope), scope)

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


def _claims(snapshot: Snapshot, scope: Scope, bases: Mapping[ResourceKey, Base]) -> Claims:
    """What is desired and not on record: something foreign may stand in its place."""
    agents = snapshot.agents.values() if scope is None else (snapshot.agents.get(key) for key in scope)
    resources = (resource for agent in agents if agent is not None for resource in agent.resources)
    return {resource.key: resource for resource in resources if resource.key not in bases}
