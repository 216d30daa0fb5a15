"""Mass delete: too many agents would lose their runtime at once.

The count is that of the whole record against the whole snapshot, also in a scoped pass: a deletion that is held
as one of many must not slip through alone when an event later brings a pass for its agent only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.document import Threshold
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Action, Class, Plan, Verdict
from gitops_agent.plan.guards.ruling import block, let_pass, takes_away
from gitops_agent.plan.legs import DORMANT
from gitops_agent.plan.reasons import Hold
from gitops_agent.plan.situation import Situation, fleet_sizes


def mass_delete(plan: Plan, situation: Situation) -> Verdict:
    """Block when the losses reach ``min`` agents and exceed ``ratio`` of a tenant or of the fleet."""
    losing = {action.key.agent for action in plan.actions if _ends_runtime(action)}
    if not losing and not situation.blind:
        return let_pass("mass_delete")
    lost = losing | set(_losses(situation))
    lost -= set(_never_there(lost, situation))
    findings = tuple(_findings(plan, situation, lost))
    return block("mass_delete", plan, findings) if findings else let_pass("mass_delete")


def _ends_runtime(action: Action) -> bool:
    return action.key.kind == Kind.RUNTIME and action.cls is Class.CHANGE and takes_away(action)


def _losses(situation: Situation) -> Iterator[AgentKey]:
    """The agents whose recorded runtime is no longer desired: removed, retired, stopped or moved."""
    return (
        key.agent
        for key, base in situation.bases.items()
        if key.kind == Kind.RUNTIME and not base.retained and _loses(base, situation)
    )


def _loses(base: Base, situation: Situation) -> bool:
    agent = situation.snapshot.agents.get(base.key.agent)
    if agent is None:
        return base.deletion is DeletionPolicy.DELETE and not _is_dormant(base)
    for resource in agent.resources:
        if resource.key == base.key:
            return resource.dormant and not _is_dormant(base)
    return not _is_dormant(base)


def _is_dormant(base: Base) -> bool:
    """Whether it was stopped by Git already: then there is no runtime to lose."""
    return base.fields.value.get(DORMANT) is True


def _never_there(agents: Iterable[AgentKey], situation: Situation) -> Iterator[AgentKey]:
    """Agents made by a commit that this one rolls back, and that never converged: undoing it loses nothing."""
    if not situation.undone:
        return
    runtimes: dict[AgentKey, list[Base]] = {}
    for key, base in situation.bases.items():
        if key.kind == Kind.RUNTIME:
            runtimes.setdefault(key.agent, []).append(base)
    for agent in agents:
        known = runtimes.get(agent)
        if known and all(not base.established and base.commit in situation.undone for base in known):
            yield agent


def _findings(plan: Plan, situation: Situation, lost: Iterable[AgentKey]) -> Iterator[Finding]:
    """One finding for every number that tripped."""
    counts = Counter(agent.tenant for agent in lost)
    limits = {tenant: situation.limits(tenant).mass_delete for tenant in (None, *sorted(counts))}
    if counts.total() < min(limit.min for limit in limits.values()):
        return  # too few to trip anywhere, however small the fleet is: no need to count it
    sizes = fleet_sizes(situation.bases)
    for tenant, limit in limits.items():
        where = "the fleet" if tenant is None else f"tenant {tenant}"
        count = counts.total() if tenant is None else counts[tenant]
        size = sum(sizes.values()) if tenant is None else sizes.get(tenant, 0)
        if _trips(count, size, limit):
            yield _finding(plan, where, count, size, limit)


def _trips(count: int, size: int, limit: Threshold) -> bool:
    # 0.29 * 100 is a little less than 29 in binary: exactly the ratio must not trip.
    return count >= limit.min and count > limit.ratio * size + 1e-9


def _finding(plan: Plan, where: str, count: int, size: int, limit: Threshold) -> Finding:
    return Finding(
        Severity.ERROR,
        Hold.MASS_DELETE,
        plan.commit[:10],
        f"{count} of {size} agents of {where} would lose their runtime",
        f"massDelete allows fewer than {limit.min} agents, or at most {limit.ratio:g} of {where} "
        f"({limit.ratio * size:g} agents). Nothing this commit asks for is done. If it is meant: split the "
        "commit and push the parts one after the other, or raise massDelete in the Policy document in an earlier "
        "commit, and push this one when that has converged. If not: gitops-agent rollback.",
    )
