"""ProposalOutbox: runs the jobs that make and push commits of ours, off the pass.

A pass starts a job for every unfinished proposal that is due, after it has committed its state; a later pass
folds the result into its state. Jobs write nothing to the journal, so a crash loses at most the result of a job
that may be done twice: a recorded commit is pushed again, a branch that is there already is left as it is.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from functools import partial

import structlog

from gitops_agent.errors import GitopsAgentError, SourceUnavailable
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import Now, PassRecord, ProposalProgress
from gitops_agent.model.plan import Action
from gitops_agent.model.state import LiveImport, ProposalState, RevertProposal, State
from gitops_agent.proposals.import_live import ImportProposer, ImportRefused, wanted_imports
from gitops_agent.proposals.revert import RevertProposer, due_revert, with_revert
from gitops_agent.support.backoff import delay
from gitops_agent.support.daemon_pool import DaemonPool

MIN_WAIT_SECONDS = 0.05
"""A shorter pause may end before what it waits for is due, by the rounding of moments."""

FIRST_BACKOFF_SECONDS = 2.0
MAX_BACKOFF_SECONDS = 300.0

CLOSE_SECONDS = 5.0
"""How long jobs under way are waited for at the end."""

log = structlog.get_logger(__name__)


class ProposalOutbox:
    """The jobs of one instance, each named as the state names its proposal. One pass at a time uses it.

    ``reverter`` is None when nothing may be pushed. ``on_done`` is called on the thread of a job when it ends:
    time for another pass. ``leading``: whether this process may push at all. Tests give an ``executor`` without
    threads.
    """

    def __init__(
        self,
        reverter: RevertProposer | None,
        importer: ImportProposer | None,
        on_done: Callable[[], None] = lambda: None,
        executor: Executor | None = None,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._leading = leading
        self._reverter = reverter
        self._importer = importer
        self._on_done = on_done
        # An import that hangs must not hold a revert.
        self._revert_thread = executor or DaemonPool("revert", 1)
        self._import_thread = executor or DaemonPool("import", 1)
        self._jobs: dict[str, Future[RevertProposal | LiveImport]] = {}
        self._failures: Counter[str] = Counter()
        self._revert_at = 0.0  # active seconds

    def progress(self, before: ProposalState, state: State, record: PassRecord, now: Now) -> ProposalProgress:
        """How the commits that we push got on in a pass that began with ``before``."""
        reverts = state.proposals.reverts
        ended = [each for failed, each in reverts.items() if before.reverts.get(failed) != each]
        starts = now.active >= self._revert_at and self._due_revert(state, record, now) is not None
        return ProposalProgress(
            reverting=starts or self._is_running(reverts),
            reverted=any(each.finished for each in ended),
            wait=self.wait(state.proposals, now),
        )

    def collect(self, proposals: ProposalState, now: Now) -> ProposalState:
        """The proposals with the results of the jobs that ended since."""
        for name in [name for name, job in self._jobs.items() if job.done()]:
            job = self._jobs.pop(name)
            if (problem := job.exception()) is not None:
                proposals = self._postponed(proposals, name, problem, now)
                continue
            del self._failures[name]
            result = job.result()
            if isinstance(result, RevertProposal):
                proposals = with_revert(proposals, result)
            elif name in proposals.imports:  # otherwise it is no longer wanted
                proposals = replace(proposals, imports={**proposals.imports, name: result})
        return proposals

    def start(self, state: State, record: PassRecord, now: Now) -> None:
        """Start a job for every unfinished proposal that is due. To be called after the state was committed."""
        if not self._leading():
            return
        self._start_revert(state, record, now)
        if self._importer is not None and state.proposals.imports:
            self._start_imports(self._importer, state.proposals, record, now)

    def wait(self, proposals: ProposalState, now: Now) -> float | None:
        """Seconds until something is due again; None when nothing waits. A running job calls ``on_done``
        instead."""
        waits = [each.next_at - now.wall for each in self._waiting(proposals)]
        unfinished = any(not each.finished for each in proposals.reverts.values())
        if unfinished and self._revert_at > now.active and not self._is_running(proposals.reverts):
            waits.append(self._revert_at - now.active)
        return max(MIN_WAIT_SECONDS, min(waits)) if waits else None

    def due_agents(self, proposals: ProposalState, now: Now) -> frozenset[AgentKey]:
        """The agents that a scoped pass must plan for, so that their imports can start."""
        return frozenset(each.key.agent for each in self._waiting(proposals) if each.next_at <= now.wall)

    def close(self) -> None:
        """Wait a while for jobs under way; a remote that hangs is left to the end of the process.

        Call ``collect`` afterwards and commit what it gives.
        """
        if self._jobs:
            log.warning(
                "waiting for commits of ours on their way", seconds=CLOSE_SECONDS, proposals=list(self._jobs)
            )
        wait(self._jobs.values(), CLOSE_SECONDS)

    def _is_running(self, proposals: Iterable[str]) -> bool:
        return not self._jobs.keys().isdisjoint(proposals)

    def _waiting(self, proposals: ProposalState) -> list[LiveImport]:
        if self._importer is None:
            return []
        return [
            each
            for name, each in proposals.imports.items()
            if not (each.finished or each.refused_at or name in self._jobs)
        ]

    def _due_revert(self, state: State, record: PassRecord, now: Now) -> RevertProposal | None:
        return due_revert(state, record, now) if self._reverter is not None else None

    def _start_revert(self, state: State, record: PassRecord, now: Now) -> None:
        reverter, rollout, known = self._reverter, state.rollout.rollout, state.proposals.reverts
        proposal = self._due_revert(state, record, now)
        if reverter is None or rollout is None or proposal is None:
            self._revert_at = 0.0
        # What is not recorded is not begun.
        elif proposal.failed in known and now.active >= self._revert_at and not self._is_running(known):
            advance = partial(reverter.advance, proposal, rollout, state.rollout.converged)
            self._submit(proposal.failed, self._revert_thread, advance)

    def _start_imports(
        self, importer: ImportProposer, proposals: ProposalState, record: PassRecord, now: Now
    ) -> None:
        head = record.source.head.sha if record.source.head is not None else ""
        for name, action in wanted_imports(record, now).items():
            proposal = proposals.imports.get(name)
            if proposal is None or proposal.finished or proposal.refused_at == head or name in self._jobs:
                continue
            if now.wall >= proposal.next_at:
                self._submit(name, self._import_thread, partial(_imported, importer, proposal, action, head))

    def _submit(self, name: str, thread: Executor, job: Callable[[], RevertProposal | LiveImport]) -> None:
        self._jobs[name] = future = thread.submit(job)
        future.add_done_callback(lambda _: self._on_done())

    def _postponed(self, proposals: ProposalState, name: str, problem: BaseException, now: Now) -> ProposalState:
        """The proposals with the time at which a job that failed is started again."""
        unexpected = None if isinstance(problem, GitopsAgentError) else problem
        asked = problem.retry_after if isinstance(problem, SourceUnavailable) else None
        seconds = delay(self._failures[name], FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, asked, 0.5)
        self._failures[name] += 1
        event = "the revert is tried again" if name in proposals.reverts else "an import is tried again"
        log.warning(event, proposal=name, seconds=round(seconds), problem=str(problem), exc_info=unexpected)
        if (waiting := proposals.imports.get(name)) is not None:
            later = replace(waiting, next_at=now.wall + seconds)
            return replace(proposals, imports={**proposals.imports, name: later})
        if name in proposals.reverts:
            self._revert_at = now.active + seconds
        return proposals


def _imported(importer: ImportProposer, proposal: LiveImport, action: Action, head: str) -> LiveImport:
    """The proposal as it is once its branch was pushed, or refused at this head."""
    try:
        return replace(proposal, finished=True, refused_at="", finding=importer.propose(action))
    except ImportRefused as refused:
        return replace(proposal, refused_at=head, finding=refused.finding)
