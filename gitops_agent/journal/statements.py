"""The few statements the journal is written with, in SQL that every database shares."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Table, bindparam

from gitops_agent.journal.rows import Row

CHUNK_ROWS = 500


def chunks(values: Iterable[str]) -> list[list[str]]:
    """The values in parts that fit into one statement."""
    found = list(values)
    return [found[start : start + CHUNK_ROWS] for start in range(0, len(found), CHUNK_ROWS)]


def insert(connection: Connection, table: Table, values: Sequence[Row]) -> None:
    """Insert rows, if there are any."""
    if values:
        connection.execute(table.insert(), values)


def delete(connection: Connection, table: Table, column: str, values: Iterable[str | int]) -> None:
    """Delete the rows that have these values in a column."""
    if doomed := [{"doomed": value} for value in values]:
        connection.execute(table.delete().where(table.c[column] == bindparam("doomed")), doomed)


def replace(connection: Connection, table: Table, column: str, values: Iterable[Row]) -> None:
    """Insert or replace, the last of each name. Upserts differ between databases; delete and insert do not."""
    latest = {row[column]: row for row in values}
    delete(connection, table, column, latest)
    insert(connection, table, list(latest.values()))
