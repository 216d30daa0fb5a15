"""Freezes in force: by the policy in Git, by operators, by guards that tripped. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from gitops_agent.model.control import EVERYTHING, Control, covers
from gitops_agent.model.document import Freeze, PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import PassRecord
from gitops_agent.model.quantity import epoch

KINDS_OF_SCOPE = ("fleet", "tenant", "agent")


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


def frozen_scopes(policy: PolicySpec, others: Iterable[Control], now: float) -> tuple[str, ...]:
    """Every frozen scope: of the policy, and of these freezes of operators and guards."""
    return (*(scope for scope, _ in git_freezes(policy, now)), *(each.target for each in others))


def is_frozen(agent: AgentKey, scopes: Iterable[str]) -> bool:
    """Whether one of these scopes covers an agent."""
    return any(covers(scope, agent) for scope in scopes)


def frozen_kinds(record: PassRecord, now: float) -> tuple[str, ...]:
    """Which kinds of scopes are frozen after a pass, without names: some of ``KINDS_OF_SCOPE``."""
    tripped = (verdict.freeze for verdict in record.plan.verdicts if verdict.freeze)
    scopes = (*frozen_scopes(record.snapshot.policy, record.directives.freezes, now), *tripped)
    kinds = {_kind(scope) for scope in scopes}
    return tuple(kind for kind in KINDS_OF_SCOPE if kind in kinds)


def _kind(scope: str) -> str:
    if scope == EVERYTHING:
        return "fleet"
    return "agent" if "/" in scope else "tenant"


def _is_current(each: Freeze, now: float) -> bool:
    return each.until is None or epoch(each.until) > now
