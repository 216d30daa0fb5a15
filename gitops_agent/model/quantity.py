"""Durations, moments, quantities and counts: the texts people write and read, and the numbers we compute with."""

import re
from datetime import UTC, datetime
from functools import lru_cache

DURATION_PATTERN = r"^(0|([0-9]{1,6}(ms|s|m|h|d)){1,4})$"
MEMORY_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
CPU_PATTERN = r"^([0-9]{1,6}(\.[0-9]{1,3})?|[0-9]{1,9}m)$"
PERCENT_PATTERN = r"^(100|[1-9]?[0-9])%$"
MOMENT_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})$"

_DURATION_PART = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPANS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_BYTES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


@lru_cache(1024)  # the same few texts stand in every document
def seconds(text: str) -> float:
    """The length of a duration such as ``1m30s``; it must match DURATION_PATTERN."""
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f"not a duration: {text!r} (expected something like 500ms, 10s, 2m or 1h30m)")
    return sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


@lru_cache(1024)
def memory_bytes(text: str) -> int:
    """The bytes in a memory quantity such as ``256Mi``; it must match MEMORY_PATTERN."""
    if not re.fullmatch(MEMORY_PATTERN, text):
        raise ValueError(f"not a memory quantity: {text!r} (expected something like 256Mi or 1Gi)")
    number = text.rstrip("KMGTki")
    return int(float(number) * _BYTES[text[len(number) :]])


def epoch(text: str) -> float:
    """The moment such as ``2030-01-31T18:00:00Z`` in seconds since the epoch; it must match MOMENT_PATTERN."""
    expected = "expected a moment such as 2030-01-31T18:00:00Z"
    if not re.fullmatch(MOMENT_PATTERN, text):
        raise ValueError(f"not a moment: {text!r} ({expected})")
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"no such moment in the calendar: {text!r} ({expected})") from None


def iso(at: float) -> str:
    """A moment as ISO-8601 in UTC, to the second: ``2026-01-31T08:15:00Z``."""
    try:
        return f"{datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
    except (OverflowError, ValueError, OSError):
        # A clock that jumped, or a commit dated by hand, must not stop a report.
        return "0001-01-01T00:00:00Z" if at < 0 else "9999-12-31T23:59:59Z"


def clock(at: float, beside: float | None = None) -> str:
    """A moment as people say it, in UTC: ``14:10``, with its date when the other moment has another one."""
    text = iso(at)
    same = beside is None or iso(beside)[:10] == text[:10]
    return text[11:16] if same else f"{text[:10]} {text[11:16]}"


def iso_or_none(at: float | None) -> str | None:
    """``iso``, where there may be no moment."""
    return None if at is None else iso(at)


def span(length: float) -> str:
    """Seconds as people read them: ``4.2 s``, ``3 min``, ``5 h``, ``2 d``."""
    length = max(0.0, length)
    for size, unit in _SPANS:
        if length >= size:
            return f"{int(length // size)} {unit}"
    return f"{length:.1f} s" if length < 10 else f"{int(length)} s"


def ago(at: float, now: float) -> str:
    """How long ago a moment was (``just now`` when the clock jumped)."""
    return "just now" if now - at < 1 else f"{span(now - at)} ago"


def ahead(at: float, now: float) -> str:
    """How far ahead a moment is (``now`` when it is past)."""
    return "now" if at <= now else f"in {span(at - now)}"


def counted(count: int, noun: str) -> str:
    """``1 agent``, ``2 agents``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
