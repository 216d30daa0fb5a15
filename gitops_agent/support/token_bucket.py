"""A token bucket as a value: so many events a second, and so many at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit: ``per_second`` tokens come back each second, ``burst`` of them are kept at most."""

    per_second: float
    burst: int = 1

    def full(self, now: float) -> TokenBucket:
        """A bucket from which nothing was taken yet."""
        return TokenBucket(self, float(self.burst), now)


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """What is left under a rate. ``now`` is in seconds of a clock that never goes back."""

    rate: Rate
    tokens: float
    filled_at: float

    def at(self, now: float) -> TokenBucket:
        """The same bucket later, filled up by the time between."""
        grown = self.tokens + max(0.0, now - self.filled_at) * self.rate.per_second
        return TokenBucket(self.rate, min(float(self.rate.burst), grown), max(now, self.filled_at))

    def take(self, now: float) -> TokenBucket | None:
        """The bucket after one token was taken; None when there is none."""
        filled = self.at(now)
        return TokenBucket(self.rate, filled.tokens - 1.0, filled.filled_at) if filled.tokens >= 1.0 else None

    def wait(self, now: float) -> float:
        """Seconds until there is a token."""
        return max(0.0, (1.0 - self.at(now).tokens) / self.rate.per_second)
