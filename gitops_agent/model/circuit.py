"""Circuit: whether a driver is given anything to do. Open after too many failures in a row, half open when its
pause is over: then one action goes, and how it ends decides."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Circuit:
    """The state of one driver: which agents failed since something last succeeded, until when nothing is tried,
    how often it opened in a row. One agent that fails and fails is that agent's trouble, not the driver's."""

    driver: str
    failing: tuple[str, ...] = ()
    open_until: float | None = None
    trips: int = 0
    error: str = ""
