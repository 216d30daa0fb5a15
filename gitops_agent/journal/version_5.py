"""The step to version 5: values that were many columns become one, named texts become fields of the state, and
what is asked of an agent's health becomes part of its runtime."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from sqlalchemy import Connection, RowMapping, Table, inspect, literal_column, select, text
from sqlalchemy import table as table_named

from gitops_agent.journal import parts, rows, schema, tables
from gitops_agent.journal.named_texts import fields_of
from gitops_agent.journal.statements import CHUNK_ROWS, delete, insert, replace
from gitops_agent.model.codec import from_json
from gitops_agent.model.observation import Observation
from gitops_agent.model.status import AgentStatus, CommitRecord

_JSON = frozenset({"conditions", "evidence", "findings", "heartbeats", "live", "resources"})
"""The columns of these tables that held JSON as text; fields were bytes."""

_FLAGS = frozenset({"ready"})


def _observation_row(row: Mapping[str, Any]) -> rows.Row:
    return {**rows.observation_row(from_json(Observation, row), row["fingerprint"]), "seq": row["seq"]}


_REBUILT: Mapping[str, tuple[Table, Callable[[Mapping[str, Any]], rows.Row]]] = {
    "commits": (schema.commits, lambda row: rows.commit_row(from_json(CommitRecord, row))),
    "observations": (schema.observations, _observation_row),
    "statuses": (schema.statuses, lambda row: rows.status_row(from_json(AgentStatus, row))),
}


def rebuild_tables(connection: Connection) -> None:
    """Copy three tables into their new form, and create the new ones."""
    for name, (table, convert) in _REBUILT.items():
        old = f"old_{name}"
        for index in inspect(connection).get_indexes(name):
            connection.execute(text(f"DROP INDEX {index['name']}"))
        connection.execute(text(f"ALTER TABLE {name} RENAME TO {old}"))
        table.create(connection)
        for batch in (
            connection.execute(select(literal_column("*")).select_from(table_named(old)))
            .mappings()
            .partitions(CHUNK_ROWS)
        ):
            insert(connection, table, [convert(_values(row)) for row in batch])
        connection.execute(text(f"DROP TABLE {old}"))
    schema.state.create(connection)
    schema.owed.create(connection)


def fold_health_resources(connection: Connection) -> None:
    """Make the records of what is asked of an agent's health part of the records of its runtime."""
    # Imported by this step alone: it needs the models of documents, which reading a journal does not.
    from gitops_agent.model.health_spec import fold_health_bases

    known = tables.bases(connection)
    folded = {base.key: base for base in fold_health_bases(known.values())}
    delete(connection, schema.bases, "key", (str(key) for key in known if key not in folded))
    changed = (base for key, base in folded.items() if base is not known[key])
    replace(connection, schema.bases, "key", map(rows.base_row, changed))
    attempts = tables.attempts(connection)
    delete(connection, schema.attempts, "key", (str(key) for key in attempts if key.kind == "health"))


def read_named_texts(connection: Connection) -> None:
    """Write the fields of the state that the table ``meta`` held as named texts, and drop it."""
    found = connection.execute(text("SELECT name, value FROM meta"))
    fields = fields_of(dict(found.all()))
    changed = parts.changed_rows(parts.state_of({}, {}), parts.state_of(fields, {}))
    insert(connection, schema.state, [{"part": part, "value": value} for part, value in changed.items()])
    connection.execute(text("DROP TABLE meta"))


def _values(row: RowMapping) -> dict[str, Any]:
    return {str(name): _value(str(name), value) for name, value in row.items()}


def _value(name: str, value: Any) -> Any:
    if name in _JSON or (isinstance(value, bytes) and name != "fingerprint"):
        return orjson.loads(value)
    return bool(value) if name in _FLAGS else value
