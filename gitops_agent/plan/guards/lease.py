"""Leases: what another gitops-agent acts on is left alone, in the live system and in our record."""

from collections.abc import Mapping

from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.guards.verdicts import trim
from gitops_agent.plan.reasons import Hold

_WAY_OUT = (
    "One gitops-agent at a time acts on an agent; this one goes on as soon as it may. If two were started by "
    "mistake: stop one of them, or give it another --instance. If the lease folder is in the way: mend it, or "
    "choose another --lease-dir."
)


def lease(plan: Plan, refused: Mapping[AgentKey, str]) -> Verdict:
    """Hold all that would be done for agents whose lease is not ours: not even an adoption is recorded.
    It is no member of ``GUARDS``, because leases are taken for what all of those have let through."""
    held = [action for action in plan.allowed if action.key.agent in refused]
    agents = dict.fromkeys(action.key.agent for action in held)
    return trim("lease", held, (Hold.LEASE_HELD.finding(agent, refused[agent], _WAY_OUT) for agent in agents))
