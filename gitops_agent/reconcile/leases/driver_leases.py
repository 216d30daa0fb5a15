"""Leases where they belong: with the live system for drivers that bring their own, on this host for the others."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from gitops_agent.drivers.api import Leasing
from gitops_agent.drivers.plugins import Connections
from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.key import AgentKey
from gitops_agent.ports import Leases


class DriverLeases:
    """The leases of one instance. An agent whose resources are in several live systems needs one in each."""

    def __init__(self, host: Leases, drivers: Connections) -> None:
        self._host = host
        self._drivers = drivers
        self._claimed: dict[AgentKey, tuple[Leases | Leasing, ...]] = {}
        self._own: dict[str, Leasing | None] = {}

    def claim(self, agents: Mapping[AgentKey, Collection[str]]) -> Mapping[AgentKey, str]:
        """Take or keep the leases of some agents, for the drivers that would act on them.
        Returns those held by another reconciler, and by which, in a sentence."""
        by_driver: defaultdict[str, list[AgentKey]] = defaultdict(list)
        for agent, names in agents.items():
            for name in names:
                by_driver[name].append(agent)
        refused: dict[AgentKey, str] = {}
        on_host: dict[AgentKey, None] = {}
        for name, wanted in by_driver.items():
            try:
                own = self._leasing(name)
                if own is None:
                    on_host |= dict.fromkeys(wanted)
                else:
                    refused |= own.claim(wanted)
            except GitopsAgentError as problem:
                refused |= dict.fromkeys(wanted, f"its lease cannot be taken: {problem.message}")
        if on_host:
            refused |= self._host.claim(dict.fromkeys(on_host, ()))
        for agent, names in agents.items():
            own_leases = (self._host if (own := self._own.get(name)) is None else own for name in names)
            self._claimed[agent] = tuple(dict.fromkeys(own_leases))
        return refused

    def holds(self, agent: AgentKey) -> bool:
        """Whether all leases that were taken for an agent are still ours."""
        return all(each.holds(agent) for each in self._claimed.get(agent, (self._host,)))

    def _leasing(self, driver: str) -> Leasing | None:
        if driver not in self._own:
            self._own[driver] = self._drivers.leasing(driver)
        return self._own[driver]
