"""Moments and spans of time, as machines and as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def iso(at: float) -> str:
    """A moment as ISO-8601 in UTC, to the second: ``2026-01-31T08:15:00Z``."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        # A clock that jumped, or a commit dated by hand, must not stop a report.
        return "0001-01-01T00:00:00Z" if at < 0 else "9999-12-31T23:59:59Z"


def iso_or_none(at: float | None) -> str | None:
    """``iso``, where there may be no moment."""
    return None if at is None else iso(at)


def span(seconds: float) -> str:
    """A span of time for people: ``4.2 s``, ``3 min``, ``5 h``, ``2 d``."""
    seconds = max(0.0, seconds)
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{int(seconds)} s"


def ago(at: float, now: float) -> str:
    """How long ago a moment was (``just now`` when the clock jumped)."""
    return "just now" if now - at < 1 else f"{span(now - at)} ago"


def ahead(at: float, now: float) -> str:
    """How far ahead a moment is (``now`` when it is past)."""
    return "now" if at <= now else f"in {span(at - now)}"
