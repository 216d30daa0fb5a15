"""One question to all drivers. A driver's answer counts whole or not at all; its failure is its own."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future

from gitops_agent.drivers.api import ObserveRequest
from gitops_agent.drivers.plugins import Connections
from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.agent import Resource
from gitops_agent.model.key import ResourceKey, Scope
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.passes import Observed


def observe(
    drivers: Connections,
    scope: Scope,
    bases: Mapping[ResourceKey, Base],
    pool: Pool,
    desired: Iterable[Resource] = (),
) -> Observed:
    """What the drivers see that hold something desired or on record. ``desired``: the resources in scope."""
    requests = split_requests(scope, bases, desired)
    names = drivers.asked_for(requests)
    nothing = ObserveRequest(scope)
    answers: list[tuple[str, Future[Sequence[Observation]]]] = [
        (name, pool.submit(_ask, drivers, name, requests.get(name, nothing))) for name in names
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


def split_requests(
    scope: Scope, bases: Mapping[ResourceKey, Base], desired: Iterable[Resource]
) -> dict[str, ObserveRequest]:
    """One request for each driver that holds something in scope, with its own bases and claims in it."""
    known: defaultdict[str, dict[ResourceKey, Base]] = defaultdict(dict)
    for key, base in bases.items():
        if scope is None or key.agent in scope:
            known[base.driver][key] = base
    claims: defaultdict[str, dict[ResourceKey, Resource]] = defaultdict(dict)
    for resource in desired:
        own = claims[resource.driver]
        if resource.key not in bases:
            own[resource.key] = resource
    names = known.keys() | claims.keys()
    return {name: ObserveRequest(scope, known.get(name, {}), claims.get(name, {})) for name in names}


def _ask(drivers: Connections, name: str, request: ObserveRequest) -> Sequence[Observation]:
    return drivers[name].observe(request)
