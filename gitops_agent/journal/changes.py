"""What one transaction writes: found by comparing two states, and written.

The fields of the state that have no table of their own are rows of the table ``state``, called ``source.head`` and
so on; one that has its default has no row.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import compress, islice
from operator import is_, is_not
from typing import Any, TypeVar, get_type_hints

from sqlalchemy import Connection, bindparam, select

from gitops_agent.errors import JournalError
from gitops_agent.journal import schema
from gitops_agent.journal.rows import (
    Row,
    chunks,
    commit_row,
    insert,
    intent_row,
    outcome_row,
    replace_rows,
    to_row,
)
from gitops_agent.model.codec import default_of, from_json, to_json
from gitops_agent.model.control import Control
from gitops_agent.model.fields import JSON
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.masking import NAMES, Mask, masked
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt, Intent, Outcome, Result
from gitops_agent.model.state import ReconcileState, State
from gitops_agent.model.status import AgentStatus, CommitRecord

# They are large, or other processes write them.
_IN_TABLES = {
    "commits": ("records",),
    "control": ("controls",),
    "reconcile": ("attempts", "bases", "open_intents"),
    "status": ("agents",),
}

K = TypeVar("K")
V = TypeVar("V")
Stored = Mapping[str, Mapping[str, Any]]
"""The fields that came from tables of their own, by part and name."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What changes: rows of the table ``state`` (``fields``), entries of maps, and what is added. None: gone."""

    fields: Mapping[str, JSON] = field(default_factory=dict)
    bases: Mapping[ResourceKey, Base | None] = field(default_factory=dict)
    attempts: Mapping[ResourceKey, Attempt | None] = field(default_factory=dict)
    statuses: Mapping[AgentKey, AgentStatus | None] = field(default_factory=dict)
    records: Mapping[str, CommitRecord] = field(default_factory=dict)
    controls: Sequence[Control] = ()
    plans: Sequence[Row] = ()
    decisions: Sequence[Row] = ()
    observations: Sequence[Row] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))


def between(old: State, new: State) -> Changes:
    """What differs, apart from open intents, which have writes of their own."""
    records = changed_entries(old.commits.records, new.commits.records)
    controls = () if new.control.controls is old.control.controls else new.control.controls
    return Changes(
        fields=changed_fields(old, new),
        bases=changed_entries(old.reconcile.bases, new.reconcile.bases),
        attempts=changed_entries(old.reconcile.attempts, new.reconcile.attempts),
        statuses=changed_entries(old.status.agents, new.status.agents),
        records={sha: each for sha, each in records.items() if each},  # others were trimmed, not deleted
        controls=[control for control in controls if not control.seq],
    )


def write(connection: Connection, changes: Changes) -> None:
    """Write the rows."""
    replace_rows(connection, schema.state, changes.fields, lambda part, value: {"part": part, "value": value})
    replace_rows(connection, schema.bases, changes.bases, lambda _, base: to_row(schema.bases, base))
    replace_rows(
        connection, schema.attempts, changes.attempts, lambda key, each: to_row(schema.attempts, each, key=key)
    )
    replace_rows(connection, schema.statuses, changes.statuses, lambda key, each: {"agent": key, "value": each})
    replace_rows(connection, schema.commits, changes.records, lambda _, record: commit_row(record))
    insert(connection, schema.controls, [to_row(schema.controls, control) for control in changes.controls])
    insert(connection, schema.plans, changes.plans)
    insert(connection, schema.decisions, changes.decisions)
    insert(connection, schema.observations, changes.observations)


_PARTS: Mapping[str, type[Any]] = get_type_hints(State)
_FIELDS = {
    part: [
        (f"{part}.{each.name}", each.name, get_type_hints(kind)[each.name], default_of(each))
        for each in fields(kind)
        if each.name not in _IN_TABLES.get(part, ())
    ]
    for part, kind in _PARTS.items()
}


def state_of(found: Mapping[str, JSON], stored: Stored) -> State:
    """The state in the rows of the table ``state``, by their names, and in what the other tables hold."""
    parts = {}
    for part, kind in _PARTS.items():
        known = {each: from_json(hint, found[name]) for name, each, hint, _ in _FIELDS[part] if name in found}
        parts[part] = kind(**known, **stored.get(part, {}))
    return State(**parts)


def changed_fields(old: State, new: State) -> dict[str, JSON]:
    """The rows of the table ``state`` that differ, by name; None for one that has its default again."""
    changed = {}
    for part, rows in _FIELDS.items():
        before, after = getattr(old, part), getattr(new, part)
        if before is after:
            continue
        for name, attribute, hint, default in rows:
            value, known = getattr(after, attribute), getattr(before, attribute)
            if value is not known and value != known:
                changed[name] = None if value == default else to_json(hint, value)
    return changed


def masked_state(old: State, new: State, mask: Mask) -> State:
    """The new state with the texts masked that it does not share with the old one: memory holds what is kept."""
    parts: dict[str, Any] = {}
    for part, rows in _FIELDS.items():
        before, after = getattr(old, part), getattr(new, part)
        if before is after:
            continue
        texts = [(each, hint) for _, each, hint, _ in rows if each not in NAMES]
        news = [(each, hint) for each, hint in texts if getattr(after, each) is not getattr(before, each)]
        made = {each: masked(hint, getattr(after, each), mask) for each, hint in news}
        if changed := {each: value for each, value in made.items() if value is not getattr(after, each)}:
            parts[part] = replace(after, **changed)
    new = replace(new, **parts) if parts else new
    if statuses := _masked_entries(AgentStatus, old.status.agents, new.status.agents, mask):
        new = replace(new, status=replace(new.status, agents=new.status.agents.updated(statuses.values())))
    if records := _masked_entries(CommitRecord, old.commits.records, new.commits.records, mask):
        new = replace(new, commits=new.commits.updated(records.values()))
    if attempts := _masked_entries(Attempt, old.reconcile.attempts, new.reconcile.attempts, mask):
        merged = {**new.reconcile.attempts, **attempts}
        new = replace(new, reconcile=replace(new.reconcile, attempts=merged))
    return new


def _masked_entries(kind: type[V], old: Mapping[K, V], new: Mapping[K, V], mask: Mask) -> dict[K, V]:
    """The entries that differ from the old ones and hold something to be masked, masked."""
    news = ((key, each, masked(kind, each, mask)) for key, each in changed_entries(old, new).items() if each)
    return {key: made for key, each, made in news if made is not each}


def changed_entries(old: Mapping[K, V], new: Mapping[K, V]) -> dict[K, V | None]:
    """The entries of a map that were added or replaced, and those that are gone (None); maps are never changed in
    place, so the same object is the same map."""
    if old is new:
        return {}
    if len(new) >= len(old) and all(map(is_, old.keys(), new.keys())):
        # Made from the old one by replacing and adding: the difference is found without hashing every key.
        replaced = compress(new.items(), map(is_not, old.values(), new.values()))
        put = {key: value for key, value in replaced if old[key] != value}
        return {**put, **dict(islice(new.items(), len(old), None))}
    changed = {key: value for key, value in new.items() if key not in old or old[key] != value}
    return {**changed, **dict.fromkeys(key for key in old if key not in new)}


# -- intents: at most one is open per resource, and none is closed that was never opened

_IDS = select(schema.intents.c.id).where(schema.intents.c.id.in_(bindparam("ids", expanding=True)))
_BY_ID = schema.intents.update().where(schema.intents.c.id == bindparam("intent_id"))
_GONE = schema.intents.delete().where(schema.intents.c.id.in_(bindparam("ids", expanding=True)))
_OLDER = schema.intents.update().where(
    schema.intents.c.key == bindparam("of_key"),
    schema.intents.c.id != bindparam("intent_id"),
    schema.intents.c.result.is_(None),
)
_OPEN: Row = dict.fromkeys(("result", "outcome", "finished_at", "duration", "outcome_handle", "permanent"))


def begin_intents(connection: Connection, intents: Sequence[Intent], open_now: Mapping[str, Intent]) -> None:
    """Open intents: new ones as new rows, known ids in their place. ``open_now``: those that are open, by id."""
    known = _known(connection, [intent.id for intent in intents])
    busy = {each.action.key: id_ for id_, each in open_now.items()}
    if older := [each for each in intents if busy.get(each.action.key, each.id) != each.id]:
        connection.execute(_OLDER, [_superseded_by(intent) for intent in older])
    if again := [intent for intent in intents if intent.id in known]:
        connection.execute(_BY_ID, [{**intent_row(each), **_OPEN, "intent_id": each.id} for each in again])
    insert(connection, schema.intents, [intent_row(intent) for intent in intents if intent.id not in known])


def finish_intents(connection: Connection, outcomes: Sequence[Outcome], open_now: Mapping[str, Intent]) -> None:
    """Close intents with their outcomes. ``open_now``: those that are open, by id."""
    if not outcomes:
        return
    ids = {outcome.intent for outcome in outcomes if outcome.intent not in open_now}
    if strangers := ids - _known(connection, ids):
        raise JournalError(
            f"outcomes without an intent: {', '.join(sorted(strangers))}",
            hint="this is a defect of gitops-agent: an effect ran without its intent; please report it",
        )
    connection.execute(_BY_ID, [outcome_row(outcome) for outcome in outcomes])


def drop_intents(connection: Connection, ids: Iterable[str]) -> None:
    """Delete intents, as if they had never been opened."""
    for part in chunks(ids):
        connection.execute(_GONE, {"ids": part})


def opened(known: Mapping[str, Intent], intents: Sequence[Intent]) -> dict[str, Intent]:
    """The open intents after ``begin_intents``, by id."""
    new = {intent.id: intent for intent in intents}
    keys = {intent.action.key for intent in intents}
    kept = {id_: each for id_, each in known.items() if id_ in new or each.action.key not in keys}
    return {**kept, **new}


def finished(known: ReconcileState, outcomes: Sequence[Outcome], found: Changes) -> ReconcileState:
    """Our record after ``finish_intents``."""
    return replace(
        without_intents(known, {outcome.intent for outcome in outcomes}),
        bases=known.bases.updated(found.bases),
        attempts=_merged(known.attempts, found.attempts),
    )


def without_intents(known: ReconcileState, ids: Collection[str]) -> ReconcileState:
    """Our record when some intents are open no longer."""
    left = {id_: each for id_, each in known.open_intents.items() if id_ not in ids}
    return replace(known, open_intents=left)


def _merged(known: Mapping[K, V], changed: Mapping[K, V | None]) -> Mapping[K, V]:
    """A map with some entries replaced and some (None) gone; the same map when nothing changes."""
    if not changed:
        return known
    merged = dict(known)
    for key, value in changed.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def _known(connection: Connection, ids: Iterable[str]) -> set[str]:
    return {found for part in chunks(ids) for found in connection.execute(_IDS, {"ids": part}).scalars()}


def _superseded_by(intent: Intent) -> Row:
    outcome = Outcome(intent.id, Result.SKIPPED, f"superseded by intent {intent.id}", intent.at, 0.0)
    return {**outcome_row(outcome), "of_key": intent.action.key}
