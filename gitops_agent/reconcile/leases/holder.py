"""Leases in a pass: what another gitops-agent acts on leaves the plan, and is asked for again before long."""

from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Plan
from gitops_agent.plan.guards import with_verdict
from gitops_agent.plan.guards.lease import lease
from gitops_agent.ports import Leases

RETRY_SECONDS = 5.0
"""Seconds until a lease that another process holds is asked for again."""


class LeaseHolder:
    """Asks for the leases of what a plan would do, of nothing else: most agents of most passes need none.
    ``waiting``: the agents that the last pass had to leave to another process; the next one looks at them again.
    """

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
