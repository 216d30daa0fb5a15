"""Health: how well one live object does, by what evidence, and which of several decides."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which source reported what, and when."""

    source: str
    said: str
    at: float


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call in progress, and since when, as far as was seen."""

    name: str
    since: float


@dataclass(frozen=True, slots=True)
class Progress:
    """What one copy of an agent reports of itself: its last heartbeat, its turn, the tool calls in progress."""

    instance: str
    at: float
    turn: int | None = None
    turn_since: float | None = None
    calls: tuple[OpenCall, ...] = ()


class HealthState(StrEnum):
    """How one object does, as its driver or our probes see it."""

    HEALTHY = "Healthy"
    STARTING = "Starting"
    UNHEALTHY = "Unhealthy"
    STUCK = "Stuck"  # alive, no progress
    STOPPED = "Stopped"  # as desired
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Health:
    """How one object does. ``restart`` asks the plan for a restart (liveness failed, heartbeat stale).
    ``recheck_at``: when it must be looked at again (monotonic seconds). ``evidence``: which source reported what.
    Where the sources do not agree that an agent is stuck, ``disputes`` is the reason code that is undecided:
    nothing may be repaired for it; ``asking``: because some have not answered yet. ``agree`` and ``oppose`` count
    the independent sources for and against it.
    ``instances``: of an agent that runs in several copies, those to be restarted, or else those not Ready.
    ``progress``: what the copies report of themselves, where heartbeats are asked for. ``final``: as far as the
    driver can tell, waiting does not help (an image that does not exist): a gate fails by it sooner."""

    state: HealthState
    reason: str
    message: str
    restart: bool = False
    recheck_at: float | None = None
    evidence: tuple[Evidence, ...] = ()
    disputes: str = ""
    agree: int = 1
    oppose: int = 0
    instances: tuple[str, ...] = ()
    progress: tuple[Progress, ...] = ()
    asking: bool = False
    final: bool = False


HEALTHY = Health(HealthState.HEALTHY, "Healthy", "")

_RANK = {
    HealthState.STOPPED: 0,  # as desired, so no worse than healthy
    HealthState.HEALTHY: 0,
    HealthState.UNKNOWN: 1,
    HealthState.STARTING: 2,
    HealthState.UNHEALTHY: 3,
    HealthState.STUCK: 4,
}


def rank(state: HealthState) -> int:
    """How bad a state is: the worst of several counts."""
    return _RANK[state]


def worst(healths: Iterable[Health]) -> Health:
    """The health that decides whether an agent is Ready: the worst one, the first of equals.
    Give the runtime's first: of two that are equally bad it is the one people ask about."""
    return max(healths, key=lambda health: _RANK[health.state])
