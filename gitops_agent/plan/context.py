"""PlanContext: everything beside the three legs that a decision may depend on, as one frozen value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from gitops_agent.model.agent import Agent, Mode
from gitops_agent.model.catalog import BUILT_IN, Catalog
from gitops_agent.model.circuit import Circuit
from gitops_agent.model.control import Control
from gitops_agent.model.document import PolicySpec, TenantPolicy
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.policy_merge import limits_of, stricter
from gitops_agent.model.quantity import seconds
from gitops_agent.model.rollout import FailedTree
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import Scope


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What the guards look at. ``bases`` is the whole record, also in a scoped pass.

    ``repairs`` says when drift of a resource was repaired lately. ``blind`` names the drivers that could not be
    asked: nothing is concluded about their resources. ``busy`` agents have an action under way and are not planned
    for. ``undone`` holds the commits that this one rolls back. ``earlier_policy`` is that of the last commit that
    converged; ``policy`` is the stricter of the two. ``freezes`` are those of operators and of guards that
    tripped; ``frozen_since`` says when those of the policy were first seen, by their scopes. ``approved`` holds
    the digests of the actions that people approved. ``drifted`` agents had drift waiting when they were last
    looked at; of ``mended`` ones it was repaired lately, unasked and unexplained. ``failed`` says why this very
    tree failed before. ``catalog``: the kinds and reasons of the installed drivers.
    """

    now: float
    snapshot: Snapshot
    bases: Mapping[ResourceKey, Base]
    attempts: Mapping[ResourceKey, Attempt] = field(default_factory=dict)
    ready: AbstractSet[AgentKey] = frozenset()
    scope: Scope = None
    repairs: Mapping[ResourceKey, Sequence[float]] = field(default_factory=dict)
    unreachable: AbstractSet[str] = frozenset()
    busy: AbstractSet[AgentKey] = frozenset()
    undone: AbstractSet[str] = frozenset()
    earlier_policy: PolicySpec | None = None
    freezes: Sequence[Control] = ()
    frozen_since: Mapping[str, float] = field(default_factory=dict)
    approved: AbstractSet[str] = frozenset()
    circuits: Mapping[str, Circuit] = field(default_factory=dict)
    drifted: AbstractSet[AgentKey] = frozenset()
    recently_repaired: Mapping[AgentKey, float] = field(default_factory=dict)
    failed: FailedTree | None = None
    catalog: Catalog = BUILT_IN
    policy: PolicySpec = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", stricter(self.snapshot.policy, self.earlier_policy))

    def limits(self, tenant: str | None = None) -> TenantPolicy:
        """The numbers in force for the fleet or for a tenant."""
        return limits_of(self.policy, tenant)


def recent_repairs(context: PlanContext, key: ResourceKey) -> tuple[float, ...]:
    """When drift of a resource was repaired within the window of its oscillation limit, oldest first."""
    since = context.now - seconds(context.limits(key.agent.tenant).oscillation.window)
    return tuple(sorted(at for at in context.repairs.get(key, ()) if at > since))


def resting(context: PlanContext, key: ResourceKey) -> Attempt | None:
    """The retry state of a resource whose next try is still to come."""
    attempt = context.attempts.get(key)
    if attempt is None:
        return None
    longest = seconds(context.limits(key.agent.tenant).backoff.longest)
    return None if attempt.is_due(context.now, longest) else attempt


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
