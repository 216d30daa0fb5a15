"""One pass: the stages in order. Reads the state once, changes it by values, commits it at three named points.

    source ─► observe ─► recover ─► rollout ─► plan ─► reconcile ─► status ─► report

``model/state.py`` says which part of the state each stage owns. Until commit 2 a pass may be started again.
"""

from dataclasses import dataclass, replace

from gitops_agent.control.directives import Controls, with_approvals
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.passes import Now, PassRecord, PassResult, Request
from gitops_agent.observe.observer import Observer
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PassContext, context_for
from gitops_agent.ports import Clock
from gitops_agent.proposals.outbox import ProposalOutbox
from gitops_agent.reconcile import Executor, LeaseHolder, Recovery, admitted
from gitops_agent.report.outbox import Outbox
from gitops_agent.rollout import advance, handle_retries, update_given_up, widened, without_given_up
from gitops_agent.source.tracker import SourceTracker
from gitops_agent.status.summarize import finished, idle, mark_started, summarize
from gitops_agent.status.summary import NO_TERMS, Terms
from gitops_agent.status.writer import StatusWriter
from gitops_agent.support.gc import gc_paused


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of one instance, as ``wiring.py`` builds them."""

    source: SourceTracker
    controls: Controls
    observer: Observer
    recovery: Recovery
    leases: LeaseHolder
    executor: Executor
    proposals: ProposalOutbox
    outbox: Outbox
    terms: Terms = NO_TERMS


class Pipeline:
    """Runs passes for one instance, one at a time. Writes the state at commit 1, 2 and 3."""

    def __init__(self, stages: Stages, journal: SqlJournal, clock: Clock) -> None:
        self.stages, self._journal, self._clock = stages, journal, clock
        self._writer = StatusWriter(journal, stages.outbox, clock)
        self._born = journal.state().status.active_seconds
        self._earlier_lives = self._born - clock.monotonic()

    @gc_paused()
    def run(self, request: Request) -> PassResult:
        """Run one pass over the requested agents, or over all of them."""
        stages, write, now, health = self.stages, self._writer, self.now(), self.stages.observer.monitor
        if request.fetch:
            stages.source.fetch()
        stages.executor.collect_finished()

        # 1. What Git and the operators ask for.
        before = self._journal.state()
        state = replace(before, proposals=stages.proposals.collect(before.proposals, now))
        state, source = stages.source.resolve(handle_retries(state, now), now)
        if source.desired is None:
            return write.end(idle(source, state, now))
        state = write.commit(mark_started(state, source, now))  # commit 1: commits registered, refusals recorded
        state, directives = stages.controls.in_force(state, source.head, now)  # freezes and approvals

        # 2. What is live. Everything is observed until the intents of an earlier process are settled.
        due = health.due() | stages.leases.waiting | stages.proposals.due_agents(state.proposals, now)
        scope = widened(request.scope, due, state, source, now) if stages.recovery.finished else None
        live = stages.observer.observe(source.desired, state.reconcile.bases, scope)
        settled = stages.recovery.settle(state, live.observed, now)
        if settled is not state:  # drivers compare with our record, and that has just caught up
            state, live = settled, stages.observer.observe(source.desired, settled.reconcile.bases, scope)

        # 3. Which spec each agent follows now: admit the commit as a whole, then release the next wave.
        around = PassContext(now, directives, stages.executor.running, self._journal, stages.observer.catalog)
        state, decision = advance(state, source, live, around)
        health.forget(key for key in source.changed if key not in decision.in_force.agents)
        live = stages.observer.evaluate_health(
            live, without_given_up(decision.in_force, state), state.reconcile.bases
        )
        state, decision = update_given_up(state, decision, live, now)

        # 4. What to do about the differences.
        context = context_for(state, decision.in_force, live, decision.earlier_policy, around)
        plan = build(decision.in_force, live.observed.seen.values(), context, live.health)
        if scope is not None and any(verdict.freeze for verdict in plan.verdicts):
            # A fleet-wide freeze is decided on a full observation. Since commit 1 nothing was done.
            pushed = state.proposals.reverts != before.proposals.reverts
            whole = self.run(replace(request, scope=None, fetch=False))
            return replace(whole, source_changed=whole.source_changed or pushed)
        plan = stages.leases.hold_unleased(with_approvals(plan, directives))
        # 5. Do it: all that is let through is on record before any effect.
        plans = [each for each in (decision.blocked, plan) if each is not None and each.actions]
        state = write.commit(admitted(state, plan, context, now), plans, live.observed.seen)  # commit 2
        state = stages.recovery.close_unwanted(state, plan, context, now)
        state, executed = stages.executor.execute(state, plan, decision.policy, request.actor)
        live = stages.observer.observe_again(live, decision.in_force, state.reconcile.bases, executed)
        # 6. What it means for agents and commits; when to run again.
        running, changed = stages.executor.running, lambda: self._journal.changed_agents(plan.commit)
        record = PassRecord(source, decision, directives, plan, executed, live, running, changed)
        summary = summarize(record, state, now := self.now(), stages.terms)
        dues = (health.next_due(), stages.leases.next_due(), stages.executor.next_due())
        proposals = stages.proposals.progress(before.proposals, summary.state, record, now)
        result = write.end(finished(summary, dues, proposals))  # commit 3: the end of the pass, on every path
        stages.proposals.start(result.state, record, now)
        return result

    def now(self) -> Now:
        """The time as the stages see it."""
        return Now(self._clock.now(), self._clock.monotonic() + self._earlier_lives, self._born)

    def close(self) -> None:
        """Wait a while for what is still under way, and record what has ended."""
        self.stages.executor.close()
        self.stages.proposals.close()
        state, proposals = self._journal.state(), self.stages.proposals
        self._writer.commit(replace(state, proposals=proposals.collect(state.proposals, self.now())))
