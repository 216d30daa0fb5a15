"""Leases: what another gitops-agent acts on is left alone, in the live system and in our record."""

from collections.abc import Mapping

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.guards.verdicts import trim
from gitops_agent.plan.reasons import Hold


def lease(plan: Plan, refused: Mapping[AgentKey, str]) -> Verdict:
    """Hold all that would be done for agents whose lease is not ours: not even an adoption is recorded.
    It is no member of ``GUARDS``, because leases are taken for what all of those have let through."""
    held = [action.key for action in plan.allowed if action.key.agent in refused]
    agents = dict.fromkeys(key.agent for key in held)
    return trim("lease", held, (_finding(agent, refused[agent]) for agent in agents))


def _finding(agent: AgentKey, why: str) -> Finding:
    return Finding(
        Severity.WARNING,
        Hold.LEASE_HELD,
        str(agent),
        why,
        "One gitops-agent at a time acts on an agent; this one goes on as soon as it may. If two were started by "
        "mistake: stop one of them, or give it another --instance. If the lease folder is in the way: mend it, or "
        "choose another --lease-dir.",
    )
