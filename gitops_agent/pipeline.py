"""One pass: the stages in order. Everything else is somewhere else."""

from __future__ import annotations

from dataclasses import replace

from gitops_agent.bookkeeping import Bookkeeper
from gitops_agent.collector import collector_paused
from gitops_agent.errors import SourceError
from gitops_agent.intake import Intake, Receiver
from gitops_agent.leasing import Leasing
from gitops_agent.lookout import Lookout
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.orders import Orders
from gitops_agent.planning import Planning
from gitops_agent.ports import Driver, Scope
from gitops_agent.proceedings import Look, PassResult, Proceedings, Witness
from gitops_agent.reconcile.execute import Crew, Executed, Workbench
from gitops_agent.reconcile.health import HealthMonitor
from gitops_agent.settling import Settler


class Pipeline:
    """Runs passes for one instance, one at a time."""

    def __init__(
        self,
        receiver: Receiver,
        drivers: tuple[Driver, ...],
        monitor: HealthMonitor,
        bench: Workbench,
        books: Bookkeeper,
        orders: Orders | None = None,
    ) -> None:
        self._receiver = receiver
        self._lookout = Lookout(drivers, monitor, bench.journal, bench.eyes)
        self._settler = Settler(bench.journal, bench.clock)
        self._leasing = Leasing(bench.leases)
        self._crew = Crew(bench)
        self._bench = bench
        self._books = books
        self._witnesses: list[Witness] = []
        self._moved = False
        self._planning = Planning(
            receiver, orders or Orders(bench.journal, bench.clock), books, bench.journal, bench.clock, self._busy
        )

    @collector_paused()
    def run(self, scope: Scope = None, *, fetch: bool = True, actor: str = "once") -> PassResult:
        """Source, snapshot, observe, plan, reconcile, report."""
        if fetch or self._moved:
            self._receiver.fetch()
        self._books.obey(self._receiver.enforcement)
        intake = self._receiver.take()
        if intake.desired is None:
            return self._books.idle(intake)
        scope = self._widen(scope, intake)
        self._planning.attend(intake.head)
        self._books.welcome(intake)
        ended = self._crew.collect()
        observed = self._lookout.observe(intake.desired, scope)
        if self._settler.settle(observed):
            # Drivers say what differs from our record, and that has just caught up.
            observed = self._lookout.observe(intake.desired, scope)
        desired, blocked = self._planning.advance(intake, observed, scope)
        look = self._lookout.judge(observed, self._planning.abandoned.without(desired), scope)
        snapshot = self._planning.without_abandoned(desired, look)
        plan = self._planning.plan(snapshot, look)
        if scope is not None and any(verdict.freeze for verdict in plan.verdicts):
            return self.run(None, fetch=False, actor=actor)  # who is to judge the whole fleet should have seen it
        self._settler.abandon(plan, look)
        plan = self._leasing.trim(plan)
        executed = ended + self._reconcile(plan, actor)
        after = self._lookout.again(snapshot, look, (action for action, _ in executed))
        rollout = self._receiver.enforcement.rollout
        said = (rollout, self._planning.order, self._books.circuits())
        pass_ = Proceedings(intake, snapshot, plan, blocked, executed, after, self._crew.busy, *said)
        result = self._books.close(self._witnessed(pass_), self._receiver.enforcement)
        thaw = self._planning.order.ends_in(self._bench.clock.now())
        for due in (thaw, self._lookout.next_due(), *(witness.next_due() for witness in self._witnesses)):
            result = result.no_later_than(due)
        result = replace(result, proceedings=pass_)
        self._moved = result.moved
        return result.no_later_than(self._leasing.pause).no_later_than(self._planning.abandoned.next_due())

    def fetch(self) -> bool:
        """Ask the source, from any thread; whether a pass should look at what it said."""
        return self._receiver.fetch()

    @property
    def source_problem(self) -> SourceError | None:
        """Why the source did not answer when it was last asked."""
        return self._receiver.problem

    def refuse(self, head: Revision) -> None:
        """SourceRefused when this head would not be followed."""
        self._receiver.refuse(head)

    def preview(self, snapshot: Snapshot | None = None) -> Plan:
        """The plan for a snapshot, or for what is in force now, without doing any of it."""
        if snapshot is None:
            return self.survey()[0]
        snapshot = self._planning.abandoned.without(snapshot)
        self._planning.attend(snapshot.revision)
        return self._planning.whole(snapshot, self._lookout.look(snapshot, None))

    def survey(self) -> tuple[Plan, Look, Snapshot]:
        """The plan for what is in force now, what was seen for it, and what is in force; nothing is done."""
        standing = self._receiver.enforcement.standing()
        if standing is None:
            hint = "run gitops-agent once first; with spec.reconcile.mode: Observe it changes nothing"
            raise SourceError("nothing is in force yet", hint=hint)
        standing = self._planning.abandoned.without(standing)
        self._planning.attend(standing.revision)
        look = self._lookout.look(standing, None)
        return self._planning.plan(standing, look), look, standing

    def attach(self, witness: Witness) -> None:
        """Have somebody look at every pass before it is closed; what they find is said with it."""
        self._witnesses.append(witness)

    def close(self) -> None:
        """Wait for what is still under way, and record how it ended."""
        self._crew.close()

    def _widen(self, scope: Scope, intake: Intake) -> Scope:
        """Everything until all that a crash left open is settled; then a commit adds the agents it moves."""
        moved = self._receiver.enforcement.still_to_move(intake.moved)
        if intake.target is not None:
            self._lookout.forget(key for key in moved if key not in intake.target.agents)
        if scope is None or not self._settler.done:
            return None
        return scope | moved | self._books.unfinished() | self._lookout.due() | self._leasing.waiting

    def _witnessed(self, pass_: Proceedings) -> Proceedings:
        said = [finding for witness in self._witnesses for finding in witness.witness(pass_)]
        return replace(pass_, plan=replace(pass_.plan, findings=(*pass_.plan.findings, *said))) if said else pass_

    def _busy(self) -> tuple[Action, ...]:
        return self._crew.busy

    def _reconcile(self, plan: Plan, actor: str) -> list[Executed]:
        if plan.actions:
            self._bench.journal.record_plan(plan, self._bench.clock.now())
        return self._crew.execute(plan, actor)
