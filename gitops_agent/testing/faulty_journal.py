"""A journal with a fault point around every write: ``journal.begin:before``, ``journal.begin:after`` and so on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gitops_agent.model.control import Control
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent, Outcome
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.status import AgentStatus, CommitRecord
from gitops_agent.ports import Entry, Journal
from gitops_agent.testing.faults import FaultInjector


class FaultyJournal:
    """Passes everything on; a fault before a write prevents it, one after it comes when it is durable."""

    def __init__(self, journal: Journal, injector: FaultInjector) -> None:
        self._journal = journal
        self._injector = injector

    @contextmanager
    def _write(self, method: str) -> Iterator[Journal]:
        self._injector.reach(f"journal.{method}:before")
        yield self._journal
        self._injector.reach(f"journal.{method}:after")

    def bases(self) -> Mapping[ResourceKey, Base]:
        """Passed on."""
        return self._journal.bases()

    def attempts(self) -> Mapping[ResourceKey, Attempt]:
        """Passed on."""
        return self._journal.attempts()

    def open_intents(self) -> Sequence[Intent]:
        """Passed on."""
        return self._journal.open_intents()

    def statuses(self, agents: Collection[AgentKey] | None = None) -> Mapping[AgentKey, AgentStatus]:
        """Passed on."""
        return self._journal.statuses(agents)

    def commit(self, sha: str) -> CommitRecord | None:
        """Passed on."""
        return self._journal.commit(sha)

    def commits(self, limit: int | None = None) -> Sequence[CommitRecord]:
        """Passed on."""
        return self._journal.commits(limit)

    def get(self, name: str) -> str | None:
        """Passed on."""
        return self._journal.get(name)

    def controls(self) -> Sequence[Control]:
        """Passed on."""
        return self._journal.controls()

    def last_control(self) -> int:
        """Passed on."""
        return self._journal.last_control()

    def planned(self, digest: str) -> frozenset[str]:
        """Passed on."""
        return self._journal.planned(digest)

    def carried_out(self, digest: str, since: float) -> frozenset[str]:
        """Passed on."""
        return self._journal.carried_out(digest, since)

    def recently_repaired(self, since: float) -> Sequence[tuple[Action, float]]:
        """Passed on."""
        return self._journal.recently_repaired(since)

    def repairs(self, key: ResourceKey, since: float) -> Sequence[float]:
        """Passed on."""
        return self._journal.repairs(key, since)

    def observations(self, agent: AgentKey, *, limit: int = 100) -> Sequence[Observation]:
        """Passed on: reading cannot crash halfway."""
        return self._journal.observations(agent, limit=limit)

    def control(self, control: Control) -> None:
        """A fault on either side."""
        with self._write("control") as journal:
            journal.control(control)

    def entries(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        """Passed on."""
        return self._journal.entries(agent=agent, commit=commit, limit=limit)

    def put(self, values: Mapping[str, str | None]) -> None:
        """A write between two points."""
        with self._write("put") as journal:
            journal.put(values)

    def put_commits(self, records: Sequence[CommitRecord]) -> None:
        """A write between two points."""
        with self._write("put_commits") as journal:
            journal.put_commits(records)

    def record_plan(self, plan: Plan, at: float) -> None:
        """A write between two points."""
        with self._write("record_plan") as journal:
            journal.record_plan(plan, at)

    def record_observations(self, observations: Sequence[Observation]) -> None:
        """A write between two points."""
        with self._write("record_observations") as journal:
            journal.record_observations(observations)

    def begin(self, intents: Sequence[Intent]) -> None:
        """A write between two points."""
        with self._write("begin") as journal:
            journal.begin(intents)

    def finish(
        self,
        outcomes: Sequence[Outcome],
        *,
        bases: Sequence[Base] = (),
        forgotten: Sequence[ResourceKey] = (),
        attempts: Mapping[ResourceKey, Attempt | None] | None = None,
    ) -> None:
        """A write between two points."""
        with self._write("finish") as journal:
            journal.finish(outcomes, bases=bases, forgotten=forgotten, attempts=attempts)

    def put_statuses(self, changed: Sequence[AgentStatus], removed: Sequence[AgentKey] = ()) -> None:
        """A write between two points."""
        with self._write("put_statuses") as journal:
            journal.put_statuses(changed, removed)

    def prune(self, before: float) -> int:
        """A write between two points."""
        with self._write("prune") as journal:
            return journal.prune(before)
