"""From what was seen to what may be done: the situation, the plan under it, and the next step of a rollout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property

from gitops_agent.control.directives import NO_DIRECTIVES, Order, Orders, approved_by
from gitops_agent.errors import SourceError
from gitops_agent.model.catalog import Catalog
from gitops_agent.model.document import PolicySpec, TenantPolicy
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.policy_merge import limits_of, stricter
from gitops_agent.model.quantity import seconds
from gitops_agent.model.revision import Revision
from gitops_agent.model.rollout import FailedTree
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import AgentStatus, ConditionType, Health, HealthState
from gitops_agent.observe import Observed
from gitops_agent.observe.observer import Lookout
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PlanContext
from gitops_agent.ports import Journal, Scope
from gitops_agent.reconcile.executor import ExecutorContext
from gitops_agent.rollout.provisioning import ProvisioningDeadlines
from gitops_agent.rollout.waves import announced
from gitops_agent.source.tracker import Intake, SourceTracker
from gitops_agent.status.bookkeeping import Bookkeeper
from gitops_agent.status.proceedings import Look

AT_ONCE = 3600.0
"""What was repaired longer ago has nothing to do with what drifts now, whatever window a policy has."""

Statuses = Callable[[], Mapping[AgentKey, AgentStatus]]


class Planning:
    """Makes the plans of a pass."""

    def __init__(
        self,
        receiver: SourceTracker,
        orders: Orders | None,
        books: Bookkeeper,
        bench: ExecutorContext,
        lookout: Lookout,
        busy: Callable[[], Sequence[Action]],
    ) -> None:
        self._receiver = receiver
        self._orders = orders or Orders(bench.journal, bench.clock)
        self._books = books
        self._journal = bench.journal
        self._clock = bench.clock
        self._lookout = lookout
        self._busy = busy
        self.order = NO_DIRECTIVES
        self._policy = PolicySpec()
        self._abandoned = ProvisioningDeadlines(bench.journal, bench.clock)

    def attend(self, head: Revision | None) -> None:
        """Hear what people have said that steers the plans of this pass."""
        self.order = self._orders.now(self._receiver.enforcement.commit, head)

    def advance(self, intake: Intake, observed: Observed, scope: Scope) -> tuple[Snapshot, Plan | None]:
        """What is in force for this pass, and the whole plan of a newest commit that a guard stops.

        The commit as a whole must pass the guards; only then its waves begin, and go on.
        """
        enforcement, target = self._receiver.enforcement, intake.target
        if target is None:
            assert intake.standing is not None
            return intake.standing, None
        if not enforcement.is_in_force(target):
            whole = self.whole(target, Look(observed, {}, scope))
            if whole.blocked:
                self._journal.record_plan(whole, self._clock.now())
                return (enforcement.seen_as(target) if intake.standing else target), whole
            if observed.unreachable and enforcement.is_under_way(target):
                return enforcement.seen_as(target), None  # a gate that was open when we last looked may not be now
            step = enforcement.next_step(target, self._journal.bases())
            self._books.release(step.released)
            enforcement.take(step, target)
        return enforcement.seen_as(target), None

    def without_given_up(self, snapshot: Snapshot) -> Snapshot:
        """What is in force, without what provisioning that was given up before had built."""
        return self._abandoned.without(snapshot)

    def without_abandoned(self, snapshot: Snapshot, look: Look) -> Snapshot:
        """What is in force, without what provisioning that is out of time had built."""
        policy = stricter(snapshot.policy, self._receiver.enforcement.policy_before())
        return self._abandoned.attend(snapshot, look.health, self._books.statuses(), policy)

    def whole(self, target: Snapshot, look: Look) -> Plan:
        """The plan that takes everybody to a commit at once: what the commit as a whole is judged by."""
        failed = self._receiver.enforcement.failed_before(target)
        return self._build(target, look, failed, is_whole=True)

    def plan(self, snapshot: Snapshot, look: Look) -> Plan:
        """The plan for what is in force."""
        self._policy = stricter(snapshot.policy, self._receiver.enforcement.policy_before())
        return self._build(snapshot, look, None, is_whole=False)

    def limits(self, tenant: str) -> TenantPolicy:
        """The numbers for a tenant that the newest plan was made by."""
        return limits_of(self._policy, tenant)

    def preview(self, snapshot: Snapshot) -> Plan:
        """The whole plan of a commit, without doing any of it."""
        step = self._receiver.enforcement.next_step(snapshot, self._journal.bases())
        self.attend(snapshot.revision)
        snapshot = self._abandoned.without(snapshot)
        plan = self.whole(snapshot, self._lookout.look(snapshot, None))
        return replace(plan, findings=(*plan.findings, *announced(step.rollout)))

    def survey(self) -> tuple[Plan, Look, Snapshot]:
        """The plan for what is in force now, what was seen for it, and what is in force; nothing is done."""
        standing = self._receiver.in_force()
        if standing is None:
            hint = "run gitops-agent once first; with spec.reconcile.mode: Observe it changes nothing"
            raise SourceError("nothing is in force yet", hint=hint)
        standing = self._abandoned.without(standing)
        self.attend(standing.revision)
        look = self._lookout.look(standing, None)
        return self.plan(standing, look), look, standing

    def next_due(self) -> float | None:
        """Seconds until a freeze ends, or until somebody new is out of time."""
        dues = (self.order.ends_in(self._clock.now()), self._abandoned.next_due())
        return min((due for due in dues if due is not None), default=None)

    def _build(self, snapshot: Snapshot, look: Look, failed: FailedTree | None, *, is_whole: bool) -> Plan:
        now, statuses = self._clock.now(), self._books.statuses
        context = PlanContext(
            now=now,
            snapshot=snapshot,
            bases=self._journal.bases(),
            attempts=self._journal.attempts(),
            ready=Ready(statuses, look.health),
            scope=look.scope,
            repairs=_Repairs(self._journal, now - _longest_window(snapshot.policy)),
            unreachable=frozenset(look.observed.unreachable),
            busy=frozenset(action.key.agent for action in self._busy()),
            undone=self._receiver.undone(snapshot.revision),
            earlier_policy=self._receiver.enforcement.policy_before(),
            freezes=self.order.freezes,
            frozen_since=self._receiver.frozen_since(),
            approved=self.order.approved,
            circuits=self._books.circuits(),
            drifted=_Drifted(statuses, self._lookout.catalog),
            recently_repaired=_Mended(self._journal, self.order, self._busy(), now, self._lookout.catalog),
            catalog=self._lookout.catalog,
            failed=failed,
        )
        plan = build(snapshot, look.observed.seen.values(), context, look.health, is_whole=is_whole)
        said = (*self.order.findings, *approved_by(self.order, plan))
        return replace(plan, findings=plan.findings + said) if said else plan


class Ready(Set[AgentKey]):
    """The agents that are Ready, as a view: a scoped plan asks for a few, and must not pay for all."""

    def __init__(self, statuses: Statuses, health: Mapping[AgentKey, Health] | None = None) -> None:
        self._statuses = statuses
        self._health = health or {}

    def __contains__(self, key: object) -> bool:
        # What was Ready at the end of the last pass may be dead now: what was just seen has the last word.
        seen = self._health.get(key)  # type: ignore[call-overload]
        if seen is not None and seen.state not in (HealthState.HEALTHY, HealthState.STOPPED):
            return False
        status = self._statuses().get(key)  # type: ignore[call-overload]
        return status is not None and status.ready

    def __iter__(self) -> Iterator[AgentKey]:
        return (key for key in self._statuses() if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Drifted(Set[AgentKey]):
    """The agents with drift waiting when they were last looked at, found when somebody asks.

    Not those that wait for their turn after a restart of the host: their absence is explained.
    """

    def __init__(self, statuses: Statuses, catalog: Catalog) -> None:
        self._statuses = statuses
        self._explained = catalog.explained

    def __contains__(self, key: object) -> bool:
        status = self._statuses().get(key)  # type: ignore[call-overload]
        return status is not None and _is_unexplained(status, self._explained)

    def __iter__(self) -> Iterator[AgentKey]:
        return (key for key, status in self._statuses().items() if _is_unexplained(status, self._explained))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_unexplained(status: AgentStatus, explained: frozenset[str]) -> bool:
    drift = ConditionType.DRIFTED
    return any(said.type is drift and said.reason not in explained for said in status.conditions)


class _Mended(Mapping[AgentKey, float]):
    """When drift of agents was last repaired, or is being repaired, found when somebody asks.

    Not what people approved, what a restart of the host explains, nor what is still being built.
    """

    def __init__(
        self, journal: Journal, order: Order, busy: Sequence[Action], now: float, catalog: Catalog
    ) -> None:
        self._explained = catalog.explained
        self._journal = journal
        self._order = order
        self._busy = busy
        self._now = now

    @cached_property
    def _known(self) -> dict[AgentKey, float]:
        bases = self._journal.bases()
        done = [
            *self._journal.recently_repaired(self._now - AT_ONCE),
            *((action, self._now) for action in self._busy),
        ]
        return {
            action.key.agent: at
            for action, at in sorted(done, key=lambda each: each[1])
            if action.drift_class.is_drift
            and action.reason not in self._explained
            and action.digest not in self._order.given
            and (base := bases.get(action.key)) is not None
            and base.established
        }

    def __getitem__(self, key: AgentKey) -> float:
        return self._known[key]

    def __iter__(self) -> Iterator[AgentKey]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class _Repairs(Mapping[ResourceKey, Sequence[float]]):
    """When drift of a resource was repaired lately, asked of the journal for the few that drifted again."""

    def __init__(self, journal: Journal, since: float) -> None:
        self._journal = journal
        self._since = since

    def __getitem__(self, key: ResourceKey) -> Sequence[float]:
        retried = float(self._journal.get(f"retried:{key.agent}") or 0.0)
        return self._journal.repairs(key, max(self._since, retried))

    def __iter__(self) -> Iterator[ResourceKey]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _longest_window(policy: PolicySpec) -> float:
    every = (policy, *policy.tenants.values())
    return max(seconds(each.oscillation.window) for each in every)
