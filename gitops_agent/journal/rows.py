"""Values to rows and back: a field is the column of its name, and ``schema.py`` says how a column is encoded."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, TypeVar

import orjson
from sqlalchemy import Connection, Delete, Dialect, Insert, Table, bindparam

from gitops_agent.journal import schema
from gitops_agent.model.observation import Observation
from gitops_agent.model.outcome import Intent, Outcome
from gitops_agent.model.plan import Action
from gitops_agent.model.status import CommitRecord

Row = dict[str, Any]
Found = Any
"""A row as SQLAlchemy gives it: columns are attributes."""

K = TypeVar("K")
V = TypeVar("V")

CHUNK_ROWS = 500

_Encoders = list[tuple[str, Callable[[Any], Any] | None]]


def to_row(table: Table, *values: Any, **more: Any) -> Row:
    """The row of a table in which some values are, with further columns."""
    for value in values:
        names, read = _common(table, value.__class__)
        more.update(zip(names, read(value), strict=True))
    return more


def from_row(table: Table, kind: Callable[..., Any], row: Found, **more: Any) -> Any:
    """The value of some type in a row of a table, with fields that are no columns."""
    names, read = _common(table, kind)
    return kind(**dict(zip(names, read(row), strict=True)), **more)


@cache
def _common(table: Table, kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The fields of a type that are columns of a table, and how they are read from a value or a row."""
    # The database gives rows their numbers.
    names = tuple(each.name for each in fields(kind) if each.name in table.c and each.name != "seq")
    return names, attrgetter(*names)


def intent_row(intent: Intent) -> Row:
    """An intent as a row without an outcome."""
    return to_row(schema.intents, intent, intent.action, agent=intent.action.key.agent)


def intent_of(row: Found) -> Intent:
    """The intent in a row."""
    intent: Intent = from_row(schema.intents, Intent, row, action=from_row(schema.intents, Action, row))
    return intent


def outcome_row(outcome: Outcome) -> Row:
    """The columns of an outcome; ``intent_id`` names the row they belong to."""
    return {
        "intent_id": outcome.intent,
        "result": outcome.result,
        "outcome": outcome.message,
        "finished_at": outcome.at,
        "duration": outcome.duration,
        "outcome_handle": outcome.handle,
        "permanent": outcome.permanent,
    }


def commit_row(record: CommitRecord) -> Row:
    """The record of a commit as a row. ``settled_at``: what retention counts from."""
    settled_at = record.seen_at if record.finished_at is None else record.finished_at
    return to_row(schema.commits, record, settled_at=settled_at, value=record)


def observation_row(observation: Observation, mark: bytes) -> Row:
    """An observation and its fingerprint as a row."""
    own = {"agent": observation.key.agent, "fingerprint": mark, "value": observation}
    return to_row(schema.observations, observation, **own)


def fingerprint(observation: Observation) -> bytes:
    """Eight bytes that change when the observation says something else.

    Times are left out (when it was seen, when the evidence was taken), and so are heartbeats: an agent at work is
    not a new state, and a row per agent and pass would bury the ones that matter.
    """
    seen, health = observation, observation.health
    rest = (
        seen.driver,
        seen.owner,
        seen.state,
        seen.reason,
        seen.message,
        seen.address,
        seen.live,
        [(item.source, item.said) for item in seen.evidence],
        [(item.id, item.started_at, item.ready, item.address) for item in seen.instances],
        health and (health.state, health.reason, health.message),
    )
    content = b"-" if seen.fields is None else seen.fields.raw
    return blake2b(b"\0".join((content, seen.handle.raw, _stable(rest))), digest_size=8).digest()


def _stable(value: object) -> bytes:
    """Bytes that are the same for equal values, whatever the order of keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # text that is not Unicode
        return json.dumps(value, sort_keys=True, default=str).encode()


# -- the few statements the journal is written with, in SQL that every database shares


def chunks(values: Iterable[str]) -> list[list[str]]:
    """The values in parts that fit into one statement."""
    found = list(values)
    return [found[start : start + CHUNK_ROWS] for start in range(0, len(found), CHUNK_ROWS)]


def insert(connection: Connection, table: Table, values: Sequence[Row]) -> None:
    """Insert rows, if there are any; all of them have the columns of the first."""
    if not values:
        return
    if len(values) == 1 or not connection.dialect.positional:
        connection.execute(_insert(table), values)
        return
    # Thousands of rows at a first convergence: what SQLAlchemy does for each of them takes longer than SQLite.
    statement, encoders = _positional_insert(table, tuple(values[0]), connection.dialect)
    encoded = [
        tuple([row[name] if encode is None else encode(row[name]) for name, encode in encoders]) for row in values
    ]
    connection.exec_driver_sql(statement, encoded)


def delete(connection: Connection, table: Table, column: str, values: Iterable[Any]) -> None:
    """Delete the rows that have these values in a column."""
    if doomed := [{"doomed": value} for value in values]:
        connection.execute(_delete(table, column), doomed)


# Made once: to build a statement takes as long as to carry it out.


@cache
def _insert(table: Table) -> Insert:
    return table.insert()


def _positional_insert(table: Table, names: tuple[str, ...], dialect: Dialect) -> tuple[str, _Encoders]:
    """The text of the statement, and how the value of each of its parameters is encoded, in their order."""
    known = _statements(dialect)
    if (table, names) not in known:
        compiled = table.insert().compile(dialect=dialect, column_keys=names)
        types = {name: table.c[name].type.dialect_impl(dialect) for name in names}
        encoders: _Encoders = [(name, types[name].bind_processor(dialect)) for name in compiled.positiontup or ()]
        known[table, names] = (str(compiled), encoders)
    return known[table, names]


@lru_cache(maxsize=8)
def _statements(dialect: Dialect) -> dict[tuple[Table, tuple[str, ...]], tuple[str, _Encoders]]:  # noqa: ARG001
    """The statements of one database, made when they are first needed."""
    return {}


@cache
def _delete(table: Table, column: str) -> Delete:
    return table.delete().where(table.c[column] == bindparam("doomed"))


def replace_rows(
    connection: Connection, table: Table, entries: Mapping[K, V | None], row: Callable[[K, V], Row]
) -> None:
    """Insert or replace rows by their primary key; None: there is to be none. Upserts differ between databases;
    delete and insert do not."""
    (column,) = table.primary_key.columns.keys()
    delete(connection, table, column, entries)
    insert(connection, table, [row(key, value) for key, value in entries.items() if value is not None])
