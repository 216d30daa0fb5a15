"""Situation: everything beside the three legs that a decision may depend on, as one frozen value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from gitops_agent.model.agent import Agent, Mode
from gitops_agent.model.document import PolicySpec, Threshold
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import Scope


@dataclass(frozen=True, slots=True)
class Situation:
    """What the guards look at. ``bases`` is the whole record, also in a scoped pass.

    ``repairs`` counts the recent drift repairs of a resource. ``blind`` names the drivers that
    could not be asked: nothing is concluded about their resources. ``busy`` agents have an action under way and
    are not planned for. ``undone`` holds the commits that this one rolls back. ``earlier_policy`` is that of the
    last good commit: the stricter of the two holds, so that no commit loosens the guard that should have stopped
    it.
    """

    now: float
    snapshot: Snapshot
    bases: Mapping[ResourceKey, Base]
    attempts: Mapping[ResourceKey, Attempt] = field(default_factory=dict)
    ready: AbstractSet[AgentKey] = frozenset()
    scope: Scope = None
    repairs: Mapping[ResourceKey, int] = field(default_factory=dict)
    blind: AbstractSet[str] = frozenset()
    busy: AbstractSet[AgentKey] = frozenset()
    undone: AbstractSet[str] = frozenset()
    earlier_policy: PolicySpec | None = None


def mass_delete_limit(situation: Situation, tenant: str | None) -> Threshold:
    """The limit for the fleet or a tenant: the strictest of both policies, a tenant's own included."""
    limits = []
    for policy in (situation.snapshot.policy, situation.earlier_policy):
        if policy is not None:
            limits.append(policy.mass_delete)
            own = policy.tenants.get(tenant) if tenant is not None else None
            if own is not None and "mass_delete" in own.model_fields_set:
                limits.append(own.mass_delete)
    return Threshold(min=min(limit.min for limit in limits), ratio=min(limit.ratio for limit in limits))


def actions_limit(situation: Situation) -> int:
    """How many actions one pass may do."""
    policies = (situation.snapshot.policy, situation.earlier_policy)
    return min(policy.actions_per_pass for policy in policies if policy is not None)


def fleet_sizes(bases: Mapping[ResourceKey, Base]) -> dict[str, int]:
    """How many agents of each tenant have a runtime on record."""
    agents = {key.agent for key, base in bases.items() if key.kind == Kind.RUNTIME and not base.retained}
    return dict(Counter(agent.tenant for agent in agents))


def is_paused(agent: Agent, now: float) -> bool:
    """Whether a pause is in force: one without an end, or with an end still to come."""
    return agent.pause is not None and (agent.pause.until is None or agent.pause.until > now)


def is_hands_off(agent: Agent | None, now: float) -> bool:
    """Whether the author asks us not to act on this agent for now."""
    return agent is not None and (agent.mode is Mode.OBSERVE or is_paused(agent, now))
