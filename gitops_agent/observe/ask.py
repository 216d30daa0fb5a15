"""One question to all drivers. A driver's answer counts whole or not at all; its failure is its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future

from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.passes import Observed, Scope
from gitops_agent.ports import NO_CLAIMS, Claims, Driver


def observe(
    drivers: Sequence[Driver],
    scope: Scope,
    bases: Mapping[ResourceKey, Base],
    pool: Executor,
    claims: Claims = NO_CLAIMS,
) -> Observed:
    """Ask all drivers in parallel; ``claims`` are the desired resources in the scope that have no base."""
    answers: list[tuple[str, Future[Sequence[Observation]]]] = [
        (driver.name, pool.submit(driver.observer.observe, scope, bases, claims)) for driver in drivers
    ]
    seen: dict[ResourceKey, Observation] = {}
    unreachable: dict[str, str] = {}
    for name, answer in answers:
        try:
            # Whole before it counts: an answer that breaks off in the middle is none.
            seen |= {observation.key: observation for observation in answer.result()}
        except GitopsAgentError as problem:
            unreachable[name] = problem.message
        except (Exception, SystemExit) as problem:  # a driver's bug must not stop its siblings, nor us
            unreachable[name] = f"unexpected {type(problem).__name__} in driver {name}"
    return Observed(seen, unreachable)
