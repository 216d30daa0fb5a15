"""One pass: the stages in order. Everything else is somewhere else."""

from __future__ import annotations

from gitops_agent.bookkeeping import Bookkeeper, Eyes
from gitops_agent.collector import collector_paused
from gitops_agent.errors import SourceError
from gitops_agent.intake import Intake, Receiver
from gitops_agent.lookout import Lookout
from gitops_agent.model.plan import Plan
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.observe import Observed
from gitops_agent.orders import Order
from gitops_agent.plan.build import build
from gitops_agent.ports import Driver, Scope
from gitops_agent.proceedings import Look, PassResult, Proceedings
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
    ) -> None:
        self._receiver = receiver
        self._lookout = Lookout(drivers, monitor, bench.journal, bench.eyes)
        self._settler = Settler(bench.journal, bench.clock)
        self._crew = Crew(bench)
        self._bench = bench
        self._books = books
        self._order = Order()

    @collector_paused()
    def run(self, scope: Scope = None, *, fetch: bool = True, actor: str = "once") -> PassResult:
        """Source, snapshot, observe, plan, reconcile, report."""
        if fetch:
            self._receiver.fetch()
        self._books.obey(self._receiver.enforcement)
        intake = self._receiver.take()
        if intake.desired is None:
            return self._books.idle(intake)
        scope = self._widen(scope, intake)
        self._order = self._books.orders.now(self._receiver.enforcement.commit, intake.head)
        self._books.welcome(intake)
        ended = self._crew.collect()
        observed = self._lookout.observe(intake.desired, scope)
        if self._settler.settle(observed):
            # Drivers say what differs from our record, and that has just caught up.
            observed = self._lookout.observe(intake.desired, scope)
        snapshot, blocked = self._advance(intake, observed, scope)
        look = self._lookout.judge(observed, snapshot, scope)
        plan = self._plan(snapshot, look)
        if scope is not None and any(verdict.freeze for verdict in plan.verdicts):
            return self.run(None, fetch=False, actor=actor)  # who is to judge the whole fleet should have seen it
        self._settler.abandon(plan, look)
        executed = ended + self._reconcile(plan, actor)
        after = self._lookout.again(snapshot, look, (action for action, _ in executed))
        rollout = self._receiver.enforcement.rollout
        pass_ = Proceedings(intake, snapshot, plan, blocked, executed, after, self._crew.busy, rollout)
        return self._books.close(pass_, self._receiver.enforcement).no_later_than(self._lookout.next_due())

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
        chosen = snapshot or self._receiver.enforcement.standing()
        if chosen is None:
            raise SourceError("nothing is in force yet", hint="run gitops-agent once first")
        self._order = self._books.orders.now(self._receiver.enforcement.commit, chosen.revision)
        return self._plan(chosen, self._lookout.look(chosen, None), is_whole=snapshot is not None)

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
        return scope | moved | self._books.unfinished() | self._lookout.due()

    def _advance(self, intake: Intake, observed: Observed, scope: Scope) -> tuple[Snapshot, Plan | None]:
        """What is in force for this pass, and the whole plan of a newest commit that a guard stops."""
        enforcement, target = self._receiver.enforcement, intake.target
        if target is None:
            assert intake.standing is not None
            return intake.standing, None
        if not enforcement.is_in_force(target):
            # The commit as a whole must pass the guards; only then its waves begin, and go on.
            whole = self._plan(target, Look(observed, {}, scope), is_whole=True)
            if whole.blocked:
                self._bench.journal.record_plan(whole, self._bench.clock.now())
                return (enforcement.seen_as(target) if intake.standing else target), whole
            step = enforcement.next_step(target, self._bench.journal.bases())
            self._books.release(step.released)
            enforcement.take(step, target)
        return enforcement.seen_as(target), None

    def _plan(self, snapshot: Snapshot, look: Look, *, is_whole: bool = False) -> Plan:
        eyes = Eyes(
            blind=frozenset(look.observed.blind),
            busy=frozenset(action.key.agent for action in self._crew.busy),
            undone=self._receiver.undone(snapshot.revision),
            failed=self._receiver.enforcement.failed_before(snapshot) if is_whole else None,
            earlier_policy=self._receiver.enforcement.policy_before(),
            order=self._order,
            health=look.health,
        )
        situation = self._books.situation(snapshot, look.scope, eyes)
        return build(snapshot, look.observed.seen.values(), situation, look.health)

    def _reconcile(self, plan: Plan, actor: str) -> list[Executed]:
        if plan.actions:
            self._bench.journal.record_plan(plan, self._bench.clock.now())
        return self._crew.execute(plan, actor)
