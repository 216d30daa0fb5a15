"""One pass: the stages in order. Everything else is somewhere else."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from gitops_agent.control.directives import Orders
from gitops_agent.drivers.plugins import Connections
from gitops_agent.errors import SourceError
from gitops_agent.model.plan import Plan
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.observer import Lookout
from gitops_agent.ports import Scope
from gitops_agent.reconcile.executor import ActionExecutor, Executed, ExecutorContext
from gitops_agent.reconcile.leases.holder import Leasing
from gitops_agent.reconcile.settling import Recovery
from gitops_agent.rollout.planning import Planning
from gitops_agent.source.tracker import Intake, SourceTracker
from gitops_agent.status.bookkeeping import Bookkeeper
from gitops_agent.status.proceedings import PassRecord, PassResult, Witness
from gitops_agent.support.gc import gc_paused


class Pipeline:
    """Runs passes for one instance, one at a time."""

    def __init__(
        self,
        receiver: SourceTracker,
        drivers: Connections,
        monitor: HealthMonitor,
        bench: ExecutorContext,
        books: Bookkeeper,
        orders: Orders | None = None,
    ) -> None:
        self.receiver = receiver
        self._lookout = Lookout(drivers, monitor, bench.journal, bench.eyes)
        self._settler = Recovery(bench.journal, bench.clock)
        self._leasing = Leasing(bench.leases)
        self._crew = ActionExecutor(bench, lambda tenant: self.planning.limits(tenant))
        self._bench = bench
        self._books = books
        self._witnesses: list[Witness] = []
        self._moved = False
        self._ended: list[Executed] = []  # what ended since the last pass that went all the way
        self.planning = Planning(receiver, orders, books, bench, self._lookout, lambda: self._crew.busy)

    @gc_paused()
    def run(self, scope: Scope = None, *, fetch: bool = True, actor: str = "once") -> PassResult:
        """Source, snapshot, observe, plan, reconcile, report."""
        if fetch or self._moved:
            self.receiver.fetch()
        self._books.obey(self.receiver.enforcement)
        intake = self.receiver.take()
        if intake.desired is None:
            return self._books.idle(intake)
        scope = self._widen(scope, intake)
        self.planning.attend(intake.head)
        self._books.welcome(intake)
        self._ended += self._crew.collect()
        observed = self._lookout.observe(intake.desired, scope)
        if self._settler.settle(observed):
            # Drivers say what differs from our record, and that has just caught up.
            observed = self._lookout.observe(intake.desired, scope)
        snapshot, blocked = self.planning.advance(intake, observed, scope)
        self._lookout.forget(key for key in intake.moved if key not in snapshot.agents)
        look = self._lookout.judge(observed, self.planning.without_given_up(snapshot), scope)
        snapshot = self.planning.without_abandoned(snapshot, look)
        plan = self.planning.plan(snapshot, look)
        if scope is not None and any(verdict.freeze for verdict in plan.verdicts):
            return self.run(None, fetch=False, actor=actor)  # who is to judge the whole fleet should have seen it
        self._settler.abandon(plan, look)
        plan = self._leasing.trim(plan)
        executed = self._reconcile(plan, actor)
        after = self._lookout.again(snapshot, look, (action for action, _ in executed))
        steered = (self.receiver.enforcement.rollout, self.planning.order, self._books.circuits())
        pass_ = PassRecord(intake, snapshot, plan, blocked, executed, after, self._crew.busy, *steered)
        return self._close(self._witnessed(pass_))

    def fetch(self) -> bool:
        """Ask the source, from any thread; whether a pass should look at what it said."""
        return self.receiver.fetch()

    @property
    def source_problem(self) -> SourceError | None:
        """Why the source did not answer when it was last asked."""
        return self.receiver.problem

    def attach(self, witness: Witness) -> None:
        """Have somebody look at every pass before it is closed; what they find is said with it."""
        self._witnesses.append(witness)

    def close(self) -> None:
        """Wait for what is still under way, and record how it ended."""
        self._crew.close()

    def _widen(self, scope: Scope, intake: Intake) -> Scope:
        """Everything until all that a crash left open is settled; then a commit adds the agents it moves."""
        moved = self.receiver.enforcement.still_to_move(intake.target, intake.moved)
        if scope is None or not self._settler.done:
            return None
        return scope | moved | self._books.unfinished() | self._lookout.due() | self._leasing.waiting

    def _witnessed(self, pass_: PassRecord) -> PassRecord:
        said = [finding for witness in self._witnesses for finding in witness.witness(pass_)]
        return replace(pass_, plan=replace(pass_.plan, findings=(*pass_.plan.findings, *said))) if said else pass_

    def _reconcile(self, plan: Plan, actor: str) -> list[Executed]:
        if plan.actions:
            self._bench.journal.record_plan(plan, self._bench.clock.now())
        ended, self._ended = self._ended, []
        return ended + self._crew.execute(plan, actor)

    def _close(self, pass_: PassRecord) -> PassResult:
        """Report, and say when there will be something to do."""
        result = replace(self._books.close(pass_, self.receiver.enforcement), proceedings=pass_)
        self._moved = result.moved
        dues = [self.planning.next_due(), self._lookout.next_due(), self._leasing.next_due()]
        return reduce(PassResult.no_later_than, dues + [each.next_due() for each in self._witnesses], result)
