"""Exponential backoff with a cap and jitter. Pure: randomness is an argument."""

MAX_RETRY_AFTER_SECONDS = 3600.0
"""A server may ask for patience, but not for more than this."""

SPREAD = 0.2
"""The share by which jitter lengthens a pause, where the caller has no reason for another."""


def delay(
    failures: int,
    first: float,
    cap: float,
    retry_after: float | None = None,
    jitter: float = 0.0,
    *,
    spread: float = SPREAD,
) -> float:
    """Seconds to wait after ``failures`` failures in a row; ``first`` after none.

    It doubles with every failure up to ``cap`` (or ``first``, if that is longer) and is never shorter than what
    the server asked for. ``jitter`` in [0, 1) lengthens it by up to ``spread``, so that many do not ask at once.
    """
    wait = min(max(first, cap), first * 2.0 ** min(failures, 64))
    asked = min(retry_after or 0.0, MAX_RETRY_AFTER_SECONDS)
    return max(wait, asked) * (1.0 + spread * jitter)
