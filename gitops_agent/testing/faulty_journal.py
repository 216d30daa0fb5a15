"""A journal with fault points around every write: ``journal.commit:before``, ``:inside`` and ``:after``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from gitops_agent.model.control import Control
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent, Outcome
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.state import State
from gitops_agent.model.status import CommitRecord
from gitops_agent.ports import ActionRecord, DecisionRecord, Journal, PlanRecord
from gitops_agent.testing.faults import FaultInjector


class TransactionalJournal(Journal, Protocol):
    """A journal that calls ``inside`` within each transaction, after its statements and before its end."""

    inside: Callable[[str], None]


class FaultyJournal:
    """Passes everything on. A fault before a write prevents it, one inside it takes all of it back, one after it
    comes when it is durable."""

    def __init__(self, journal: TransactionalJournal, injector: FaultInjector) -> None:
        self._journal = journal
        self._injector = injector
        journal.inside = lambda method: injector.reach(f"journal.{method}:inside")

    @contextmanager
    def _write(self, method: str) -> Iterator[Journal]:
        self._injector.reach(f"journal.{method}:before")
        yield self._journal
        self._injector.reach(f"journal.{method}:after")

    def state(self) -> State:
        """Passed on: reading cannot crash halfway."""
        return self._journal.state()

    def commit_record(self, sha: str) -> CommitRecord | None:
        """Passed on."""
        return self._journal.commit_record(sha)

    def commits(
        self, limit: int | None = None, *, tree: str | None = None, sha: str = ""
    ) -> Sequence[CommitRecord]:
        """Passed on."""
        return self._journal.commits(limit, tree=tree, sha=sha)

    def owed(self) -> Mapping[str, Mapping[str, int]]:
        """Passed on."""
        return self._journal.owed()

    def entries(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[ActionRecord]:
        """Passed on."""
        return self._journal.entries(agent=agent, commit=commit, limit=limit)

    def decisions(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[DecisionRecord]:
        """Passed on."""
        return self._journal.decisions(agent=agent, commit=commit, limit=limit)

    def plans(self, digest: str = "", commits: Collection[str] | None = None) -> Sequence[PlanRecord]:
        """Passed on."""
        return self._journal.plans(digest, commits)

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
        """Passed on."""
        return self._journal.observations(agent, limit=limit)

    def control(self, control: Control) -> None:
        """A write between its points."""
        with self._write("control") as journal:
            journal.control(control)

    def commit(
        self,
        state: State,
        *,
        plans: Sequence[Plan] = (),
        observations: Sequence[Observation] = (),
        owed_to: Collection[str] = (),
        at: float = 0.0,
    ) -> State:
        """A write between its points."""
        with self._write("commit") as journal:
            return journal.commit(state, plans=plans, observations=observations, owed_to=owed_to, at=at)

    def begin(self, intents: Sequence[Intent]) -> State:
        """A write between its points."""
        with self._write("begin") as journal:
            return journal.begin(intents)

    def finish(
        self,
        outcomes: Sequence[Outcome],
        *,
        bases: Sequence[Base] = (),
        forgotten: Sequence[ResourceKey] = (),
        attempts: Mapping[ResourceKey, Attempt | None] | None = None,
    ) -> State:
        """A write between its points."""
        with self._write("finish") as journal:
            return journal.finish(outcomes, bases=bases, forgotten=forgotten, attempts=attempts)

    def delivered(self, sink: str, versions: Mapping[str, int]) -> None:
        """A write between its points."""
        with self._write("delivered") as journal:
            journal.delivered(sink, versions)

    def prune(self, before: float) -> int:
        """A write between its points."""
        with self._write("prune") as journal:
            return journal.prune(before)
