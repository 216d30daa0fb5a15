"""PlanContext: everything beside the three legs that a decision may depend on, as one frozen value."""

from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial

from gitops_agent.model.agent import Agent, Mode
from gitops_agent.model.catalog import BUILT_IN, Catalog
from gitops_agent.model.control import Control
from gitops_agent.model.document import PolicySpec, TenantPolicy
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt, Circuit
from gitops_agent.model.pace import MassReturn, owed
from gitops_agent.model.passes import Directives, Live, Now, Scope
from gitops_agent.model.plan import Action, Class
from gitops_agent.model.policy_merge import limits_of, stricter
from gitops_agent.model.quantity import seconds
from gitops_agent.model.rollout import FailedTree
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import AgentStatuses, State
from gitops_agent.model.status import AgentStatus, ConditionType, Health, HealthState
from gitops_agent.plan.reasons import ONLY_REPORTED, is_absence_code
from gitops_agent.ports import JournalReader


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What the guards look at. ``bases`` is the whole record, also in a scoped pass. ``repairs`` says when drift
    of a resource was repaired lately, asked for the few that drifted again; ``recently_repaired``: when that of
    agents was repaired unasked, of those that were gone or of the others; ``drifted`` agents had drift waiting
    when they were last observed, ``gone`` ones were not there. ``ready_since``: when a Ready agent became so.
    ``active``: seconds at work. ``returning``: who comes back from a mass absence. ``owed``: the actions of a
    scope that a cap a minute has not paid back yet.
    ``unreachable`` names the drivers that could not be asked, ``unseen`` the agents that could not be looked at
    although their drivers answered: nothing is concluded about either. ``before``: the statuses that the last pass
    left. ``busy`` agents have an action under way
    and are not planned for.
    ``earlier_policy`` is that of the last commit that converged; ``policy`` is the stricter of the two.
    ``freezes`` are those of operators and of guards that tripped; ``frozen_since``: when those of the policy were
    first seen, by their scopes. ``approved``: the digests of approved actions. ``failed``: why this very tree
    failed before. ``catalog``: the kinds and reasons of the installed drivers. ``left``: the agents whose changes
    wait for a wave of their own, because a freeze or a pause covered them when theirs came."""

    now: float
    snapshot: Snapshot
    bases: Mapping[ResourceKey, Base]
    attempts: Mapping[ResourceKey, Attempt] = field(default_factory=dict)
    ready: Container[AgentKey] = frozenset()
    ready_since: Callable[[AgentKey], float] = lambda _key: 0.0
    scope: Scope = None
    repairs: Callable[[ResourceKey], Sequence[float]] = lambda _key: ()
    unreachable: AbstractSet[str] = frozenset()
    unseen: AbstractSet[AgentKey] = frozenset()
    before: Mapping[AgentKey, AgentStatus] = field(default_factory=dict)
    busy: AbstractSet[AgentKey] = frozenset()
    earlier_policy: PolicySpec | None = None
    freezes: Sequence[Control] = ()
    frozen_since: Mapping[str, float] = field(default_factory=dict)
    approved: AbstractSet[str] = frozenset()
    circuits: Mapping[str, Circuit] = field(default_factory=dict)
    drifted: AbstractSet[AgentKey] = frozenset()
    gone: AbstractSet[AgentKey] = frozenset()
    recently_repaired: Callable[[bool], Mapping[AgentKey, float]] = lambda _absent: {}
    active: float = 0.0
    returning: MassReturn | None = None
    owed: Callable[[str, float], float] = lambda _scope, _per_minute: 0.0
    failed: FailedTree | None = None
    catalog: Catalog = BUILT_IN
    left: AbstractSet[AgentKey] = frozenset()
    policy: PolicySpec = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", stricter(self.snapshot.policy, self.earlier_policy))

    def limits(self, tenant: str | None = None) -> TenantPolicy:
        """The numbers in force for the fleet or for a tenant."""
        return limits_of(self.policy, tenant)

    def just_repaired(self, *, absent: bool) -> dict[AgentKey, float]:
        """Agents (that were gone, or others) that were repaired so lately that it belongs to what is seen now."""
        return {
            agent: at
            for agent, at in self.recently_repaired(absent).items()
            if 0 <= self.now - at < seconds(self.limits(agent.tenant).mass_drift.window)
        }


def recent_repairs(context: PlanContext, key: ResourceKey) -> tuple[float, ...]:
    """When drift of a resource was repaired within the window of its oscillation limit, oldest first."""
    since = context.now - seconds(context.limits(key.agent.tenant).oscillation.window)
    return tuple(sorted(at for at in context.repairs(key) if at > since))


def resting(context: PlanContext, key: ResourceKey) -> Attempt | None:
    """The retry state of a resource whose next try is still to come."""
    attempt = context.attempts.get(key)
    if attempt is None:
        return None
    longest = seconds(context.limits(key.agent.tenant).backoff.longest)
    return None if attempt.is_due(context.now, longest) else attempt


def is_paused(agent: Agent, now: float) -> bool:
    """Whether a pause is in force: one without an end, or with an end still to come."""
    return agent.pause is not None and (agent.pause.until is None or agent.pause.until > now)


def is_hands_off(agent: Agent | None, now: float) -> bool:
    """Whether the author asks us not to act on this agent for now."""
    return agent is not None and (agent.mode is Mode.OBSERVE or is_paused(agent, now))


def time_given(agent: Agent, policy: PolicySpec) -> float:
    """Seconds an agent may take to become Ready: its own time, or less if the policy says so."""
    limit = limits_of(policy, agent.key.tenant).rollout.health_timeout
    return agent.health_timeout if limit is None else min(agent.health_timeout, seconds(limit))


# -- from the state of an instance to the context of a plan

REPAIR_LOOKBACK_SECONDS = 3600.0
"""What was repaired longer ago has nothing to do with what drifts now, whatever window a policy has."""


@dataclass(frozen=True, slots=True)
class PassContext:
    """What holds for every plan of one pass. ``running``: actions that an earlier pass began."""

    now: Now
    directives: Directives
    running: tuple[Action, ...]
    history: JournalReader
    catalog: Catalog = BUILT_IN


def context_for(
    state: State,
    snapshot: Snapshot,
    live: Live,
    earlier_policy: PolicySpec | None,
    around: PassContext,
    failed: FailedTree | None = None,
) -> PlanContext:
    """The context of a plan that takes what is live to a snapshot."""
    now, agents, policy = around.now.wall, state.status.agents, snapshot.policy
    windows = (seconds(each.oscillation.window) for each in (policy, *policy.tenants.values()))
    return PlanContext(
        now=now,
        snapshot=snapshot,
        bases=state.reconcile.bases,
        attempts=state.reconcile.attempts,
        ready=Ready(agents, live.health),
        ready_since=partial(_ready_since, agents),
        scope=live.scope,
        repairs=partial(_repairs, around, state, now - max(windows)),
        unreachable=frozenset(live.observed.unreachable),
        unseen=live.observed.unseen_agents,
        before=agents,
        busy=frozenset(action.key.agent for action in around.running),
        earlier_policy=earlier_policy,
        freezes=around.directives.freezes,
        frozen_since=state.source.freezes_first_seen,
        approved=around.directives.approved,
        circuits=state.reconcile.circuits,
        drifted=_unexplained(agents, around.catalog, absent=False),
        gone=_unexplained(agents, around.catalog, absent=True),
        recently_repaired=partial(_recently_repaired, around, state),
        active=around.now.active,
        returning=state.reconcile.returning,
        owed=partial(owed, state.reconcile.debts, around.now),
        failed=failed,
        catalog=around.catalog,
        left=frozenset(state.rollout.rollout.left if state.rollout.rollout is not None else ()),
    )


def _unexplained(agents: AgentStatuses, catalog: Catalog, *, absent: bool) -> frozenset[AgentKey]:
    """The agents with drift that has no known cause, such as a restart of the host: gone ones, or the others."""
    return frozenset(
        key
        for key in agents.having(ConditionType.DRIFTED)
        for each in agents[key].conditions
        if each.type is ConditionType.DRIFTED
        and each.reason not in catalog.explained | ONLY_REPORTED
        and is_absence_code(catalog, each.reason) is absent
    )


def _ready_since(agents: AgentStatuses, key: AgentKey) -> float:
    ready = agents[key].find(ConditionType.READY) if key in agents else None
    return ready.last_transition_at if ready is not None else 0.0


class Ready(Container[AgentKey]):
    """The agents that are Ready, as a view: a scoped plan asks for a few, and must not pay for all."""

    def __init__(self, agents: AgentStatuses, health: Mapping[AgentKey, Health]) -> None:
        self._agents = agents
        self._health = health

    def __contains__(self, key: object) -> bool:
        # What was Ready at the end of the last pass may be dead now: what was just seen has the last word.
        seen = self._health.get(key)  # type: ignore[call-overload]
        if seen is not None and seen.state not in (HealthState.HEALTHY, HealthState.STOPPED):
            return False
        return key in self._agents and key not in self._agents.not_ready


def _repairs(around: PassContext, state: State, since: float, key: ResourceKey) -> Sequence[float]:
    base = state.reconcile.bases.get(key)
    # What was repaired of an earlier spec says nothing about this one.
    applied_at = base.applied_at if base is not None else 0.0
    return around.history.repairs(key, max(since, applied_at, state.control.retried_at.get(key.agent, 0.0)))


def _recently_repaired(around: PassContext, state: State, absent: bool) -> dict[AgentKey, float]:
    """When drift of agents (that were gone, or others) was last repaired, or is being repaired. Not what people
    approved, what has a known cause, nor what is still being built."""
    now, bases = around.now.wall, state.reconcile.bases

    def counts(action: Action) -> bool:
        base = bases.get(action.key)
        explained = action.reason in around.catalog.explained
        approved = action.digest in around.directives.all_approved
        established = base is not None and base.established
        of_kind = action.drift_class.is_drift and (action.drift_class is Class.MISSING_EXTERNAL) is absent
        return of_kind and established and not (explained or approved)

    done = around.history.recently_repaired(now - REPAIR_LOOKBACK_SECONDS)
    every = [*done, *((action, now) for action in around.running)]
    return {action.key.agent: at for action, at in sorted(every, key=lambda each: each[1]) if counts(action)}
