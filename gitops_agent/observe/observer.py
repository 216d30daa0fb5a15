"""Observer: asks the drivers what is live and evaluates health, for one pass."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from dataclasses import replace
from functools import partial

from gitops_agent.drivers.api import ObserveRequest
from gitops_agent.drivers.plugins import Connections
from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.agent import Resource
from gitops_agent.model.catalog import Catalog
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.passes import Executed, Live, Observed, Scope
from gitops_agent.model.plan import Action, Where
from gitops_agent.model.snapshot import Snapshot, agents_in
from gitops_agent.model.state import Bases
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.targets import health_targets
from gitops_agent.support.bounded_calls import BoundedCalls, NoAnswer

Record = Mapping[ResourceKey, Base]


class Observer:
    """Observes all live systems of one instance. ``monitor`` remembers probe results between passes."""

    def __init__(self, drivers: Connections, monitor: HealthMonitor, observe_pool: Pool) -> None:
        self._drivers = drivers
        self.monitor = monitor
        self._calls = BoundedCalls[Sequence[Observation]](observe_pool)

    @property
    def catalog(self) -> Catalog:
        """The kinds and reasons of the installed drivers."""
        return self._drivers.plugins.catalog

    def where(self, actions: Iterable[Action]) -> dict[ResourceKey, Where]:
        """Where the objects of some actions are, as far as their drivers say so."""
        found = ((action.key, self._drivers.where(action)) for action in actions)
        return {key: where for key, where in found if where is not None}

    def observe(self, desired: Snapshot, bases: Record, scope: Scope) -> Live:
        """What is live within the scope, and what is in the way of what is desired; health is not known yet."""
        resources = (resource for agent in agents_in(desired, scope) for resource in agent.resources)
        return Live(ask_drivers(self._drivers, scope, bases, self._calls, resources), {}, scope)

    def evaluate_health(self, live: Live, in_force: Snapshot, bases: Record) -> Live:
        """The same with how healthy it is, measured by the spec in force for each agent."""
        targets = health_targets(in_force, live, bases, self._drivers)
        health = self.monitor.evaluate(targets, live.scope)
        return replace(live, health=health, unanswered=self.monitor.unanswered(health))

    def observe_again(self, live: Live, in_force: Snapshot, bases: Record, executed: Iterable[Executed]) -> Live:
        """The same with what was changed observed once more, so that the report says how things are now."""
        changed = frozenset(action.key.agent for action, _ in executed if action.verb.touches_live)
        if not changed:
            return live
        fresh = self.evaluate_health(self.observe(in_force, bases, changed), in_force, bases)
        kept = {key: seen for key, seen in live.observed.seen.items() if key.agent not in changed}
        unreachable = {**live.observed.unreachable, **fresh.observed.unreachable}
        unseen = {key: why for key, why in live.observed.unseen.items() if key.agent not in changed}
        merged = Observed(kept | dict(fresh.observed.seen), unreachable, unseen | dict(fresh.observed.unseen))
        unanswered = (live.unanswered - changed) | fresh.unanswered
        return Live(merged, {**live.health, **fresh.health}, live.scope, unanswered)


def ask_drivers(
    drivers: Connections,
    scope: Scope,
    bases: Record,
    calls: BoundedCalls[Sequence[Observation]],
    desired: Iterable[Resource] = (),
) -> Observed:
    """What the drivers see that hold something desired or on record. ``desired``: the resources in scope.
    One that hangs is unreachable when its time is up, and until it answers: the others do not wait for it."""
    requests = split_requests(scope, bases, desired)
    nothing = ObserveRequest(scope)

    def ask(name: str) -> Sequence[Observation]:
        # A driver connects when it is first asked, which may take as long as its answer. The answer is read to its
        # end before it counts: one that breaks off in the middle is none.
        return tuple(drivers[name].observe(requests.get(name, nothing)))

    names = drivers.asked_for(requests, whole=scope is None)
    answers = calls.ask({name: partial(ask, name) for name in names}, drivers.observe_timeout)
    found: list[Observation] = []
    unreachable: dict[str, str] = {}
    for name, answer in answers.items():
        try:
            found += answer.result()
        except NoAnswer as problem:
            unreachable[name] = f"the driver {name} does not answer: {problem}"
        except GitopsAgentError as problem:
            unreachable[name] = f"{problem.message}; {problem.hint}" if problem.hint else problem.message
        except (Exception, SystemExit) as problem:  # a driver's bug must not stop its siblings, nor us
            unreachable[name] = f"unexpected {type(problem).__name__} in driver {name}"
    seen = {each.key: each for each in found if not each.unseen}
    return Observed(seen, unreachable, {each.key: each.unseen for each in found if each.unseen})


def split_requests(scope: Scope, bases: Record, desired: Iterable[Resource]) -> dict[str, ObserveRequest]:
    """One request for each driver that holds something in scope, with its own bases and claims in it."""
    known: defaultdict[str, dict[ResourceKey, Base]] = defaultdict(dict)
    for key in Bases.of(bases).within(scope):
        base = bases[key]
        known[base.driver][key] = base
    claims: defaultdict[str, dict[ResourceKey, Resource]] = defaultdict(dict)
    for resource in desired:
        own = claims[resource.driver]
        if resource.key not in bases:
            own[resource.key] = resource
    names = known.keys() | claims.keys()
    return {name: ObserveRequest(scope, known.get(name, {}), claims.get(name, {})) for name in names}
