"""The journal as the stages see it: every write is one transaction, and memory follows only after it.

A commit writes the fields, and inside maps the rows, that differ from the state in memory; so a pass without news
asks the database next to nothing, and no write costs more than what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from gitops_agent.journal import (
    changes,
    history,
    intent_writes,
    migrations,
    owed,
    retention,
    rows,
    schema,
    tables,
    window,
)
from gitops_agent.journal.reader import SqlReader
from gitops_agent.journal.sqlite import FILE_NAME, Database, translated
from gitops_agent.model.control import Control
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent, Outcome
from gitops_agent.model.plan import Plan
from gitops_agent.model.state import CommitsState, State, trimmed
from gitops_agent.model.status import CommitRecord

MAX_PLANS = 1000
"""How many plans are remembered as recorded, so that the database need not be asked."""


def open_journal(state_dir: Path, *, read_only: bool = False) -> SqlJournal:
    """The journal of a state directory, created or brought up to date.

    Read-only it works while a daemon writes, and neither creates nor migrates: JournalError when there is none.
    """
    path = state_dir / FILE_NAME
    if read_only and not path.is_file():
        raise migrations.no_journal(path)
    database = Database(path, read_only=read_only)
    try:
        (migrations.require_current if read_only else migrations.bring_up_to_date)(database)
    except BaseException:
        database.close()
        raise
    return SqlJournal(database)


def has_journal(state_dir: Path) -> bool:
    """Whether anything was ever recorded in this state directory (a kill may leave the file, empty)."""
    path = state_dir / FILE_NAME
    with translated(path):
        return path.is_file() and path.stat().st_size > 0


class SqlJournal(SqlReader):
    """The journal. Every method is one durable transaction; memory follows only after it. ``commit``, ``begin``
    and ``finish`` return the state as it is now: go on with that one.

    ``inside`` is called within every transaction, when all of it is written and nothing is durable yet, with the
    name of the method: a place for tests to fail at.
    """

    inside: Callable[[str], None]

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.inside = lambda _method: None
        self._seen: dict[ResourceKey, bytes] | None = None
        self._recorded: set[tuple[str, str]] = set()

    def control(self, control: Control) -> None:
        """Append a control; the only write allowed beside a running daemon."""
        with self._database.mutex:
            with self._writing("control") as connection:
                connection.execute(schema.controls.insert().values(rows.control_row(control)))
            if self._state is not None:
                self._state = self._with_newer_controls(self._state)

    def commit(
        self,
        state: State,
        *,
        plans: Sequence[Plan] = (),
        observations: Sequence[Observation] = (),
        owed_to: Collection[str] = (),
        at: float = 0.0,
    ) -> State:
        """Write what differs from the state as last committed; no transaction when nothing does.

        Also written: the decisions of the plans (made ``at``), once per digest and commit; observations that
        differ from the last one of their resource; controls without a number; and for every record of a commit
        that changed, that each sink in ``owed_to`` owes it. Open intents are left to ``begin`` and ``finish``. The
        result holds the controls with their numbers and as many records of commits as a pass needs."""
        with self._database.mutex:
            before = self._current()
            news, seen = self._news(observations)
            found = changes.between(before, state)
            records = self._changed_records(before, found.records)
            found = replace(found, records=records, plans=self._unrecorded(plans), observations=news)
            if found:
                self._write(found, owed_to if found.records else (), at)
                if seen:
                    self._last_seen().update(seen)
            self._state = self._committed(before, state, found)
            return self._state

    def begin(self, intents: Sequence[Intent]) -> State:
        """Write intents, before any of their effects; changes nothing but ``reconcile.open_intents``.

        An id that is known is opened again in its place (a retry under the same idempotency key). An older intent
        for the same resource that is still open ends as Skipped: at most one is open per resource."""
        with self._database.mutex:
            before = self._current()
            if intents:
                known = dict(before.reconcile.open_intents)
                with self._writing("begin") as connection:
                    intent_writes.begin(connection, intents)
                opened = intent_writes.opened(known, intents)
                self._state = replace(before, reconcile=replace(before.reconcile, open_intents=opened))
            return self._current()

    def finish(
        self,
        outcomes: Sequence[Outcome],
        *,
        bases: Sequence[Base] = (),
        forgotten: Sequence[ResourceKey] = (),
        attempts: Mapping[ResourceKey, Attempt | None] | None = None,
    ) -> State:
        """Write outcomes together with the bases and retry states they imply; changes only ``reconcile``."""
        kept = {base.key: base for base in bases}
        gone = [key for key in forgotten if key not in kept]
        found = changes.Changes(bases=kept, forgotten=gone, attempts=attempts or {})
        with self._database.mutex:
            before = self._current()
            if outcomes or found:
                # Made before the transaction, so that memory never holds a change twice or not at all.
                after = intent_writes.finished(before.reconcile, outcomes, found)
                with self._writing("finish") as connection:
                    intent_writes.finish(connection, outcomes)
                    changes.write(connection, found)
                self._state = replace(before, reconcile=after)
            return self._current()

    def delivered(self, sink: str, versions: Mapping[str, int]) -> None:
        """Forget what a sink owed, by the shas of commits, up to these versions. Any thread may call it."""
        with self._database.mutex:
            known = self.owed() if versions else {}
            left = owed.without(known, sink, versions)
            if left != known:
                with self._writing("delivered") as connection:
                    owed.forget(connection, {sink: versions})
                self._owed = left

    def prune(self, before: float) -> int:
        """Drop history older than a moment; how many rows were dropped."""
        with self._database.mutex:
            state = self._current()
            with self._writing("prune") as connection:
                dropped = retention.prune(connection, before, state)
                controls = tables.controls(connection)
            self._seen = self._owed = None
            self._recorded.clear()
            self._state = replace(state, control=replace(state.control, controls=controls))
        return dropped

    @contextmanager
    def _writing(self, method: str) -> Iterator[Connection]:
        with self._database.writing() as connection:
            yield connection
            self.inside(method)

    def _write(self, found: changes.Changes, owed_to: Collection[str], at: float) -> None:
        known, version = self.owed() if owed_to else {}, self._version + 1
        with self._writing("commit") as connection:
            changes.write(connection, found, at=at)
            if owed_to:
                changes.write_owed(connection, owed_to, found.records, version)
        if owed_to:
            self._owed, self._version = owed.with_more(known, owed_to, found.records, version), version
        self._recorded |= {(plan.digest, plan.commit) for plan in found.plans}

    def _committed(self, before: State, state: State, found: changes.Changes) -> State:
        """The state after a commit: controls with numbers, and no more records than a pass needs."""
        if state.control.controls is not before.control.controls:
            state = replace(state, control=replace(state.control, controls=before.control.controls))
        if found.controls:
            state = self._with_newer_controls(state)
        if state.reconcile.open_intents is not before.reconcile.open_intents:
            opened = before.reconcile.open_intents
            state = replace(state, reconcile=replace(state.reconcile, open_intents=opened))
        if state.commits is not before.commits or state.source.head != before.source.head:
            state = replace(state, commits=self._trimmed(before, state))
        return state

    def _trimmed(self, before: State, state: State) -> CommitsState:
        head, held = state.source.head, before.commits.converged_before(before.source.head)
        found = state.commits.converged_before(head)
        if held is not None and (found is None or found.position < held.position):
            return self._window(head)  # it went back behind what is held in memory
        return trimmed(state.commits, head)

    def _changed_records(self, before: State, found: Mapping[str, CommitRecord]) -> Mapping[str, CommitRecord]:
        """The records without those that came back into memory as they are on record."""
        recalled = found.keys() - before.commits.records.keys()
        known = self._read(window.among, recalled) if recalled else {}
        return {sha: each for sha, each in found.items() if known.get(sha) != each}

    def _unrecorded(self, plans: Sequence[Plan]) -> tuple[Plan, ...]:
        """The plans whose decisions are not on record, once per digest and commit."""
        found = {(plan.digest, plan.commit): plan for plan in plans if plan.actions}
        if len(self._recorded) > MAX_PLANS:
            self._recorded.clear()
        for mark in found.keys() - self._recorded:
            if self._read(history.is_recorded, *mark):
                self._recorded.add(mark)
        return tuple(plan for mark, plan in found.items() if mark not in self._recorded)

    def _news(self, observations: Sequence[Observation]) -> tuple[list[rows.Row], dict[ResourceKey, bytes]]:
        """The rows of observations that differ from the last one of their resource, and their fingerprints."""
        marks: dict[ResourceKey, bytes] = {}
        news = []
        known = self._last_seen() if observations else {}
        for observation in observations:
            mark, key = rows.fingerprint(observation), observation.key
            if marks.get(key, known.get(key)) != mark:
                marks[key] = mark
                news.append(rows.observation_row(observation, mark))
        return news, marks

    def _last_seen(self) -> dict[ResourceKey, bytes]:
        if self._seen is None:
            self._seen = self._read(tables.fingerprints)
        return self._seen
