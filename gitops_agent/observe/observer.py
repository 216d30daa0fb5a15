"""Observer: asks the drivers what is live and evaluates health, for one pass."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor as Pool
from dataclasses import replace

from gitops_agent.drivers.api import ObserveRequest
from gitops_agent.drivers.plugins import Connections
from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.agent import Resource
from gitops_agent.model.catalog import Catalog
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.passes import Executed, Live, Observed, Scope
from gitops_agent.model.snapshot import Snapshot, agents_in
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.targets import health_targets

Bases = Mapping[ResourceKey, Base]


class Observer:
    """Observes all live systems of one instance. ``monitor`` remembers probe results between passes."""

    def __init__(self, drivers: Connections, monitor: HealthMonitor, observe_pool: Pool) -> None:
        self._drivers = drivers
        self.monitor = monitor
        self._observe_pool = observe_pool

    @property
    def catalog(self) -> Catalog:
        """The kinds and reasons of the installed drivers."""
        return self._drivers.plugins.catalog

    def observe(self, desired: Snapshot, bases: Bases, scope: Scope) -> Live:
        """What is live within the scope, and what is in the way of what is desired; health is not known yet."""
        resources = (resource for agent in agents_in(desired, scope) for resource in agent.resources)
        return Live(ask_drivers(self._drivers, scope, bases, self._observe_pool, resources), {}, scope)

    def evaluate_health(self, live: Live, in_force: Snapshot, bases: Bases) -> Live:
        """The same with how healthy it is, measured by the spec in force for each agent."""
        targets = health_targets(in_force, live, bases, self._drivers)
        return replace(live, health=self.monitor.evaluate(targets, live.scope))

    def observe_again(self, live: Live, in_force: Snapshot, bases: Bases, executed: Iterable[Executed]) -> Live:
        """The same with what was changed observed once more, so that the report says how things are now."""
        changed = frozenset(action.key.agent for action, _ in executed if action.verb.touches_live)
        if not changed:
            return live
        fresh = self.evaluate_health(self.observe(in_force, bases, changed), in_force, bases)
        kept = {key: seen for key, seen in live.observed.seen.items() if key.agent not in changed}
        unreachable = {**live.observed.unreachable, **fresh.observed.unreachable}
        merged = Observed(kept | dict(fresh.observed.seen), unreachable)
        return Live(merged, {**live.health, **fresh.health}, live.scope)


def ask_drivers(
    drivers: Connections, scope: Scope, bases: Bases, pool: Pool, desired: Iterable[Resource] = ()
) -> Observed:
    """What the drivers see that hold something desired or on record. ``desired``: the resources in scope."""
    requests = split_requests(scope, bases, desired)
    names = drivers.asked_for(requests)
    nothing = ObserveRequest(scope)
    # A driver connects when it is first asked, which may take as long as its answer.
    answers = [(name, pool.submit(lambda n: drivers[n].observe(requests.get(n, nothing)), name)) for name in names]
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


def split_requests(scope: Scope, bases: Bases, desired: Iterable[Resource]) -> dict[str, ObserveRequest]:
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
