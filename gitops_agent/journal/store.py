"""The journal as the stages see it: every write is one transaction, and memory follows only after it.

A commit writes the fields, and inside maps the rows, that differ from the state in memory; so a pass without news
asks the database next to nothing, and no write costs more than what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import Connection

from gitops_agent.journal import changes, migrations, retention, rows, tables
from gitops_agent.journal.database import Database
from gitops_agent.journal.history import History
from gitops_agent.journal.place import Place, SharedJournal
from gitops_agent.journal.plans import (
    TRIMMED_EVERY,
    Decided,
    Mark,
    decided,
    decision_rows,
    decisions_of,
    plan_row,
    trim,
)
from gitops_agent.journal.sqlite import FILE_NAME, SqliteDatabase, translated
from gitops_agent.model.control import Control
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.masking import Mask, masked
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent, Outcome
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.state import Bases, CommitsState, LazyMap, State, trimmed
from gitops_agent.model.status import CommitRecord
from gitops_agent.support.secrets import mask_patterns

_VERSION = "commits.version"
"""The row of the table ``state`` that counts how often records of commits were written."""

_PRUNED = "journal.pruned_at"
"""The row that keeps when old history was last dropped."""


def open_journal(
    place: Place,
    *,
    read_only: bool = False,
    mask: Mask = mask_patterns,
    writer: str = "",
    take_over: bool = False,
    leading: Callable[[], bool] = lambda: True,
) -> SqlJournal:
    """The journal of a state directory or of a shared database, created or brought up to date. ``mask``: what
    hides secrets in all text that is written.

    Read-only it works while a daemon writes, and neither creates nor migrates: JournalError when there is none.

    A shared journal has one writer at a time: ``writer`` is the name of this process, which writes under the next
    term from now on. LockHeld names another one that lives; ``take_over`` (somebody else decided that it is our
    turn) takes the term from it, and it writes nothing more. ``leading``: whether it still is our turn, asked
    before the term is ours; JournalTaken when it is not. Without a name only controls can be written.
    """
    database = _open(place, read_only=read_only, writer=writer, take_over=take_over, leading=leading)
    try:
        (migrations.require_current if read_only else migrations.bring_up_to_date)(database)
    except BaseException:
        database.close()
        raise
    return SqlJournal(database, mask)


def _open(place: Place, *, read_only: bool, writer: str, take_over: bool, leading: Callable[[], bool]) -> Database:
    if isinstance(place, SharedJournal):
        from gitops_agent.journal.postgres import PostgresDatabase  # only who shares a journal needs the package

        return PostgresDatabase(place, read_only=read_only, writer=writer, take_over=take_over, leading=leading)
    database = SqliteDatabase(place / FILE_NAME, read_only=read_only)
    if read_only and not database.path.is_file():
        raise migrations.no_journal(database)
    return database


def has_journal(place: Place) -> bool:
    """Whether anything was ever recorded there (a kill may leave a file, empty)."""
    if isinstance(place, SharedJournal):
        from gitops_agent.journal.postgres import has_tables

        return has_tables(place)
    path = place / FILE_NAME
    with translated(path):
        return path.is_file() and path.stat().st_size > 0


class SqlJournal(History):
    """The journal. Every method that writes is one durable transaction; memory follows only after it. ``commit``,
    ``begin`` and ``finish`` return the state as it is now: go on with that one. Safe to share between threads.

    Every text is masked before it is written, and memory holds what was written: whatever is made of the state or
    of history (a note, an answer, a metric) has no secret to show.

    ``inside`` is called within every transaction, when all of it is written and nothing is durable yet, with the
    name of the method: a place for tests to fail at.
    """

    inside: Callable[[str], None]

    def __init__(self, database: Database, mask: Mask) -> None:
        super().__init__(database)
        self._mask = mask
        self.inside = lambda _method: None
        self._plans_written = 0
        self._forget()

    def _forget(self) -> None:
        """Begin anew: what is in memory is read again when it is asked for."""
        self._state: State | None = None
        self._version = 0
        self._owed: tables.Owed | None = None
        self._seen: dict[ResourceKey, bytes] | None = None
        # The plans of the last commit that had any, by digest and commit: they come again while nothing moves.
        self._recorded: Collection[Mark] = ()
        # What is on record of the commits of those plans, and how many plans were written since the last trim.
        self._decided: dict[str, set[Decided]] = {}
        # The actions of the plans that were last written and held nothing to mask, by their ids.
        self._clean: dict[int, Action] = {}

    def state(self) -> State:
        """The state as last committed, with the controls that other processes have added since."""
        with self._database.mutex:
            if self._database.others_wrote():
                # Beside the writer, operators add controls and nothing else.
                if self._database.read_only:
                    self._state = None
                elif self._state is not None:
                    self._state = self._with_newer_controls(self._state)
            return self._current()

    def owed(self) -> tables.Owed:
        """What sinks have not delivered: by the name of the sink, the shas of commits and the newest versions."""
        with self._database.mutex:
            if self._owed is None or self._database.read_only:
                self._owed = self._read(tables.owed)
            return self._owed

    def control(self, control: Control) -> None:
        """Append a control; the only write allowed beside a running daemon."""
        control = masked(Control, control, self._mask)
        with self._database.mutex:
            with self._writing("control") as connection:
                changes.write(connection, changes.Changes(controls=[control]))
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

        Also written: the plans (made ``at``), once per digest and commit, with the decisions that are new;
        observations that differ from the last one of their resource; controls without a number; and for every
        record of a commit that changed, that each sink in ``owed_to`` owes it. Open intents have writes of
        their own. The result holds the controls with their numbers and as many records of commits as a pass
        needs."""
        with self._database.mutex:
            before = self._current()
            news, seen = self._news(observations)
            state = changes.masked_state(before, state, self._mask)
            found = changes.between(before, state)
            records = self._changed_records(before, found.records)
            controls = [masked(Control, control, self._mask) for control in found.controls]
            new = self._unrecorded(plans)
            decisions, on_record = self._decisions(new, at)
            found = replace(
                found,
                records=records,
                controls=controls,
                plans=[plan_row(plan, at) for plan in new],
                decisions=decisions,
                observations=news,
            )
            if found:
                self._write(found, owed_to if found.records else ())
                if seen:
                    self._last_seen().update(seen)
                self._decided = on_record or self._decided
            if plans:
                self._recorded = {(plan.digest, plan.commit) for plan in plans}
            self._state = self._committed(before, state, found)
            return self._state

    def begin(self, intents: Sequence[Intent]) -> State:
        """Write intents, before any of their effects; changes nothing but ``reconcile.open_intents``.

        An id that is known is opened again in its place (a retry under the same idempotency key). An older intent
        for the same resource that is still open ends as Skipped: at most one is open per resource."""
        intents = [self._masked_intent(intent) for intent in intents]
        with self._database.mutex:
            before = self._current()
            if intents:
                opened = changes.opened(before.reconcile.open_intents, intents)
                with self._writing("begin") as connection:
                    changes.begin_intents(connection, intents, before.reconcile.open_intents)
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
        kept = {**dict.fromkeys(forgotten), **{base.key: base for base in bases}}
        tried = {key: masked(Attempt, each, self._mask) for key, each in (attempts or {}).items()}
        found = changes.Changes(bases=kept, attempts=tried)
        outcomes = [masked(Outcome, outcome, self._mask) for outcome in outcomes]
        with self._database.mutex:
            before = self._current()
            if outcomes or found:
                # Made before the transaction, so that memory never holds a change twice or not at all.
                after = changes.finished(before.reconcile, outcomes, found)
                with self._writing("finish") as connection:
                    changes.finish_intents(connection, outcomes, before.reconcile.open_intents)
                    changes.write(connection, found)
                self._state = replace(before, reconcile=after)
            return self._current()

    def take_back(self, ids: Collection[str]) -> State:
        """Delete open intents whose effects have not begun and will not: nothing happened, so no history is made.
        Changes only ``reconcile.open_intents``."""
        with self._database.mutex:
            before = self._current()
            if ids:
                with self._writing("take_back") as connection:
                    changes.drop_intents(connection, ids)
                self._state = replace(before, reconcile=changes.without_intents(before.reconcile, ids))
            return self._current()

    def delivered(self, sink: str, versions: Mapping[str, int]) -> None:
        """Forget what a sink owed, by the shas of commits, up to these versions. Any thread may call it."""
        with self._database.mutex:
            known = self.owed().get(sink, {}) if versions else {}
            if any(known[sha] <= versions[sha] for sha in known.keys() & versions.keys()):
                with self._writing("delivered") as connection:
                    tables.settle(connection, sink, versions)
                self._owed = None

    def pruned_at(self) -> float:
        """When ``prune`` last ran here, also in an earlier process; 0 when it never did."""
        return float(self._read(tables.state_row, _PRUNED) or 0.0)

    def prune(self, before: float, at: float = 0.0) -> int:
        """Drop history older than a moment, some of it when there is much; how many rows were dropped. ``at``: the
        time, remembered for ``pruned_at``."""
        with self._database.mutex:
            state = self._current()
            with self._writing("prune") as connection:
                dropped = retention.prune(connection, before, state)
                trim(connection, state.commits.records, self._approved())
                changes.write(connection, changes.Changes(fields={_PRUNED: at}))
                controls = tables.controls(connection)
            self._seen = self._owed = None
            self._recorded, self._decided = (), {}
            self._state = replace(state, control=replace(state.control, controls=controls))
        return dropped

    @contextmanager
    def _writing(self, method: str) -> Iterator[Connection]:
        try:
            with self._database.writing(by_anyone=method == "control") as connection:
                yield connection
                self.inside(method)
        except BaseException:
            if self._database.shared:
                self._forget()  # the answer may be lost of what was done: only the database knows
            raise

    def _write(self, found: changes.Changes, owed_to: Collection[str]) -> None:
        version = self._version + 1
        if owed_to:
            found = replace(found, fields={**found.fields, _VERSION: version})
        with self._writing("commit") as connection:
            changes.write(connection, found)
            if owed_to:
                tables.owe(connection, owed_to, found.records, version)
            self._plans_written += len(found.plans)
            if self._plans_written >= TRIMMED_EVERY:
                self._plans_written = 0
                trim(connection, {row["commit"] for row in found.plans}, self._approved())
        if owed_to:
            self._owed, self._version = None, version

    # -- memory

    def _current(self) -> State:
        """The state in memory; read first if there is none."""
        if self._state is None:
            self._state, self._version = self._read(self._loaded)
        return self._state

    def _loaded(self, connection: Connection) -> tuple[State, int]:
        """The state and its version; fields that have large tables are read when they are first looked at. Every
        write to a table is preceded by a look at its map, so that is what the state was when it was given out."""
        found = tables.state_rows(connection)
        stored: changes.Stored = {
            "commits": {"records": self._window(found.get("source.head")).records},
            "control": {"controls": tables.controls(connection)},
            "reconcile": {
                "attempts": LazyMap(lambda: self._read(tables.attempts)),
                "bases": Bases(lambda: self._read(tables.bases)),
                "open_intents": LazyMap(lambda: self._read(tables.open_intents)),
            },
            "status": {"agents": tables.StoredStatuses(self._read)},
        }
        return changes.state_of(found, stored), found.get(_VERSION, 0)

    def _window(self, head: str | None) -> CommitsState:
        return CommitsState(LazyMap(lambda: self._read(tables.window, head)))

    def _with_newer_controls(self, state: State) -> State:
        known = state.control.controls
        newer = self._read(tables.controls, known[-1].seq if known else 0)
        return replace(state, control=replace(state.control, controls=known + newer)) if newer else state

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
        known = self._read(tables.records_among, recalled) if recalled else {}
        return {sha: each for sha, each in found.items() if known.get(sha) != each}

    def _unrecorded(self, plans: Sequence[Plan]) -> tuple[Plan, ...]:
        """The plans that are not on record, once per digest and commit."""
        found = {(plan.digest, plan.commit): plan for plan in plans if plan.actions}
        new = [mark for mark in found if mark not in self._recorded and not self._is_recorded(*mark)]
        made = tuple(masked(Plan, found[mark], self._mask) for mark in new)
        clean = (
            action for mark, plan in zip(new, made, strict=True) if plan is found[mark] for action in plan.actions
        )
        self._clean = {id(action): action for action in clean} or self._clean
        return made

    def _masked_intent(self, intent: Intent) -> Intent:
        """The intent masked. Its action needs no second look if its plan had nothing to mask: that is most of what
        is to be looked at, and plans are carried out within seconds."""
        if self._clean.get(id(intent.action)) is not intent.action:
            return masked(Intent, intent, self._mask)
        actor = self._mask(intent.actor)
        return intent if actor == intent.actor else replace(intent, actor=actor)

    def _decisions(self, plans: Sequence[Plan], at: float) -> tuple[list[rows.Row], dict[str, set[Decided]]]:
        """The rows of decisions that are not on record yet, and by commit what is on record with them."""
        made: list[rows.Row] = []
        known: dict[str, set[Decided]] = {}
        for plan in plans:
            if (commit := plan.commit) not in known:
                found = self._decided.get(commit)
                known[commit] = set(self._read(decisions_of, commit) if found is None else found)
            on_record = known[commit]
            made += decision_rows(plan, at, on_record)
            on_record |= {decided(action, plan) for action in plan.actions}
        return made, known

    def _approved(self) -> frozenset[str]:
        """The digests that controls name."""
        return frozenset(
            name for control in self._current().control.controls for name in (control.target, control.plan)
        )

    def _news(self, observations: Sequence[Observation]) -> tuple[list[rows.Row], dict[ResourceKey, bytes]]:
        """The rows of observations that differ from the last one of their resource, and their fingerprints."""
        marks: dict[ResourceKey, bytes] = {}
        news = []
        known = self._last_seen() if observations else {}
        for observation in observations:
            mark, key = rows.fingerprint(observation), observation.key
            if marks.get(key, known.get(key)) != mark:
                marks[key] = mark
                news.append(rows.observation_row(masked(Observation, observation, self._mask), mark))
        return news, marks

    def _last_seen(self) -> dict[ResourceKey, bytes]:
        if self._seen is None:
            self._seen = self._read(tables.fingerprints)
        return self._seen
