"""One pass: the stages in order. Everything else is somewhere else."""

from __future__ import annotations

from gitops_agent.bookkeeping import Bookkeeper, Eyes
from gitops_agent.collector import collector_paused
from gitops_agent.errors import SourceError
from gitops_agent.intake import Intake, Receiver
from gitops_agent.journal.replay import abandon, settle
from gitops_agent.model.plan import Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.observe import Observed, observe
from gitops_agent.plan.build import build
from gitops_agent.ports import Driver, Scope
from gitops_agent.proceedings import Look, PassResult, Proceedings
from gitops_agent.reconcile.execute import Crew, Executed, Workbench
from gitops_agent.reconcile.health import HealthMonitor
from gitops_agent.reconcile.subjects import subjects


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
        self._drivers = drivers
        self._monitor = monitor
        self._bench = bench
        self._crew = Crew(bench)
        self._books = books
        self._settled = False

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
        look = self._look(intake.snapshot, scope)
        self._settle(look)
        plan = self._plan(intake.snapshot, look, scope, intake.fallback)
        snapshot, blocked = intake.snapshot, None
        if plan.blocked and intake.is_candidate:
            # The newest commit waits for people; drift against the last good one is repaired meanwhile.
            blocked = plan
            if intake.fallback is not None:
                snapshot = intake.fallback
                look = self._judge(look.observed, snapshot, scope)
                plan = self._plan(snapshot, look, scope)
        elif not look.observed.blind:
            # With a driver that cannot be asked, what the commit would do is not known yet.
            self._receiver.enforce(snapshot)
        self._abandon(plan, look)
        executed = ended + self._reconcile(plan, actor)
        after = self._look_again(snapshot, look, executed)
        pass_ = Proceedings(intake, snapshot, plan, blocked, executed, after, self._crew.busy)
        return self._books.close(pass_).no_later_than(self._monitor.next_due())

    def fetch(self) -> bool:
        """Ask the source, from any thread; whether a pass should look at what it said."""
        return self._receiver.fetch()

    @property
    def source_problem(self) -> SourceError | None:
        """Why the source did not answer when it was last asked."""
        return self._receiver.problem

    def close(self) -> None:
        """Wait for what is still under way, and record how it ended."""
        self._crew.close()

    def preview(self, snapshot: Snapshot) -> Plan:
        """The plan for a snapshot, without doing any of it."""
        return self._plan(snapshot, self._look(snapshot, None), None)

    def _widen(self, scope: Scope, intake: Intake) -> Scope:
        """Everything until all that a crash left open is settled; then a commit adds the agents it moves."""
        if scope is None or not self._settled:
            return None
        if intake.snapshot is not None:
            self._monitor.forget(key for key in intake.moved if key not in intake.snapshot.agents)
        return scope | intake.moved | self._books.unfinished() | self._monitor.due()

    def _look(self, snapshot: Snapshot, scope: Scope) -> Look:
        observed = observe(self._drivers, scope, self._bench.journal.bases(), self._bench.eyes)
        return self._judge(observed, snapshot, scope)

    def _judge(self, observed: Observed, snapshot: Snapshot, scope: Scope) -> Look:
        """How healthy what was seen is, measured by what this snapshot asks of it."""
        judged = subjects(snapshot, observed.seen, self._bench.journal.bases(), scope, self._drivers)
        return Look(observed, self._monitor.judge(judged, scope), scope)

    def _settle(self, look: Look) -> None:
        """Intents that a crash left open are settled by what is there, not by guessing."""
        if self._settled:
            return
        journal = self._bench.journal
        known = [i for i in journal.open_intents() if i.action.driver not in look.observed.blind]
        outcomes, bases, forgotten = settle(known, look.observed.seen, self._bench.clock.now(), journal.bases())
        if outcomes:
            journal.finish(outcomes, bases=bases, forgotten=forgotten)

    def _abandon(self, plan: Plan, look: Look) -> None:
        """What is still open is tried again if the plan asks for it, and closed otherwise; never while blind."""
        if self._settled or look.observed.blind:
            return
        journal, wanted = self._bench.journal, {action.key for action in plan.actions}
        if outcomes := abandon(journal.open_intents(), wanted, self._bench.clock.now()):
            journal.finish(outcomes)
        self._settled = True

    def _plan(self, snapshot: Snapshot, look: Look, scope: Scope, earlier: Snapshot | None = None) -> Plan:
        eyes = Eyes(
            blind=frozenset(look.observed.blind),
            busy=frozenset(action.key.agent for action in self._crew.busy),
            undone=self._receiver.undone(snapshot.revision),
            earlier=earlier,
        )
        situation = self._books.situation(snapshot, scope, eyes)
        return build(snapshot, look.observed.seen.values(), situation, look.health)

    def _reconcile(self, plan: Plan, actor: str) -> list[Executed]:
        if plan.actions:
            self._bench.journal.record_plan(plan, self._bench.clock.now())
        return self._crew.execute(plan, actor)

    def _look_again(self, snapshot: Snapshot, look: Look, executed: list[Executed]) -> Look:
        """What was touched is looked at once more, so that the report says how things are now."""
        touched = frozenset(action.key.agent for action, _ in executed if action.verb.touches_live)
        if not touched:
            return look
        fresh = self._look(snapshot, touched)
        kept = {key: seen for key, seen in look.observed.seen.items() if key.agent not in touched}
        merged = Observed(kept | dict(fresh.observed.seen), {**look.observed.blind, **fresh.observed.blind})
        return Look(merged, {**look.health, **fresh.health}, look.scope)
