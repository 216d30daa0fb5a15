"""What failures come to: when a resource is tried again, and how long a driver rests. Pure.

A resource is tried again for ever: pauses grow up to a cap, with jitter. A driver has a circuit breaker, which
``plan/guards/breaker.py`` reads. What counts there is how many agents failed since something last succeeded: one
agent that fails for ever says nothing about its siblings. A permanent failure is the fault of a spec, one that the
live system refused that of rights or limits of a tenant, and a skipped or unknown one says nothing about the
driver: these neither count nor end a row. Success closes the circuit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from gitops_agent.model.document import Backoff, Breaker, PolicySpec, TenantPolicy
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.outcome import MAX_DELAY_SECONDS, STALLED_AFTER, Attempt, Circuit, Result
from gitops_agent.model.passes import Executed
from gitops_agent.model.plan import Class
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.quantity import seconds
from gitops_agent.support import backoff

_BY_ITSELF = (Class.MISSING_EXTERNAL, Class.STUCK_PROGRESS)
"""Drift that an agent may cause itself: it ends, or makes no progress."""


def delay(failures: int, jitter: float, limit: Backoff) -> float:
    """Seconds before the next try; ``jitter`` in [0, 1) spreads it over the upper half of the interval."""
    first, longest = seconds(limit.first) / 2, seconds(limit.longest) / 2
    return backoff.delay(failures - 1, first, longest, jitter=jitter, spread=1.0)


def after_failure(
    previous: Attempt | None, error: str, now: float, jitter: float, limit: Backoff, *, permanent: bool = False
) -> Attempt:
    """The retry state after one more failure; one that is permanent waits the longest from the start."""
    failures = (previous.failures if previous else 0) + 1
    wait = seconds(limit.longest) if permanent else delay(failures, jitter, limit)
    return Attempt(failures, now + wait, error, permanent)


def attempts_after(
    executed: Sequence[Executed], known: Mapping[ResourceKey, Attempt], policy: PolicySpec, random: Random
) -> dict[ResourceKey, Attempt | None]:
    """The retry states that some outcomes imply. Failures count, and so do repairs of drift: a crash loop is a
    repair that does not last. What others changed and a repair put right says nothing against the agent: it makes
    the next repair wait, and stalls nothing (``oscillation`` bounds how often that is done).
    A skipped action counts too, or a precheck that never agrees would be asked four times a second for ever."""
    after: dict[ResourceKey, Attempt | None] = {}
    for action, outcome in executed:
        done, why = outcome.result is Result.DONE, outcome.message
        if done and not action.verb.touches_live:
            continue
        if outcome.spent or (done and action.drift_class is Class.CHANGE):
            after[action.key] = None  # not tried again, or as a commit asked for: there is nothing to wait for
            continue
        if done:
            why = f"{action.reason}: {action.message}"
        limit, permanent = limits_of(policy, action.key.agent.tenant).backoff, outcome.permanent and not done
        previous, jitter = known.get(action.key), random.random()
        attempt = after_failure(previous, why, outcome.at, jitter, limit, permanent=permanent)
        # What the live system asks for is a lower bound, within what the policy calls the longest pause.
        asked = min(outcome.retry_after, seconds(limit.longest))
        attempt = replace(attempt, next_at=max(attempt.next_at, outcome.at + asked))
        if done and action.drift_class not in _BY_ITSELF:
            attempt = replace(attempt, failures=min(attempt.failures, STALLED_AFTER - 1))
        after[action.key] = attempt
    return after


Limits = Callable[[str], TenantPolicy]
"""The numbers in force for a tenant."""


def after_round(
    circuits: Mapping[str, Circuit], executed: Iterable[Executed], limits: Limits, now: float
) -> dict[str, Circuit]:
    """The circuits after some actions ended, in the order in which they ended."""
    after = dict(circuits)
    for action, outcome in executed:
        if not action.verb.touches_live:
            continue
        known = after.get(action.driver, Circuit(action.driver))
        if outcome.result is Result.DONE:
            after[action.driver] = Circuit(action.driver)
        elif outcome.result is Result.FAILED and outcome.of_system and not outcome.permanent:
            limit = limits(action.key.agent.tenant).breaker
            agent = str(action.key.agent)
            counted = replace(known, failing=tuple(sorted({*known.failing, agent})), error=outcome.message)
            after[action.driver] = _after_failure(counted, limit, now)
    return after


def _after_failure(counted: Circuit, limit: Breaker, now: float) -> Circuit:
    resting = counted.open_until is not None and now < counted.open_until
    if resting or len(counted.failing) < limit.failures:
        # What was under way when the circuit opened does not make the rest longer.
        return counted
    return replace(counted, open_until=now + pause(limit, counted.trips), trips=counted.trips + 1)


def pause(limit: Breaker, trips: int) -> float:
    """Seconds of rest: twice as long each time in a row, up to five minutes or what the policy asks for."""
    return backoff.delay(trips, seconds(limit.pause), MAX_DELAY_SECONDS)
