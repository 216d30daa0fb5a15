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

    @collector_paused()
    def run(self, scope: Scope = None, *, fetch: bool = True, actor: str = "once") -> PassResult:
        """Source, snapshot, observe, plan, reconcile, report."""
        if fetch:
            self._receiver.fetch()
        intake = self._receiver.take()
        if intake.snapshot is None:
            return self._books.idle(intake)
        scope = self._widen(scope, intake)
        self._books.welcome(intake)
        ended = self._crew.collect()
        snapshot, blocked = intake.snapshot, None
        look = self._lookout.look(snapshot, scope)
        if self._settler.settle(look):
            # Drivers say what differs from our record, and that has just caught up.
            look = self._lookout.look(snapshot, scope)
        plan = self._plan(snapshot, look, intake.fallback)
        if plan.blocked and intake.is_candidate:
            # The newest commit waits for people; drift against the last good one is repaired meanwhile.
            blocked = plan
            if intake.fallback is not None:
                snapshot = intake.fallback
                look = self._lookout.judge(look.observed, snapshot, scope)
                plan = self._plan(snapshot, look)
        else:
            self._receiver.enforce(snapshot)
        self._settler.abandon(plan, look)
        executed = ended + self._reconcile(plan, actor)
        after = self._lookout.again(snapshot, look, (action for action, _ in executed))
        pass_ = Proceedings(intake, snapshot, plan, blocked, executed, after, self._crew.busy)
        return self._books.close(pass_).no_later_than(self._lookout.next_due())

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

    def preview(self, snapshot: Snapshot) -> Plan:
        """The plan for a snapshot, without doing any of it."""
        return self._plan(snapshot, self._lookout.look(snapshot, None), self._receiver.enforced())

    def close(self) -> None:
        """Wait for what is still under way, and record how it ended."""
        self._crew.close()

    def _widen(self, scope: Scope, intake: Intake) -> Scope:
        """Everything until all that a crash left open is settled; then a commit adds the agents it moves."""
        if intake.snapshot is not None:
            self._lookout.forget(key for key in intake.moved if key not in intake.snapshot.agents)
        if scope is None or not self._settler.done:
            return None
        return scope | intake.moved | self._books.unfinished() | self._lookout.due()

    def _plan(self, snapshot: Snapshot, look: Look, earlier: Snapshot | None = None) -> Plan:
        eyes = Eyes(
            blind=frozenset(look.observed.blind),
            busy=frozenset(action.key.agent for action in self._crew.busy),
            undone=self._receiver.undone(snapshot.revision),
            earlier=earlier,
            health=look.health,
        )
        situation = self._books.situation(snapshot, look.scope, eyes)
        return build(snapshot, look.observed.seen.values(), situation, look.health)

    def _reconcile(self, plan: Plan, actor: str) -> list[Executed]:
        if plan.actions:
            self._bench.journal.record_plan(plan, self._bench.clock.now())
        return self._crew.execute(plan, actor)
