"""RepeatRate: how much of the drift of late is drift of what drifted before. Time is an argument."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from gitops_agent.model.key import ResourceKey

WINDOW = 3600.0
"""Seconds that count as of late."""

REMEMBERED = 10_000
"""Deviations remembered at most: beyond that the oldest are forgotten, whatever the window says."""


class RepeatRate:
    """Remembers which resources deviated within the window."""

    def __init__(self, window: float = WINDOW, remembered: int = REMEMBERED) -> None:
        self._window = window
        self._remembered = remembered
        self._seen: deque[tuple[float, ResourceKey]] = deque()
        self._times: Counter[ResourceKey] = Counter()

    def began(self, keys: Iterable[ResourceKey], now: float) -> None:
        """These resources began to deviate."""
        for key in keys:
            self._seen.append((now, key))
            self._times[key] += 1
        while len(self._seen) > self._remembered:
            self._forget_oldest()

    def rate(self, now: float) -> float:
        """The share of deviations within the window that were not the first of their resource in it."""
        while self._seen and now - self._seen[0][0] > self._window:
            self._forget_oldest()
        return 1.0 - len(self._times) / len(self._seen) if self._seen else 0.0

    def _forget_oldest(self) -> None:
        _, key = self._seen.popleft()
        self._times[key] -= 1
        if not self._times[key]:
            del self._times[key]
