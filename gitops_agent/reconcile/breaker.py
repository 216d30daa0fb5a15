"""Circuit breaker per driver: how circuits follow from outcomes. Pure; ``plan/guards/breaker.py`` reads them.

What counts is how many agents failed since something last succeeded: one agent that fails for ever says nothing
about its siblings. A permanent failure is the fault of a spec, and a skipped or unknown one says nothing about the
driver: these neither count nor end a row. Success closes the circuit.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gitops_agent.model.document import Breaker, TenantPolicy
from gitops_agent.model.outcome import MAX_DELAY_SECONDS, Circuit, Outcome, Result
from gitops_agent.model.plan import Action
from gitops_agent.model.quantity import seconds
from gitops_agent.support.backoff import delay

Limits = Callable[[str], TenantPolicy]
"""The numbers in force for a tenant."""


def after_round(
    circuits: Mapping[str, Circuit], executed: Iterable[tuple[Action, Outcome]], limits: Limits, now: float
) -> dict[str, Circuit]:
    """The circuits after some actions ended, in the order in which they ended."""
    after = dict(circuits)
    for action, outcome in executed:
        if not action.verb.touches_live:
            continue
        known = after.get(action.driver, Circuit(action.driver))
        if outcome.result is Result.DONE:
            after[action.driver] = Circuit(action.driver)
        elif outcome.result is Result.FAILED and not outcome.permanent:
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
    return delay(trips, seconds(limit.pause), MAX_DELAY_SECONDS)
