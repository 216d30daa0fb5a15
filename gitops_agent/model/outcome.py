"""Intent and outcome: the journal entries around a side effect."""

from dataclasses import dataclass
from enum import StrEnum

from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import EMPTY
from gitops_agent.model.plan import Action

STALLED_AFTER = 3
"""Failures in a row after which trying again has evidently not helped."""

MAX_DELAY_SECONDS = 300.0
"""Seconds that a next try is away at most, unless a policy says otherwise."""


@dataclass(frozen=True, slots=True)
class Intent:
    """Written, durably, before a driver is called. ``id`` doubles as the idempotency key."""

    id: str
    action: Action
    commit: str
    plan: str
    actor: str
    at: float


class Result(StrEnum):
    """How an action ended. SKIPPED: live moved meanwhile, or it is early. UNKNOWN: settled later by looking."""

    DONE = "Done"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Written after the driver answered, whatever the answer. ``handle`` goes into the base."""

    intent: str
    result: Result
    message: str
    at: float
    duration: float
    handle: Fields = EMPTY
    permanent: bool = False  # trying again without a new commit cannot help (command not found)
    spent: bool = False  # a one-shot effect was tried and did not succeed: our record says so, for good
    of_system: bool = True  # a failure may be one of the live system: the circuit breaker counts it
    retry_after: float = 0.0  # seconds for which the live system asked not to be tried again


@dataclass(frozen=True, slots=True)
class Applied:
    """What a driver reports after a successful apply."""

    message: str
    handle: Fields = EMPTY


@dataclass(frozen=True, slots=True)
class Attempt:
    """The retry state of one resource: failures in a row, when it may be tried again, the last error."""

    failures: int
    next_at: float
    error: str
    permanent: bool = False

    def is_due(self, now: float, longest: float = MAX_DELAY_SECONDS) -> bool:
        """Whether it may be tried again. A next try further away than the longest delay was written down under a
        wall clock that has been set back since, or under another policy: it does not wait that long."""
        return not now < self.next_at <= now + longest

    @property
    def stalled(self) -> bool:
        """Whether trying again has not helped so far, which people should know."""
        return self.permanent or self.failures >= STALLED_AFTER


@dataclass(frozen=True, slots=True)
class Circuit:
    """Whether a driver is given anything to do: which agents failed since something last succeeded, until when
    nothing is tried, how often it opened in a row. When the pause is over it is half open: one action goes, and
    how it ends decides."""

    driver: str
    failing: tuple[str, ...] = ()
    open_until: float | None = None
    trips: int = 0
    error: str = ""
