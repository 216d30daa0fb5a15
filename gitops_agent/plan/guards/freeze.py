"""Freeze: acting stops within its scope, detecting and reporting go on."""

from __future__ import annotations

from collections.abc import Iterator

from gitops_agent.model.document import Freeze
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.model.quantity import epoch
from gitops_agent.plan.guards.ruling import due, trim
from gitops_agent.plan.reasons import Hold
from gitops_agent.plan.situation import Situation


def freeze(plan: Plan, situation: Situation) -> Verdict:
    """Hold the live actions of agents that a freeze of the newest valid policy covers."""
    freezes = list(_in_force(situation))
    held = [action.key for action in due(plan) if any(_covers(scope, action.key.agent) for scope, _ in freezes)]
    agents = {key.agent for key in held}
    findings = [
        _finding(scope, each, sum(_covers(scope, agent) for agent in agents))
        for scope, each in freezes
        if any(_covers(scope, agent) for agent in agents)
    ]
    return trim("freeze", held, findings, for_people=True)


def _in_force(situation: Situation) -> Iterator[tuple[str, Freeze]]:
    """Scope and freeze, of the fleet and of its tenants; a tenant's freeze never reaches beyond the tenant."""
    policy = situation.snapshot.policy
    if policy.freeze is not None and _is_current(policy.freeze, situation.now):
        yield policy.freeze.scope, policy.freeze
    for tenant, limits in sorted(policy.tenants.items()):
        if limits.freeze is not None and _is_current(limits.freeze, situation.now):
            own = limits.freeze.scope
            yield own if own.startswith(f"{tenant}/") else tenant, limits.freeze


def _is_current(each: Freeze, now: float) -> bool:
    return each.until is None or epoch(each.until) > now


def _covers(scope: str, agent: AgentKey) -> bool:
    """``*`` is everything, ``tenant`` a tenant, ``tenant/name`` one agent."""
    return scope in ("*", agent.tenant, str(agent))


def _finding(scope: str, each: Freeze, count: int) -> Finding:
    waiting = "1 agent has" if count == 1 else f"{count} agents have"
    until = f"until {each.until}" if each.until else "until the policy lifts it"
    return Finding(
        Severity.WARNING,
        Hold.FROZEN,
        "gitops-agent.yaml" if scope == "*" else scope,
        f"frozen {until}: {each.reason}",
        f"{waiting} work waiting; differences are still found and reported. To go on, commit a Policy without "
        "this freeze.",
    )
