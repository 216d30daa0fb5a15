"""Freezes in force: of the policy in Git, of operators and of guards. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gitops_agent.model.control import Control, covers
from gitops_agent.model.document import Freeze, PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.quantity import epoch


def git_freezes(policy: PolicySpec, now: float) -> Iterator[tuple[str, Freeze]]:
    """Every freeze of a policy that is in force, with its scope; a tenant's own never reaches beyond it."""
    if policy.freeze is not None and _is_current(policy.freeze, now):
        yield policy.freeze.scope, policy.freeze
    for tenant, limits in sorted(policy.tenants.items()):
        if limits.freeze is not None and _is_current(limits.freeze, now):
            own = limits.freeze.scope
            yield own if own.startswith(f"{tenant}/") else tenant, limits.freeze


def frozen_since(policy: PolicySpec, known: Mapping[str, float], now: float) -> dict[str, float]:
    """When each freeze of a policy was first seen, by what is known of those of the policy before."""
    return {scope: known.get(scope, now) for scope, _ in git_freezes(policy, now)}


def _is_current(each: Freeze, now: float) -> bool:
    return each.until is None or epoch(each.until) > now


def frozen_scopes(policy: PolicySpec, controls: Iterable[Control], now: float) -> Iterator[str]:
    """The scopes of every freeze in force: of Git for the fleet and for tenants, of operators and of guards."""
    yield from (scope for scope, _ in git_freezes(policy, now))
    yield from (control.target for control in controls)


def is_frozen(agent: AgentKey, policy: PolicySpec, controls: Iterable[Control], now: float) -> bool:
    """Whether any freeze in force covers an agent; ``controls`` are the freezes of operators and guards."""
    return any(covers(scope, agent) for scope in frozen_scopes(policy, controls, now))
