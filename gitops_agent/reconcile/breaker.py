"""Circuit breaker per driver: how circuits follow from outcomes. Pure; ``plan/guards/breaker.py`` obeys them.

Failures in a row count, whoever they happened to. A permanent failure is the fault of a spec, and a skipped or
unknown one says nothing about the driver: these neither count nor end a row. Success closes the circuit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gitops_agent.model.circuit import Circuit
from gitops_agent.model.document import Breaker, TenantPolicy
from gitops_agent.model.outcome import LONGEST_DELAY, Outcome, Result
from gitops_agent.model.plan import Action
from gitops_agent.model.quantity import seconds

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
            after[action.driver] = _after_failure(known, outcome.message, limit, now)
    return after


def _after_failure(known: Circuit, error: str, limit: Breaker, now: float) -> Circuit:
    counted = replace(known, failures=known.failures + 1, error=error)
    resting = known.open_until is not None and now < known.open_until
    if resting or counted.failures < limit.failures:
        # What was under way when the circuit opened does not make the rest longer.
        return counted
    return replace(counted, open_until=now + pause(limit, known.trips), trips=known.trips + 1)


def pause(limit: Breaker, trips: int) -> float:
    """Seconds of rest: twice as long each time in a row, up to five minutes or what the policy asks for."""
    first = seconds(limit.pause)
    return min(first * 2.0 ** min(trips, 30), max(first, LONGEST_DELAY))
