"""DeliveryTimer: when a sink is served: not more often than its interval, later and later while it fails.

Work waits one interval from the first sign of it, so that a burst costs one delivery; a flush need not wait for
that, only for the interval since the last delivery. Pure but for its own state.
"""

from collections.abc import Callable

from gitops_agent.support.backoff import delay

MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 300.0


class DeliveryTimer:
    """Given the time, never reads a clock. ``jitter`` gives numbers in [0, 1)."""

    def __init__(self, interval: float, jitter: Callable[[], float]) -> None:
        self._interval = interval
        self._jitter = jitter
        self._dirty_since: float | None = None
        self._dirty_again = False
        self._delivering = False
        self._allowed_at = float("-inf")  # the interval since the last delivery
        self._retry_at = float("-inf")  # the backoff since the last failure
        self._failures = 0

    def dirty(self, now: float) -> None:
        """Note that there is something to deliver."""
        self._dirty_again = self._delivering
        if self._dirty_since is None:
            self._dirty_since = now

    def delay(self, now: float) -> float | None:
        """Seconds until a delivery is due: 0 now, None never (nothing to deliver)."""
        if self._dirty_since is None:
            return None
        return max(0.0, self._dirty_since + self._interval - now, self._allowed_at - now, self._retry_at - now)

    def earliest(self, now: float) -> float | None:
        """Seconds until a flush may deliver (None: nothing to deliver): the interval holds, the backoff does
        not."""
        return None if self._dirty_since is None else max(0.0, self._allowed_at - now)

    def begin(self, now: float) -> None:
        """Note that a delivery starts; what becomes dirty from here on needs another."""
        self._delivering = True
        self._allowed_at = now + self._interval

    def end(self, now: float, *, done: bool, retry_after: float | None = None) -> None:
        """Note how a delivery ended. ``retry_after``: the seconds that the other side asked for."""
        again, self._delivering, self._dirty_again = self._dirty_again, False, False
        if done:
            self._failures, self._retry_at = 0, float("-inf")
            self._dirty_since = now if again else None
            return
        first = max(self._interval, MIN_BACKOFF_SECONDS)
        wait = delay(self._failures, first, MAX_BACKOFF_SECONDS, retry_after, self._jitter())
        self._failures += 1
        self._retry_at = now + wait
