"""The read side of the journal: the state in memory, and the history in the database."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection

from gitops_agent.journal import history, owed, parts, tables, window
from gitops_agent.journal.changes import VERSION
from gitops_agent.journal.sqlite import Database
from gitops_agent.journal.stored import StoredMap, StoredStatuses
from gitops_agent.model.control import Control
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Observation
from gitops_agent.model.plan import Action
from gitops_agent.model.state import CommitsState, State
from gitops_agent.model.status import CommitRecord
from gitops_agent.ports import ActionRecord, DecisionRecord, PlanRecord

T = TypeVar("T")


class SqlReader:
    """The read side of the journal; safe to use while a daemon writes, and to share between threads. Close it, or
    use it in a ``with``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._state: State | None = None
        self._owed: Mapping[str, Mapping[str, int]] | None = None
        self._version = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def state(self) -> State:
        """The state as last committed, with the controls that other processes have added since.

        Cheap: it is kept in memory, and bases, retry states, statuses, records of commits and open intents are
        read when they are first looked at. A read-only journal follows all that other processes commit."""
        with self._database.mutex:
            if self._database.others_wrote():
                self._follow_others()
            return self._current()

    def commit_record(self, sha: str) -> CommitRecord | None:
        """The record of one commit, also of one that ``state().commits`` no longer holds."""
        return self._read(window.record, sha)

    def commits(
        self, limit: int | None = None, *, tree: str | None = None, sha: str = ""
    ) -> Sequence[CommitRecord]:
        """Records of commits, newest first: all, those of one tree, those whose sha begins so."""
        return self._read(window.records, limit, tree, sha)

    def owed(self) -> Mapping[str, Mapping[str, int]]:
        """What sinks have not delivered: by the name of the sink, the shas of commits and the newest versions."""
        with self._database.mutex:
            if self._owed is None or self._database.read_only:
                self._owed = self._read(owed.read)
            return self._owed

    def entries(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[ActionRecord]:
        """Executed actions, newest first."""
        return self._read(history.entries, agent, commit, limit)

    def decisions(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[DecisionRecord]:
        """What plans decided, executed or not, newest first."""
        return self._read(history.decisions, agent, commit, limit)

    def plans(self, digest: str = "", commits: Collection[str] | None = None) -> Sequence[PlanRecord]:
        """The plans on record whose digest begins so, of some commits or of all, newest first."""
        return self._read(history.plans, digest, commits)

    def planned(self, digest: str) -> frozenset[str]:
        """The digests of the actions of a plan on record; empty when there is none."""
        return self._read(history.planned, digest)

    def carried_out(self, digest: str, since: float) -> frozenset[str]:
        """The digests of the actions of a plan that were done since a moment."""
        return self._read(history.carried_out, digest, since)

    def recently_repaired(self, since: float) -> Sequence[tuple[Action, float]]:
        """The newest actions against drift that were done since a moment, and when."""
        return self._read(history.recently_repaired, since)

    def repairs(self, key: ResourceKey, since: float) -> Sequence[float]:
        """When drift of a resource was repaired since a moment. What recovery settled is not counted."""
        return self._read(history.repairs, key, since)

    def observations(self, agent: AgentKey, *, limit: int = 100) -> Sequence[Observation]:
        """What was seen of an agent each time it changed, newest first."""
        return self._read(history.observations, agent, limit)

    def _read(self, query: Callable[..., T], *arguments: object) -> T:
        with self._database.reading() as connection:
            return query(connection, *arguments)

    # -- memory

    def _current(self) -> State:
        """The state in memory; read first if there is none."""
        if self._state is None:
            self._state, self._version = self._read(self._loaded)
        return self._state

    def _loaded(self, connection: Connection) -> tuple[State, int]:
        found = tables.state_rows(connection)
        stored = self._stored(found.get("source.head"), tables.controls(connection))
        return parts.state_of(found, stored), found.get(VERSION, 0)

    def _stored(self, head: str | None, controls: tuple[Control, ...]) -> parts.Stored:
        """The fields that have tables of their own; large ones are read when they are first looked at."""
        return {
            "commits": {"records": self._window(head).records},
            "control": {"controls": controls},
            "reconcile": {
                "attempts": StoredMap(lambda: self._read(tables.attempts)),
                "bases": StoredMap(lambda: self._read(tables.bases)),
                "open_intents": StoredMap(lambda: self._read(tables.open_intents)),
            },
            "status": {
                "agents": StoredStatuses(
                    lambda: self._read(tables.statuses), lambda agent: self._read(tables.status, agent)
                )
            },
        }

    def _window(self, head: str | None) -> CommitsState:
        return CommitsState(StoredMap(lambda: self._read(window.window, head)))

    def _follow_others(self) -> None:
        """Forget what others may have changed: beside the writer, operators add controls and nothing else."""
        if self._database.read_only:
            self._state = None
        elif self._state is not None:
            self._state = self._with_newer_controls(self._state)

    def _with_newer_controls(self, state: State) -> State:
        known = state.control.controls
        newer = self._read(tables.controls, known[-1].seq if known else 0)
        return replace(state, control=replace(state.control, controls=known + newer)) if newer else state
