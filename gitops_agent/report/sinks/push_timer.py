"""When to push: not more often than an interval, later and later while it fails. Pure but for its own state.

Work waits one interval from the first sign of it, so that a burst of reports costs one push; a flush need not
wait for that, only for the interval since the last push.
"""

from __future__ import annotations

from collections.abc import Callable

CAP = 300.0


class PushTimer:
    """Asked with the time, never reads a clock. ``jitter`` gives numbers in [0, 1)."""

    def __init__(self, interval: float, jitter: Callable[[], float]) -> None:
        self._interval = interval
        self._jitter = jitter
        self._dirty_since: float | None = None
        self._dirty_again = False
        self._pushing = False
        self._allowed_at = float("-inf")  # the interval since the last push
        self._retry_at = float("-inf")  # the backoff since the last failure
        self._failures = 0

    def dirty(self, now: float) -> None:
        """There is something to push."""
        self._dirty_again = self._pushing
        if self._dirty_since is None:
            self._dirty_since = now

    @property
    def waits(self) -> bool:
        """Whether there is something to push."""
        return self._dirty_since is not None

    def delay(self, now: float) -> float | None:
        """Seconds until a push is due: 0 now, None never (nothing to push)."""
        if self._dirty_since is None:
            return None
        return max(0.0, self._dirty_since + self._interval - now, self._allowed_at - now, self._retry_at - now)

    def earliest(self, now: float) -> float | None:
        """Seconds until a flush may push (None: nothing to push): the interval holds, the backoff does not."""
        return None if self._dirty_since is None else max(0.0, self._allowed_at - now)

    def begin(self, now: float) -> None:
        """A push starts; what becomes dirty from here on needs another."""
        self._pushing = True
        self._allowed_at = now + self._interval

    def end(self, now: float, *, done: bool, retry_after: float | None = None) -> None:
        """A push ended. ``retry_after`` is what the other side asked for."""
        again, self._pushing, self._dirty_again = self._dirty_again, False, False
        if done:
            self._failures, self._retry_at = 0, float("-inf")
            self._dirty_since = now if again else None
            return
        backoff = min(CAP, self._interval * 2.0**self._failures) * (1 + self._jitter() / 2)
        self._failures = min(self._failures + 1, 32)
        self._retry_at = now + max(backoff, retry_after or 0.0)
