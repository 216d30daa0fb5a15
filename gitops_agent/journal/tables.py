"""Tables as the values that the state holds: whole, or as much as a pass needs, found by indexes however long the
history is."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from sys import intern
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, select

from gitops_agent.journal import rows, schema
from gitops_agent.journal.portable import by_bytes, member_is_true, member_length, member_text
from gitops_agent.journal.rows import CHUNK_ROWS, chunks
from gitops_agent.model.control import Control
from gitops_agent.model.fields import JSON
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt, Intent
from gitops_agent.model.state import MAX_RECORDS, AgentStatuses
from gitops_agent.model.status import INHERITED, AgentStatus, CommitRecord, ConditionType, Phase


def state_rows(connection: Connection) -> dict[str, JSON]:
    """The rows of the table ``state``, by name."""
    return dict(connection.execute(select(schema.state)).all())


def state_row(connection: Connection, name: str) -> JSON:
    """One row of the table ``state``; None when there is none."""
    return connection.execute(select(schema.state.c.value).where(schema.state.c.part == name)).scalar()


def bases(connection: Connection) -> dict[ResourceKey, Base]:
    """What we last applied, for every resource."""
    found = connection.execute(select(schema.bases)).yield_per(CHUNK_ROWS)
    # By position, and with words shared that repeat: tens of thousands are read at once.
    return {
        key: Base(key, intern(driver), fields, intern(commit), *more)
        for key, driver, fields, commit, *more in found
    }


def attempts(connection: Connection) -> dict[ResourceKey, Attempt]:
    """The retry state of the resources that failed."""
    return {key: Attempt(*more) for key, *more in connection.execute(select(schema.attempts))}


def open_intents(connection: Connection) -> dict[str, Intent]:
    """Intents without an outcome by id, oldest first."""
    query = select(schema.intents).where(schema.intents.c.result.is_(None)).order_by(schema.intents.c.seq)
    return {row.id: rows.intent_of(row) for row in connection.execute(query)}


def statuses(connection: Connection) -> dict[AgentKey, AgentStatus]:
    """The last reported status of every agent."""
    query = select(schema.statuses.c.value).order_by(by_bytes(schema.statuses.c.agent))
    return {status.agent: status for status in connection.execute(query).scalars()}


def status(connection: Connection, agent: AgentKey) -> AgentStatus | None:
    """The last reported status of one agent."""
    return connection.execute(select(schema.statuses.c.value).filter_by(agent=agent)).scalar()


def unsettled(connection: Connection) -> dict[AgentKey, AgentStatus]:
    """The statuses that say more than Ready, found without decoding the others: in a quiet fleet nearly all."""
    value = schema.statuses.c.value
    query = select(value).where((member_length(value, "conditions") != 1) | ~member_is_true(value, "ready"))
    return {status.agent: status for status in connection.execute(query).scalars()}


MAX_SINGLE_READS = 8
"""How many statuses are read one by one before all are."""


class StoredStatuses(AgentStatuses):
    """The statuses of the database. A few are read one by one; then, or when all are asked about, all at once.
    ``ask`` answers one of the questions of this module."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        super().__init__()
        self._read = partial(ask, statuses)
        self._ask = ask
        self._singles: dict[AgentKey, AgentStatus | None] = {}

    @cached_property
    def _unsettled(self) -> AgentStatuses:
        # What is in memory is what the state was when it was given out; the table may be newer.
        return AgentStatuses(self._known if "_known" in self.__dict__ else self._ask(unsettled))

    @cached_property
    def not_ready(self) -> frozenset[AgentKey]:
        """The agents that are not Ready."""
        return self._unsettled.not_ready

    def having(self, condition: ConditionType) -> frozenset[AgentKey]:
        """The agents with a condition, whichever but Ready."""
        return self._unsettled.having(condition)

    __contains__ = Mapping.__contains__

    def __getitem__(self, key: AgentKey) -> AgentStatus:
        if "_known" in self.__dict__ or len(self._singles) >= MAX_SINGLE_READS:
            return self._known[key]
        if key not in self._singles:
            self._singles[key] = self._ask(status, key)
        if (found := self._singles[key]) is None:
            raise KeyError(key)
        return found


def controls(connection: Connection, after: int = 0) -> tuple[Control, ...]:
    """The controls with greater numbers than one, oldest first."""
    table = schema.controls
    query = select(table).where(table.c.seq > after).order_by(table.c.seq)
    return tuple(rows.from_row(table, Control, row, seq=row.seq) for row in connection.execute(query))


def fingerprints(connection: Connection) -> dict[ResourceKey, bytes]:
    """The fingerprint of the last observation of every resource."""
    table = schema.observations
    newest = select(func.max(table.c.seq)).group_by(table.c.key)
    query = select(table.c.key, table.c.fingerprint).where(table.c.seq.in_(newest))
    return dict(connection.execute(query).all())


# -- records of commits


def records(
    connection: Connection, *conditions: ColumnElement[bool], limit: int | None = None
) -> list[CommitRecord]:
    """Records of commits for which all of this holds, newest first."""
    table = schema.commits
    query = select(table.c.value).where(*conditions).order_by(table.c.position.desc()).limit(limit)
    return list(connection.execute(query).scalars())


def records_among(connection: Connection, shas: Iterable[str]) -> dict[str, CommitRecord]:
    """The records of these commits that there are, by sha."""
    found = (each for part in chunks(shas) for each in records(connection, schema.commits.c.sha.in_(part)))
    return {each.sha: each for each in found}


def window(connection: Connection, head: str | None) -> dict[str, CommitRecord]:
    """What ``model.state.trimmed`` would leave of all records."""
    column = schema.commits.c
    other = column.sha != (head or "")
    inherited = member_text(column.value, "cause") == INHERITED
    found = (
        *records(connection, column.phase == Phase.CONVERGED, other, limit=1),
        *records(connection, column.phase == Phase.DEGRADED, inherited, other, limit=1),
    )
    converged = sorted(found, key=lambda each: -each.position)[:1]
    since = column.position >= (converged[0].position if converged else -1)
    kept = {each.sha: each for each in (*records(connection, since, limit=MAX_RECORDS), *converged)}
    if head is not None and head not in kept:
        kept.update(records_among(connection, [head]))
    for part in chunks(kept):
        kept.update((each.sha, each) for each in records(connection, column.rolled_back_by.in_(part)))
    return kept


# -- what sinks have not delivered yet: per sink and commit the newest version of the record

Owed = Mapping[str, Mapping[str, int]]

_UP_TO = schema.owed.delete().where(
    schema.owed.c.sink == bindparam("sink"),
    schema.owed.c.commit == bindparam("commit"),
    schema.owed.c.version <= bindparam("version"),
)


def owed(connection: Connection) -> Owed:
    """By the name of the sink, the shas of commits and the newest versions."""
    found: dict[str, dict[str, int]] = {}
    for sink, sha, version in connection.execute(select(schema.owed)):
        found.setdefault(sink, {})[sha] = version
    return found


def owe(connection: Connection, sinks: Iterable[str], shas: Iterable[str], version: int) -> None:
    """Write that each sink owes this version of each commit, in place of an earlier one."""
    found = [{"sink": sink, "commit": sha, "version": version} for sink in sinks for sha in shas]
    connection.execute(_UP_TO, found)
    connection.execute(schema.owed.insert(), found)


def settle(connection: Connection, sink: str, versions: Mapping[str, int]) -> None:
    """Delete what a sink owed up to these versions of commits."""
    found = [{"sink": sink, "commit": sha, "version": version} for sha, version in versions.items()]
    connection.execute(_UP_TO, found)
