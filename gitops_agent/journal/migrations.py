"""How an older journal becomes the present one: explicit steps forward, all of them in one transaction.

A new journal is created as ``schema.py`` says and never walks the steps; a test holds both roads to the same end.
A kill in the middle leaves the old schema or the new one, never half of it.
"""

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, inspect, select, text

from gitops_agent.errors import JournalError, NoJournal
from gitops_agent.journal import plans, schema, version_5
from gitops_agent.journal.database import Database

Step = str | Callable[[Connection], None]

STEPS: Mapping[int, tuple[Step, ...]] = {
    5: (
        *(f"ALTER TABLE {table} RENAME COLUMN facts TO handle" for table in ("bases", "intents", "observations")),
        "ALTER TABLE intents RENAME COLUMN outcome_facts TO outcome_handle",
        *(f"ALTER TABLE {table} RENAME COLUMN deletion TO deletion_policy" for table in ("bases", "intents")),
        *(f"ALTER TABLE {table} RENAME COLUMN cls TO drift_class" for table in ("intents", "decisions")),
        version_5.rebuild_tables,
        version_5.read_named_texts,
        version_5.fold_health_resources,
    ),
    6: (
        "CREATE INDEX ix_decisions_commit ON decisions (commit_sha)",
        "CREATE INDEX ix_decisions_digest ON decisions (digest)",
        plans.create_table,
    ),
}
"""What leads to each version from the one before: SQL that SQLite and PostgreSQL share, and functions."""

WRITER_TABLE = "writer"
"""Where a shared database says who writes: made by ``postgres``, apart from the versions."""

OLDEST_VERSION = min(STEPS) - 1
"""Earlier ones were never released."""


def bring_up_to_date(database: Database) -> None:
    """Create the tables, or walk the missing steps; refuse a journal from the future."""
    with database.reading() as connection:
        if _found(connection, database) == schema.VERSION:
            return
    with database.writing(by_anyone=True) as connection:
        # Asked again inside the transaction: another process may have been faster.
        found = _found(connection, database)
        if found is None:
            schema.metadata.create_all(connection, checkfirst=False)
            connection.execute(schema.schema_version.insert().values(version=schema.VERSION))
            return
        for version in range(found + 1, schema.VERSION + 1):
            for step in STEPS[version]:
                if isinstance(step, str):
                    connection.execute(text(step))
                else:
                    step(connection)
        connection.execute(schema.schema_version.update().values(version=schema.VERSION))


def require_current(database: Database) -> None:
    """For readers: the journal has this version's schema, or JournalError says what to do."""
    with database.reading() as connection:
        found = _found(connection, database)
    if found is None:
        raise no_journal(database)
    if found < schema.VERSION:
        raise JournalError(
            f"{database.place}: the journal has schema {found}, this version reads {schema.VERSION}",
            hint="start gitops-agent once or run of this version: it brings the journal up to date",
        )


def no_journal(database: Database) -> NoJournal:
    """The error for a place that no gitops-agent has worked with yet."""
    return NoJournal(f"{database.place}: there is no journal yet", hint=database.advice.none_yet)


def _found(connection: Connection, database: Database) -> int | None:
    """The version of the schema in the database; None when it is empty."""
    place, advice = database.place, database.advice
    # The row that says who writes is there before there is a journal.
    tables = set(inspect(connection).get_table_names()) - {WRITER_TABLE}
    if not tables:
        return None
    version = None
    if schema.schema_version.name in tables:
        version = connection.execute(select(schema.schema_version.c.version)).scalar()
    if version is None:
        raise JournalError(f"{place}: this is a database, but not a journal of gitops-agent", hint=advice.foreign)
    if version > schema.VERSION:
        known = f"this version of gitops-agent knows up to {schema.VERSION}"
        raise JournalError(f"{place}: the journal has schema {version}, {known}", hint=advice.newer)
    if version < OLDEST_VERSION:
        raise JournalError(
            f"{place}: the journal has schema {version}, of a gitops-agent before the first release",
            hint=advice.too_old,
        )
    return int(version)
