"""The step to version 5: values that were many columns become one, named texts become fields of the state, and
what is asked of an agent's health becomes part of its runtime."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import Connection, Table, inspect, text

from gitops_agent.journal import changes, rows, schema, tables
from gitops_agent.journal.portable import count_on
from gitops_agent.journal.rows import CHUNK_ROWS, delete, insert
from gitops_agent.model.codec import from_json
from gitops_agent.model.fields import JSON, Fields
from gitops_agent.model.health_spec import FIELD, STOPPED
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.status import AgentStatus, CommitRecord

_JSON = frozenset({"conditions", "evidence", "findings", "heartbeats", "live", "resources"})
"""The columns of these tables that held JSON as text; fields were bytes."""

Old = Mapping[str, Any]


# -- tables


def _observation_row(old: Old) -> rows.Row:
    return {**rows.observation_row(from_json(Observation, old), old["fingerprint"]), "seq": old["seq"]}


def _status_row(old: Old) -> rows.Row:
    status = from_json(AgentStatus, {**old, "ready": bool(old["ready"])})
    return {"agent": status.agent, "value": status}


_REBUILT: tuple[tuple[Table, Callable[[Old], rows.Row]], ...] = (
    (schema.commits, lambda old: rows.commit_row(from_json(CommitRecord, old))),
    (schema.observations, _observation_row),
    (schema.statuses, _status_row),
)


def rebuild_tables(connection: Connection) -> None:
    """Copy three tables into their new form, and create the new ones."""
    for table, convert in _REBUILT:
        for index in inspect(connection).get_indexes(table.name):
            connection.execute(text(f"DROP INDEX {index['name']}"))
        connection.execute(text(f"ALTER TABLE {table.name} RENAME TO old_{table.name}"))
        table.create(connection)
        found = connection.execute(text(f"SELECT * FROM old_{table.name}")).mappings()  # noqa: S608
        for batch in found.partitions(CHUNK_ROWS):
            insert(connection, table, [convert({name: _value(name, row[name]) for name in row}) for row in batch])
        connection.execute(text(f"DROP TABLE old_{table.name}"))
        if "seq" in table.c:
            count_on(connection, table)
    schema.state.create(connection)
    schema.owed.create(connection)


def _value(name: str, value: Any) -> Any:
    if name in _JSON or (isinstance(value, bytes) and name != "fingerprint"):
        return orjson.loads(value)
    return value


# -- what is asked of an agent's health


def fold_health_resources(connection: Connection) -> None:
    """Make the records of what is asked of an agent's health part of the records of its runtime."""
    known = tables.bases(connection)
    folded = {base.key: base for base in fold_health_bases(known.values())}
    changed = {key: folded.get(key) for key, base in known.items() if folded.get(key) is not base}
    changes.write(connection, changes.Changes(bases=changed))
    attempts = tables.attempts(connection)
    delete(connection, schema.attempts, "key", (key for key in attempts if key.kind == "health"))


def fold_health_bases(bases: Iterable[Base]) -> list[Base]:
    """The bases of an older journal in today's form: nothing that runs differs from them afterwards.
    What used to be a record of its own (``tenant/name:health/probes``) becomes a field of the agent's runtime, and
    the mark of a stopped runtime is called ``stopped``. One whose runtime is not on record is left out."""
    known = {base.key: base for base in bases}
    asked = {key.agent: base.fields.value for key, base in known.items() if key.kind == "health"}
    return [_folded(base, asked) for key, base in known.items() if key.kind != "health"]


def _folded(base: Base, asked: Mapping[AgentKey, JSON]) -> Base:
    value = base.fields.value
    if value.pop("dormant", None) is True:
        value[STOPPED] = True
    if base.key.kind == Kind.RUNTIME and (health := asked.get(base.key.agent)) is not None:
        value[FIELD] = health
    return base if value == base.fields.value else replace(base, fields=Fields.of(value))


# -- named texts


def read_named_texts(connection: Connection) -> None:
    """Write the fields of the state that the table ``meta`` held as named texts, and drop it."""
    texts: dict[str, str] = dict(connection.execute(text("SELECT name, value FROM meta")).all())
    state = changes.state_of(_fields_of(texts), {})
    found = changes.changed_fields(changes.state_of({}, {}), state)
    changes.write(connection, changes.Changes(fields=found))
    connection.execute(text("DROP TABLE meta"))


def _fields_of(texts: Mapping[str, str]) -> dict[str, JSON]:
    """The rows of the table ``state`` that the texts stand for, by name."""
    made = {name: convert(texts[old]) for old, (name, convert) in _ONE_TO_ONE.items() if old in texts}
    ended = float(texts.get("last_pass", 0.0))
    unready = orjson.loads(texts.get("unready", "{}"))
    made["rollout.unready_since"] = {agent: _active(at, ended) for agent, at in unready.items()}
    if (rollout := made.get("rollout.rollout")) and rollout.get("passed_at") is not None:
        rollout["passed_at"] = _active(rollout["passed_at"], ended)
    if problem := texts.get("source_problem"):
        code = texts.get("source_code") or "SourceUnavailable"
        made["source.problem"] = ["error", code, "source", problem, texts.get("source_hint") or ""]
    made["control.retried_at"] = {
        name.removeprefix("retried:"): float(at) for name, at in texts.items() if name.startswith("retried:")
    }
    return made


def _active(at: float, ended: float) -> float:
    """A moment in active seconds, which start at 0 now: only time before the last pass ended had run."""
    return -max(0.0, ended - at)


def _released(found: str) -> JSON:
    return {"/".join(key): sha for sha, keys in orjson.loads(found).items() for key in keys}


def _given_up(found: str) -> JSON:
    known: dict[str, dict[str, Any]] = orjson.loads(found)
    return {agent: {**each, "retried_at": each.get("retried") or None} for agent, each in known.items()}


def _reverts(found: str) -> JSON:
    known = orjson.loads(found)
    return {each["failed"]: {**each, "finished": each["over"], "message": each["said"]} for each in known}


def _imports(found: str) -> JSON:
    """What was a list: key, since, done, the head it was refused at, findings (none or one), next try."""
    return {
        branch: [key, since, done, head, findings[0] if findings else None, next_at]
        for branch, (key, since, done, head, findings, next_at) in orjson.loads(found).items()
    }


_ONE_TO_ONE: Mapping[str, tuple[str, Callable[[str], JSON]]] = {
    "head": ("source.head", str),
    "accepted": ("source.verified", str),
    "valid": ("source.valid", str),
    "git_freezes": ("source.freezes_first_seen", orjson.loads),
    "last_fetch": ("source.fetched_at", float),
    "enforced": ("rollout.enforced", str),
    "ahead": ("rollout.released", _released),
    "rollout": ("rollout.rollout", orjson.loads),
    "failed": ("rollout.failed_trees", orjson.loads),
    "converged": ("rollout.converged", str),
    "converged_policy": ("rollout.converged_policy", orjson.loads),
    "touched": ("rollout.judged_agents", orjson.loads),
    "abandoned": ("rollout.given_up", _given_up),
    "circuits": ("reconcile.circuits", lambda found: {each["driver"]: each for each in orjson.loads(found)}),
    "obeyed": ("control.handled_seq", int),
    "findings": ("status.findings", orjson.loads),
    "last_pass": ("status.last_pass", float),
    "reverts": ("proposals.reverts", _reverts),
    "imports": ("proposals.imports", _imports),
}
