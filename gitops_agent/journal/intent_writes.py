"""How intents open and close: at most one is open per resource, and none is closed that was never opened."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import Connection, bindparam, select

from gitops_agent.errors import JournalError
from gitops_agent.journal.changes import Changes
from gitops_agent.journal.rows import Row, intent_row, outcome_row
from gitops_agent.journal.schema import intents as table
from gitops_agent.journal.statements import chunks, insert
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.outcome import Intent, Outcome, Result
from gitops_agent.model.state import ReconcileState

T = TypeVar("T")

_BY_ID = table.update().where(table.c.id == bindparam("intent_id"))
_OLDER = table.update().where(
    table.c.key == bindparam("of_key"), table.c.id != bindparam("intent_id"), table.c.result.is_(None)
)
_OPEN: Row = dict.fromkeys(("result", "outcome", "finished_at", "duration", "outcome_handle", "permanent"))


def begin(connection: Connection, intents: Sequence[Intent]) -> None:
    """Open intents: new ones as new rows, known ids in their place."""
    known = _known(connection, [intent.id for intent in intents])
    connection.execute(_OLDER, [_superseded_by(intent) for intent in intents])
    if again := [intent for intent in intents if intent.id in known]:
        connection.execute(_BY_ID, [{**intent_row(each), **_OPEN, "intent_id": each.id} for each in again])
    insert(connection, table, [intent_row(intent) for intent in intents if intent.id not in known])


def finish(connection: Connection, outcomes: Sequence[Outcome]) -> None:
    """Close intents with their outcomes."""
    if not outcomes:
        return
    ids = {outcome.intent for outcome in outcomes}
    if strangers := ids - _known(connection, ids):
        raise JournalError(
            f"outcomes without an intent: {', '.join(sorted(strangers))}",
            hint="this is a defect of gitops-agent: an effect ran without its intent; please report it",
        )
    connection.execute(_BY_ID, [outcome_row(outcome) for outcome in outcomes])


def opened(known: Mapping[str, Intent], intents: Sequence[Intent]) -> dict[str, Intent]:
    """The open intents after ``begin``, by id."""
    new = {intent.id: intent for intent in intents}
    keys = {intent.action.key for intent in intents}
    kept = {id_: each for id_, each in known.items() if id_ in new or each.action.key not in keys}
    return {**kept, **new}


def finished(known: ReconcileState, outcomes: Sequence[Outcome], found: Changes) -> ReconcileState:
    """Our record after ``finish``."""
    closed = {outcome.intent for outcome in outcomes}
    return replace(
        known,
        bases=_merged(known.bases, found.bases),
        attempts=_merged(known.attempts, found.attempts),
        open_intents={id_: each for id_, each in known.open_intents.items() if id_ not in closed},
    )


def _merged(known: Mapping[ResourceKey, T], changed: Mapping[ResourceKey, T | None]) -> Mapping[ResourceKey, T]:
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
    queries = (select(table.c.id).where(table.c.id.in_(part)) for part in chunks(ids))
    return {found for query in queries for found in connection.execute(query).scalars()}


def _superseded_by(intent: Intent) -> Row:
    outcome = Outcome(intent.id, Result.SKIPPED, f"superseded by intent {intent.id}", intent.at, 0.0)
    return {**outcome_row(outcome), "of_key": intent.action.key}
