"""How long to wait before the remote is asked again. Pure: randomness is an argument."""

from __future__ import annotations

LONGEST_RETRY_AFTER = 3600.0
"""A server may ask for patience, but not for more than this."""

SPREAD = 0.2


def delay(failures: int, base: float, cap: float, retry_after: float | None, jitter: float) -> float:
    """Seconds to wait after ``failures`` failures in a row (0: the last time went well).

    It doubles with every failure up to ``cap``, is never shorter than what the server asked for, and ``jitter`` in
    [0, 1) spreads it over a further fifth, so that many instances do not ask at the same moment.
    """
    wait = min(max(base, cap) if failures else base, base * 2.0 ** min(failures, 64))
    wanted = min(retry_after or 0.0, LONGEST_RETRY_AFTER)
    return max(wait, wanted) * (1.0 + SPREAD * jitter)
