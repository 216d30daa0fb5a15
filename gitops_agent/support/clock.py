"""The clock of the operating system. Everything else takes time as an argument (``ports.Clock``)."""

import time


class SystemClock:
    """Wall time and monotonic time."""

    def now(self) -> float:
        """Seconds since the epoch (may jump)."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
