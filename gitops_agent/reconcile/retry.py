"""When a resource may be tried again: exponential, capped, with jitter, for ever. Pure."""

from gitops_agent.model.document import Backoff
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.quantity import seconds
from gitops_agent.support import backoff

DEFAULT = Backoff()


def delay(failures: int, jitter: float, limit: Backoff = DEFAULT) -> float:
    """Seconds before the next try; ``jitter`` in [0, 1) spreads it over the upper half of the interval."""
    first, longest = seconds(limit.first) / 2, seconds(limit.longest) / 2
    return backoff.delay(failures - 1, first, longest, jitter=jitter, spread=1.0)


def after_failure(
    previous: Attempt | None, error: str, now: float, jitter: float, limit: Backoff = DEFAULT
) -> Attempt:
    """The retry state after one more failure."""
    failures = (previous.failures if previous else 0) + 1
    return Attempt(failures, now + delay(failures, jitter, limit), error)


def after_permanent(previous: Attempt | None, error: str, now: float, limit: Backoff = DEFAULT) -> Attempt:
    """The retry state after a failure that trying again cannot help: it waits the longest from the start."""
    failures = (previous.failures if previous else 0) + 1
    return Attempt(failures, now + seconds(limit.longest), error, permanent=True)
