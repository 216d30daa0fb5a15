"""Reads JSON that others wrote: whatever is odd about it reads as absent, and nothing raises."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from gitops_agent.drivers.api import JSON

Map = Mapping[str, JSON]


def at(value: JSON, *path: str) -> JSON:
    """The value at a path; None when it is not there."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def map_at(value: JSON, *path: str) -> Map:
    """The map at a path; an empty one when there is none."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def maps_at(value: JSON, *path: str) -> list[Map]:
    """The maps in the list at a path."""
    found = at(value, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text_at(value: JSON, *path: str) -> str:
    """The text at a path; "" when there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def count_at(value: JSON, *path: str, default: int = 0) -> int:
    """The whole number at a path; ``default`` when there is none."""
    found = at(value, *path)
    return found if type(found) is int else default


def moment_at(value: JSON, *path: str) -> float | None:
    """The moment at a path in seconds since the epoch; None when there is none."""
    try:
        found = datetime.fromisoformat(text_at(value, *path))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def condition(live: JSON, kind: str) -> Map:
    """The condition of a type in an object's status; an empty one when there is none."""
    return next((each for each in maps_at(live, "status", "conditions") if each.get("type") == kind), {})
