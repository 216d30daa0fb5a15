"""Moments and spans of time, as machines and as people write them."""

from __future__ import annotations

from gitops_agent.model.quantity import iso

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


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
