"""The fields of the state that are rows of the table ``state``, and what differs between two states. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import compress, islice
from operator import is_, is_not
from typing import Any, TypeVar, get_type_hints

from gitops_agent.model.codec import default_of, from_json, to_json
from gitops_agent.model.fields import JSON
from gitops_agent.model.state import State

IN_TABLES = frozenset(
    {
        "commits.records",
        "control.controls",
        "reconcile.attempts",
        "reconcile.bases",
        "reconcile.open_intents",
        "status.agents",
    }
)
"""The fields that have tables of their own: they are large, or other processes write them."""

K = TypeVar("K")
V = TypeVar("V")
Stored = Mapping[str, Mapping[str, Any]]
"""The fields that came from tables of their own, by part and name."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One field of one part that is a row."""

    part: str
    field: str
    hint: Any
    default: Any

    @property
    def name(self) -> str:
        return f"{self.part}.{self.field}"


def _rows_of(part: str, kind: type[Any]) -> list[_Row]:
    hints = get_type_hints(kind)
    made = (_Row(part, each.name, hints[each.name], default_of(each)) for each in fields(kind))
    return [row for row in made if row.name not in IN_TABLES]


_PARTS: Mapping[str, type[Any]] = get_type_hints(State)
_ROWS = {part: _rows_of(part, kind) for part, kind in _PARTS.items()}


def state_of(found: Mapping[str, JSON], stored: Stored) -> State:
    """The state in the rows of the table, by their names, and in what the other tables hold."""
    parts = {}
    for part, kind in _PARTS.items():
        values = {row.field: from_json(row.hint, found[row.name]) for row in _ROWS[part] if row.name in found}
        parts[part] = kind(**values, **stored.get(part, {}))
    return State(**parts)


def changed_rows(old: State, new: State) -> dict[str, JSON]:
    """The rows that differ, by name; None for one that has its default again, and so no row."""
    changed = {}
    for part, rows in _ROWS.items():
        before, after = getattr(old, part), getattr(new, part)
        if before is after:
            continue
        for row in rows:
            value = getattr(after, row.field)
            known = getattr(before, row.field)
            if value is not known and value != known:
                changed[row.name] = None if value == row.default else to_json(row.hint, value)
    return changed


def changed_entries(old: Mapping[K, V], new: Mapping[K, V]) -> tuple[dict[K, V], list[K]]:
    """The entries of a map that were added or replaced, and the keys that are gone; maps are never changed in
    place, so the same object is the same map."""
    if old is new:
        return {}, []
    if len(new) >= len(old) and all(map(is_, old.keys(), new.keys())):
        # Made from the old one by replacing and adding: the difference is found without hashing every key.
        replaced = compress(new.items(), map(is_not, old.values(), new.values()))
        put = {key: value for key, value in replaced if old[key] != value}
        return {**put, **dict(islice(new.items(), len(old), None))}, []
    put = {key: value for key, value in new.items() if key not in old or old[key] != value}
    return put, [key for key in old if key not in new]
