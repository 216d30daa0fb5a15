"""The few statements the journal is written with, in SQL that every database shares."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam

from gitops_agent.journal.rows import Row

CHUNK_ROWS = 500

K = TypeVar("K")
V = TypeVar("V")


def chunks(values: Iterable[str]) -> list[list[str]]:
    """The values in parts that fit into one statement."""
    found = list(values)
    return [found[start : start + CHUNK_ROWS] for start in range(0, len(found), CHUNK_ROWS)]


def insert(connection: Connection, table: Table, values: Sequence[Row]) -> None:
    """Insert rows, if there are any."""
    if values:
        connection.execute(table.insert(), values)


def delete(connection: Connection, table: Table, column: str, values: Iterable[Any]) -> None:
    """Delete the rows that have these values in a column."""
    if doomed := [{"doomed": value} for value in values]:
        connection.execute(table.delete().where(table.c[column] == bindparam("doomed")), doomed)


def replace(
    connection: Connection, table: Table, entries: Mapping[K, V | None], row: Callable[[K, V], Row]
) -> None:
    """Insert or replace rows by their primary key; None: there is to be none. Upserts differ between databases;
    delete and insert do not."""
    (column,) = table.primary_key.columns.keys()
    delete(connection, table, column, entries)
    insert(connection, table, [row(key, value) for key, value in entries.items() if value is not None])
