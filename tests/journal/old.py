"""Journals of the oldest version, on either database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, MetaData, create_engine, event, select, text

from gitops_agent.journal.place import Place, SharedJournal
from gitops_agent.journal.portable import count_on
from gitops_agent.journal.postgres import PostgresDatabase
from gitops_agent.journal.sqlite import FILE_NAME

VERSION_4 = (Path(__file__).parent / "version_4.sql").read_text()


def put_version_4(place: Place) -> None:
    """Write the journal of the oldest version into a place."""
    if not isinstance(place, SharedJournal):
        place.mkdir(exist_ok=True)
        connection = sqlite3.connect(place / FILE_NAME)
        connection.executescript(VERSION_4)
        connection.close()
        return
    database = PostgresDatabase(place, read_only=False)
    with database.engine.begin() as connection:
        _copy_version_4(connection)
    database.close()


def _copy_version_4(target: Connection) -> None:
    """Make the tables that the old version would have made here, with what it would have written."""
    engine = create_engine("sqlite://")
    event.listen(engine, "connect", lambda found, _: found.executescript(VERSION_4))
    with engine.connect() as source:
        metadata = MetaData()
        metadata.reflect(source)
        for column in (column for table in metadata.tables.values() for column in table.c):
            column.type, column.server_default = column.type.as_generic(), None
        metadata.create_all(target)
        for table in metadata.sorted_tables:
            rows = [dict(row) for row in source.execute(select(table)).mappings()]
            if rows:
                target.execute(table.insert(), rows)
            if "seq" in table.c and rows:
                count_on(target, table)
    engine.dispose()


def tables_of(place: SharedJournal) -> dict[str, list[tuple[object, ...]]]:
    """Columns, keys and indexes of every table of a shared journal, in any order."""
    database = PostgresDatabase(place, read_only=True)
    with database.engine.connect() as connection:
        columns = text(
            "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
            "WHERE table_schema = :schema ORDER BY 1, 2"
        )
        found: dict[str, list[tuple[object, ...]]] = {}
        for name, *rest in connection.execute(columns, {"schema": place.schema}):
            found.setdefault(name, []).append(tuple(rest))
        keys = text(
            "SELECT t.relname, regexp_replace(pg_get_indexdef(i.indexrelid), '^.* ON [^ ]+ ', '') "
            "FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid "
            "WHERE t.relnamespace = to_regnamespace(:schema) ORDER BY 1, 2"
        )
        for name, *rest in connection.execute(keys, {"schema": place.schema}):
            found[name].append(tuple(rest))
    database.close()
    return found
