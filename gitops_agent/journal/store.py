"""SqlJournal: the journal on SQLAlchemy Core.

Bases and retry states are served from memory and written through, so that a pass that changes nothing asks the
database nothing. Every writing method is one durable transaction; memory follows only after it is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType

from sqlalchemy import func, select

from gitops_agent.journal import (
    history,
    intent_writes,
    migrations,
    observation_rows,
    retention,
    rows,
    schema,
    status_rows,
)
from gitops_agent.journal.rows import Decided, PlannedRow
from gitops_agent.journal.sqlite import FILE_NAME, Database, translated
from gitops_agent.journal.statements import CHUNK, chunks, delete, insert, replace
from gitops_agent.model.control import Control
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent, Outcome
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.status import AgentStatus, CommitRecord
from gitops_agent.ports import Entry


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


class SqlJournal:
    """The journal (``ports.Journal``). Close it, or use it in a ``with``. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bases: dict[ResourceKey, Base] | None = None
        self._attempts: dict[ResourceKey, Attempt] | None = None
        self._seen: dict[ResourceKey, bytes] | None = None
        self._recorded: tuple[str, str] | None = None
        self._version = 0

    def __enter__(self) -> SqlJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # -- reading

    def bases(self) -> Mapping[ResourceKey, Base]:
        """What we last applied, for every resource (a live view: do not keep it across writes)."""
        return MappingProxyType(self._loaded_bases())

    def attempts(self) -> Mapping[ResourceKey, Attempt]:
        """The retry state of the resources that failed (a live view as well)."""
        return MappingProxyType(self._loaded_attempts())

    def open_intents(self) -> Sequence[Intent]:
        """Intents without an outcome, oldest first."""
        query = select(schema.intents).where(schema.intents.c.result.is_(None)).order_by(schema.intents.c.seq)
        with self._database.reading() as connection:
            return [rows.intent_of(row) for row in connection.execute(query)]

    def statuses(self, agents: Collection[AgentKey] | None = None) -> Mapping[AgentKey, AgentStatus]:
        """The last reported status of some agents, or of all."""
        query = select(schema.statuses).order_by(schema.statuses.c.agent)
        if agents is None:
            chosen = [query]
        else:
            chosen = [query.where(schema.statuses.c.agent.in_(part)) for part in chunks(map(str, agents))]
        with self._database.reading() as connection:
            found = (status_rows.status_of(row) for part in chosen for row in connection.execute(part))
            return {status.agent: status for status in found}

    def commit(self, sha: str) -> CommitRecord | None:
        """The record of one commit."""
        with self._database.reading() as connection:
            row = connection.execute(select(schema.commits).where(schema.commits.c.sha == sha)).first()
            return None if row is None else status_rows.commit_of(row)

    def commits(self, limit: int | None = None) -> Sequence[CommitRecord]:
        """Records of commits, newest first."""
        query = select(schema.commits).order_by(schema.commits.c.position.desc()).limit(limit)
        with self._database.reading() as connection:
            return [status_rows.commit_of(row) for row in connection.execute(query)]

    def get(self, name: str) -> str | None:
        """A named value. Always asked of the database: other processes write some of them."""
        with self._database.reading() as connection:
            return connection.execute(select(schema.meta.c.value).where(schema.meta.c.name == name)).scalar()

    def entries(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        """Executed actions, newest first."""
        with self._database.reading() as connection:
            return history.entries(connection, agent, commit, limit)

    def decisions(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[Decided]:
        """What plans decided, executed or not, newest first."""
        with self._database.reading() as connection:
            return history.decisions(connection, agent, commit, limit)

    def observations(self, agent: AgentKey, *, limit: int = 100) -> Sequence[Observation]:
        """What was seen of an agent each time it changed, newest first."""
        with self._database.reading() as connection:
            return history.observations(connection, agent, limit)

    def controls(self) -> Sequence[Control]:
        """Every control, oldest first. Always asked of the database: operators write them beside a daemon."""
        with self._database.reading() as connection:
            found = connection.execute(select(schema.controls).order_by(schema.controls.c.seq))
            return [rows.control_of(row) for row in found]

    def last_control(self) -> int:
        """The number of the newest control, 0 when there is none."""
        with self._database.reading() as connection:
            return connection.execute(select(func.max(schema.controls.c.seq))).scalar() or 0

    def plans(self, digest: str = "", commits: Collection[str] | None = None) -> Sequence[PlannedRow]:
        """The plans on record whose digest begins so, of some commits or of all, newest first."""
        with self._database.reading() as connection:
            return history.plans(connection, digest, commits)

    def planned(self, digest: str) -> frozenset[str]:
        """The digests of the actions of a plan on record; empty when there is none."""
        table = schema.decisions
        with self._database.reading() as connection:
            found = connection.execute(select(table.c.digest).where(table.c.plan == digest))
            return frozenset(text for text in found.scalars() if text)

    def carried_out(self, digest: str, since: float) -> frozenset[str]:
        """The digests of the actions of a plan that were done since a moment."""
        with self._database.reading() as connection:
            return history.carried_out(connection, digest, since)

    def recently_repaired(self, since: float) -> Sequence[tuple[Action, float]]:
        """The newest actions against drift that were done since a moment, and when."""
        with self._database.reading() as connection:
            return history.recently_repaired(connection, since)

    def repairs(self, key: ResourceKey, since: float) -> Sequence[float]:
        """When drift of a resource was repaired since a moment. What a crash left and a look settled is none."""
        with self._database.reading() as connection:
            return history.repairs(connection, key, since)

    # -- writing

    def control(self, control: Control) -> None:
        """Write down what an operator or a guard said."""
        with self._database.writing() as connection:
            connection.execute(schema.controls.insert().values(rows.control_row(control)))

    def put(self, values: Mapping[str, str | None]) -> None:
        """Set named values; None removes one."""
        kept = [{"name": name, "value": value} for name, value in values.items() if value is not None]
        with self._database.writing() as connection:
            delete(connection, schema.meta, "name", values)
            insert(connection, schema.meta, kept)

    def put_commits(self, records: Sequence[CommitRecord]) -> None:
        """Insert or replace the records of commits."""
        if not records:
            return
        latest = {record.sha: record for record in records}
        with self._database.writing() as connection:
            replace(
                connection, schema.commits, "sha", [status_rows.commit_row(record) for record in latest.values()]
            )

    def record_plan(self, plan: Plan, at: float) -> None:
        """Keep the decisions of a plan, once per digest and commit."""
        mark = (plan.digest, plan.commit)
        if not plan.actions or mark == self._recorded:
            return
        table, own = schema.decisions, {"plan": plan.digest, "commit_sha": plan.commit, "at": at}
        known = select(func.count()).where(table.c.plan == plan.digest, table.c.commit_sha == plan.commit)
        with self._database.writing() as connection:
            if not connection.execute(known).scalar_one():
                decided = (rows.decision_row(action, held=action.key in plan.held) for action in plan.actions)
                insert(connection, table, [{**own, **row, "ordinal": n} for n, row in enumerate(decided)])
        self._recorded = mark

    def record_observations(self, observations: Sequence[Observation]) -> None:
        """Keep observations that differ from the last one of the same resource."""
        seen = self._last_seen()
        news: dict[ResourceKey, bytes] = {}
        fresh = []
        for observation in observations:
            mark, key = observation_rows.fingerprint(observation), observation.key
            if news.get(key, seen.get(key)) != mark:
                news[key] = mark
                fresh.append(observation_rows.observation_row(observation, mark))
        if fresh:
            with self._database.writing() as connection:
                insert(connection, schema.observations, fresh)
            seen.update(news)

    def begin(self, intents: Sequence[Intent]) -> None:
        """Write intents, before any of their effects.

        An id that is known is opened again in its place (a retry under the same idempotency key). An older intent
        for the same resource that is still open ends as Skipped: there is at most one open intent per resource.
        """
        if not intents:
            return
        with self._database.writing() as connection:
            intent_writes.begin(connection, intents)

    def finish(
        self,
        outcomes: Sequence[Outcome],
        *,
        bases: Sequence[Base] = (),
        forgotten: Sequence[ResourceKey] = (),
        attempts: Mapping[ResourceKey, Attempt | None] | None = None,
    ) -> None:
        """Write outcomes together with the bases and retry states they imply, in one transaction."""
        tries = attempts or {}
        if not (outcomes or bases or forgotten or tries):
            return
        with self._database.mutex:
            # Loaded before the transaction, so that memory never holds a change twice or not at all.
            kept, failing = self._loaded_bases(), self._loaded_attempts()
            with self._database.writing() as connection:
                intent_writes.finish(connection, outcomes)
                delete(connection, schema.bases, "key", map(str, forgotten))
                replace(connection, schema.bases, "key", [rows.base_row(base) for base in bases])
                delete(connection, schema.attempts, "key", map(str, tries))
                failed = [rows.attempt_row(key, attempt) for key, attempt in tries.items() if attempt]
                insert(connection, schema.attempts, failed)
            for key in forgotten:
                kept.pop(key, None)
            kept.update((base.key, base) for base in bases)
            for key, attempt in tries.items():
                failing.pop(key, None)
                if attempt:
                    failing[key] = attempt

    def put_statuses(self, changed: Sequence[AgentStatus], removed: Sequence[AgentKey] = ()) -> None:
        """Write the statuses that changed."""
        if not (changed or removed):
            return
        with self._database.writing() as connection:
            delete(connection, schema.statuses, "agent", map(str, removed))
            replace(connection, schema.statuses, "agent", [status_rows.status_row(status) for status in changed])

    def prune(self, before: float) -> int:
        """Retention: drop observations, decisions and finished intents older than a moment."""
        with self._database.mutex:
            with self._database.writing() as connection:
                dropped = retention.prune(connection, before)
            self._seen = self._recorded = None
        return dropped

    # -- memory

    def _loaded_bases(self) -> dict[ResourceKey, Base]:
        with self._database.mutex:
            self._forget_if_others_wrote()
            if self._bases is None:
                with self._database.reading() as connection:
                    found = map(rows.base_of, connection.execute(select(schema.bases)).yield_per(CHUNK))
                    self._bases = {base.key: base for base in found}
            return self._bases

    def _loaded_attempts(self) -> dict[ResourceKey, Attempt]:
        with self._database.mutex:
            self._forget_if_others_wrote()
            if self._attempts is None:
                with self._database.reading() as connection:
                    found = connection.execute(select(schema.attempts))
                    self._attempts = {rows.key_of(row.key): rows.attempt_of(row) for row in found}
            return self._attempts

    def _forget_if_others_wrote(self) -> None:
        """What a reader remembers holds until the writer writes. (The writer holds the lock of the directory.)"""
        version = self._database.version()
        if version != self._version:
            self._bases = self._attempts = None
            self._version = version

    def _last_seen(self) -> dict[ResourceKey, bytes]:
        with self._database.mutex:
            if self._seen is None:
                table = schema.observations
                newest = select(func.max(table.c.seq)).group_by(table.c.key)
                query = select(table.c.key, table.c.fingerprint).where(table.c.seq.in_(newest))
                with self._database.reading() as connection:
                    self._seen = {rows.key_of(key): mark for key, mark in connection.execute(query).all()}
            return self._seen
