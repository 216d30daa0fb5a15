"""Leases in a pass: what another gitops-agent acts on leaves the plan, and is asked for again before long."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from functools import partial

from gitops_agent.drivers.api import Leasing
from gitops_agent.drivers.plugins import Connections
from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Plan
from gitops_agent.plan.guards import with_verdict
from gitops_agent.plan.guards.lease import lease
from gitops_agent.ports import Leases
from gitops_agent.support.bounded_calls import BoundedCalls, NoAnswer

RETRY_SECONDS = 5.0
"""Seconds until a lease that another process holds is asked for again."""


class LeaseHolder:
    """Asks for the leases of what a plan would do, of nothing else: most agents of most passes need none.
    ``waiting``: the agents that the last pass had to leave to another process; the next looks at them again."""

    def __init__(self, leases: Leases | None) -> None:
        self._leases = leases
        self.waiting: frozenset[AgentKey] = frozenset()

    def hold_unleased(self, plan: Plan) -> Plan:
        """The plan with what another process acts on held."""
        if self._leases is None:
            return plan
        drivers: dict[AgentKey, set[str]] = {}
        for action in plan.allowed:
            drivers.setdefault(action.key.agent, set()).add(action.driver)
        refused = self._leases.claim(drivers)
        self.waiting = frozenset(refused)
        return with_verdict(plan, lease(plan, refused)) if refused else plan

    def next_due(self) -> float | None:
        """Seconds until it is worth asking again; None when nothing is in the way."""
        return RETRY_SECONDS if self.waiting else None


class Elected:
    """The leader of an instance holds every lease, and loses all of them at once (``drivers.api.Leasing``)."""

    def __init__(self, leading: Callable[[], bool]) -> None:
        self._leading = leading

    def claim(self, agents: Collection[AgentKey]) -> Mapping[AgentKey, str]:
        """All of them, or none."""
        return {} if self._leading() else dict.fromkeys(agents, "this gitops-agent no longer leads its instance")

    def holds(self, agent: AgentKey) -> bool:
        """Whether this process still leads."""
        del agent
        return self._leading()


class DriverLeases:
    """Leases where they belong: with the live system for drivers that bring their own, on this host for others.
    An agent whose resources are in several live systems needs one in each.

    ``leading``: whether this process may act at all. ``elected``: it does so as the leader of its instance; that
    is then the lease of what is on no host in particular."""

    def __init__(
        self,
        host: Leases,
        drivers: Connections,
        pool: Executor,
        leading: Callable[[], bool] = lambda: True,
        *,
        elected: bool = False,
    ) -> None:
        self._host = host
        self._drivers = drivers
        self._leading = leading
        self._elected = Elected(leading) if elected else None
        self._calls = BoundedCalls[tuple[Leasing | None, Mapping[AgentKey, str]]](pool)
        self._claimed: dict[AgentKey, set[Leases | Leasing]] = {}

    def claim(self, agents: Mapping[AgentKey, Collection[str]]) -> Mapping[AgentKey, str]:
        """Take or keep the leases of some agents, for the drivers that would act on them.
        Returns those held by another reconciler, and by which, in a sentence."""
        by_driver: defaultdict[str, list[AgentKey]] = defaultdict(list)
        for agent, names in agents.items():
            for name in names:
                by_driver[name].append(agent)
        refused: dict[AgentKey, str] = {}
        claimed: dict[AgentKey, set[Leases | Leasing]] = {agent: set() for agent in agents}
        asked = {name: partial(self._claim, name, wanted) for name, wanted in by_driver.items()}
        for name, answer in self._calls.ask(asked, self._drivers.observe_timeout).items():
            try:
                own, held = answer.result()
            except (GitopsAgentError, NoAnswer) as problem:
                refused |= dict.fromkeys(by_driver[name], f"its lease cannot be taken: {problem}")
                continue
            refused |= held
            for agent in by_driver[name]:
                claimed[agent].add(self._host if own is None else own)
        if on_host := {agent: () for agent, leases in claimed.items() if self._host in leases}:
            refused |= self._host.claim(on_host)
        self._claimed |= claimed
        return refused

    def _claim(self, name: str, wanted: Collection[AgentKey]) -> tuple[Leasing | None, Mapping[AgentKey, str]]:
        """The leases of a driver, if it brings its own, and those of some agents that another reconciler holds."""
        plugin = self._drivers.plugins.get(name)
        own = self._drivers.leasing(name) or (None if plugin is not None and plugin.local else self._elected)
        return own, own.claim(wanted) if own is not None else {}

    def holds(self, agent: AgentKey) -> bool:
        """Whether we still lead, and all leases that were taken for an agent are still ours."""
        return self._leading() and all(each.holds(agent) for each in self._claimed.get(agent) or (self._host,))
