"""When a resource may be tried again: exponential, capped, with jitter, for ever. Pure."""

from __future__ import annotations

from gitops_agent.model.outcome import LONGEST_DELAY, Attempt

FIRST_DELAY = 1.0


def delay(failures: int, jitter: float) -> float:
    """Seconds before the next try; ``jitter`` in [0, 1) spreads it over the upper half of the interval."""
    whole = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(failures - 1, 30))
    return whole * (0.5 + jitter / 2)


def after_failure(
    previous: Attempt | None, error: str, now: float, jitter: float, *, permanent: bool = False
) -> Attempt:
    """The retry state after one more failure; a permanent one waits the longest from the start."""
    failures = (previous.failures if previous else 0) + 1
    wait = LONGEST_DELAY if permanent else delay(failures, jitter)
    return Attempt(failures, now + wait, error, permanent)
