"""A clock that moves only when a test moves it."""


class FrozenClock:
    """A ``ports.Clock`` that stands still until a test moves it."""

    def __init__(self, now: float = 1_700_000_000.0, monotonic: float = 1_000.0) -> None:
        self._now = now
        self._monotonic = monotonic

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass: both clocks move on."""
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds}); use jump to move the wall clock")
        self._now += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, in either direction: what NTP or an operator does."""
        self._now += seconds
