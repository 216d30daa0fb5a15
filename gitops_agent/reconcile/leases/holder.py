"""Leases in a pass: what another gitops-agent acts on leaves the plan, and is asked for again before long."""

from __future__ import annotations

from collections.abc import Callable

from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Plan
from gitops_agent.plan.guards import ruled
from gitops_agent.plan.guards.lease import lease
from gitops_agent.ports import Leases, Report, Sink

PAUSE = 5.0
"""Seconds until a lease that somebody else holds is asked for again."""


class Leasing:
    """Asks for the leases of what a plan would do, of nothing else: most agents of most passes need none.

    ``waiting``: the agents that the last pass had to leave to another; the next one looks at them again.
    """

    def __init__(self, leases: Leases | None) -> None:
        self._leases = leases
        self.waiting: frozenset[AgentKey] = frozenset()

    def trim(self, plan: Plan) -> Plan:
        """The plan without what is not ours to act on now."""
        if self._leases is None:
            return plan
        drivers: dict[AgentKey, set[str]] = {}
        for action in plan.allowed:
            drivers.setdefault(action.key.agent, set()).add(action.driver)
        refused = self._leases.claim(drivers)
        self.waiting = frozenset(refused)
        return ruled(plan, lease(plan, refused)) if refused else plan

    def next_due(self) -> float | None:
        """Seconds until it is worth asking again; None when nobody is in the way."""
        return PAUSE if self.waiting else None


class Spokesman:
    """What the one that acts has to say. Who waits for its elder keeps quiet: both speak under one name of the
    same commits, and the last word on them must not be that of an onlooker.
    """

    def __init__(self, sink: Sink, elder: Callable[[], str]) -> None:
        self._sink = sink
        self._elder = elder

    def publish(self, report: Report) -> None:
        """Pass a report on, unless somebody else is to give it."""
        if not self._elder():
            self._sink.publish(report)

    def flush(self, timeout: float) -> bool:
        """Write what is queued."""
        return self._sink.flush(timeout)
