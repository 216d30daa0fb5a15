"""ProposalOutbox: runs the jobs that make and push commits of ours, off the pass.

A pass starts a job for every unfinished proposal that is due, after it has committed its state; a later pass
folds the result into its state. Jobs write nothing to the journal, so a crash loses at most the result of a job
that may be done twice: a recorded commit is pushed again, a branch that is there already is left as it is.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, TypeVar

import structlog

from gitops_agent.errors import GitopsAgentError, SourceUnavailable
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import Now, PassRecord, ProposalProgress
from gitops_agent.model.state import LiveImport, ProposalState, RevertProposal, State
from gitops_agent.proposals.import_live import ImportProposer, ImportRefused, wanted_imports
from gitops_agent.proposals.revert import RevertProposer, due_revert, rollout_is_frozen, with_revert
from gitops_agent.support.backoff import delay

MIN_WAIT_SECONDS = 0.05
"""A shorter pause may end before what it waits for is due, by the rounding of moments."""

FIRST_BACKOFF_SECONDS = 2.0
MAX_BACKOFF_SECONDS = 300.0

CLOSE_SECONDS = 30.0
"""How long jobs under way are waited for at the end."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class DaemonExecutor(Executor):
    """One thread that runs jobs in order and, unlike that of a pool, never keeps the process from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future result of a call."""
        future: Future[Any] = Future()
        self._jobs.put((lambda: fn(*args, **kwargs), future))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return future

    def _run(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except BaseException as problem:
                future.set_exception(problem)


@dataclass(frozen=True, slots=True)
class _RunningImport:
    future: Future[Finding | None]
    head: str


class ProposalOutbox:
    """The jobs of one instance. One pass at a time uses it.

    ``reverter`` is None when nothing may be pushed. ``on_done`` is called on the thread of a job when it ends:
    time for another pass. Tests give an ``executor`` without threads.
    """

    def __init__(
        self,
        reverter: RevertProposer | None,
        importer: ImportProposer | None,
        on_done: Callable[[], None] = lambda: None,
        executor: Executor | None = None,
    ) -> None:
        self._reverter = reverter
        self._importer = importer
        self._on_done = on_done
        # An import that hangs must not hold a revert.
        self._revert_thread = executor or DaemonExecutor("revert")
        self._import_thread = executor or DaemonExecutor("import")
        self._revert: tuple[str, Future[RevertProposal]] | None = None
        self._imports: dict[str, _RunningImport] = {}
        self._failures: Counter[str] = Counter()
        self._revert_at = 0.0  # active seconds

    @property
    def running(self) -> bool:
        """Whether a job is under way."""
        return self._revert is not None or bool(self._imports)

    def is_reverting(self, state: State, record: PassRecord, now: Now) -> bool:
        """Whether a revert is under way or starts after this pass: the source is about to change."""
        if self._revert is not None:
            return True
        return now.active >= self._revert_at and self._due_revert(state, record, now) is not None

    def progress(self, before: ProposalState, state: State, record: PassRecord, now: Now) -> ProposalProgress:
        """How the commits that we push got on in a pass that began with ``before``."""
        ended = [each for failed, each in state.proposals.reverts.items() if before.reverts.get(failed) != each]
        return ProposalProgress(
            reverting=self.is_reverting(state, record, now),
            reverted=any(each.finished for each in ended),
            wait=self.wait(state.proposals, now),
        )

    def collect(self, proposals: ProposalState, now: Now) -> ProposalState:
        """The proposals with the results of the jobs that ended since."""
        if self._revert is not None and self._revert[1].done():
            proposals = self._collect_revert(proposals, now)
        ended = [name for name, running in self._imports.items() if running.future.done()]
        changed: dict[str, LiveImport] = {}
        for name in ended:
            running = self._imports.pop(name)
            if name in proposals.imports:  # otherwise it is no longer wanted
                changed[name] = self._import_result(name, proposals.imports[name], running, now)
        return replace(proposals, imports={**proposals.imports, **changed}) if changed else proposals

    def start(self, state: State, record: PassRecord, now: Now) -> None:
        """Start a job for every unfinished proposal that is due. To be called after the state was committed."""
        self._start_revert(state, record, now)
        if self._importer is not None and state.proposals.imports:
            self._start_imports(self._importer, state, record, now)

    def wait(self, proposals: ProposalState, now: Now) -> float | None:
        """Seconds until something is due again; None when nothing waits. A running job calls ``on_done``
        instead."""
        waits = [each.next_at - now.wall for each in self._waiting(proposals)]
        unfinished = any(not each.finished for each in proposals.reverts.values())
        if unfinished and self._revert is None and self._revert_at > now.active:
            waits.append(self._revert_at - now.active)
        return max(MIN_WAIT_SECONDS, min(waits)) if waits else None

    def due_agents(self, proposals: ProposalState, now: Now) -> frozenset[AgentKey]:
        """The agents that a scoped pass must plan for, so that their imports can start."""
        return frozenset(each.key.agent for each in self._waiting(proposals) if each.next_at <= now.wall)

    def close(self) -> None:
        """Wait a while for jobs under way; a remote that hangs is left to the end of the process.

        Call ``collect`` afterwards and commit what it gives.
        """
        futures: list[Future[Any]] = [running.future for running in self._imports.values()]
        wait([*futures, *([self._revert[1]] if self._revert is not None else [])], CLOSE_SECONDS)

    def _waiting(self, proposals: ProposalState) -> list[LiveImport]:
        if self._importer is None:
            return []
        return [
            each
            for name, each in proposals.imports.items()
            if not (each.finished or each.refused_at or name in self._imports)
        ]

    def _due_revert(self, state: State, record: PassRecord, now: Now) -> RevertProposal | None:
        if self._reverter is None:
            return None
        frozen = rollout_is_frozen(state.rollout, record, now)
        return due_revert(state.rollout, record.source.head, state.proposals, frozen=frozen)

    def _start_revert(self, state: State, record: PassRecord, now: Now) -> None:
        reverter, rollout, converged = self._reverter, state.rollout.rollout, state.rollout.converged
        proposal = self._due_revert(state, record, now)
        if reverter is None or rollout is None or proposal is None:
            self._revert_at = 0.0
            return
        recorded = proposal.failed in state.proposals.reverts  # what is not recorded is not begun
        if recorded and self._revert is None and now.active >= self._revert_at:
            job = self._submit(self._revert_thread, reverter.advance, proposal, rollout, converged)
            self._revert = proposal.failed, job

    def _start_imports(self, importer: ImportProposer, state: State, record: PassRecord, now: Now) -> None:
        head = record.source.head.sha if record.source.head is not None else ""
        for name, action in wanted_imports(record, now).items():
            proposal = state.proposals.imports.get(name)
            if proposal is not None and name not in self._imports and _is_due(proposal, head, now):
                job = self._submit(self._import_thread, importer.propose, action)
                self._imports[name] = _RunningImport(job, head)

    def _submit(self, executor: Executor, job: Callable[..., T], *arguments: Any) -> Future[T]:
        future = executor.submit(job, *arguments)
        future.add_done_callback(lambda _: self._on_done())
        return future

    def _collect_revert(self, proposals: ProposalState, now: Now) -> ProposalState:
        assert self._revert is not None
        (failed, future), self._revert = self._revert, None
        problem = future.exception()
        if problem is not None:
            self._revert_at = now.active + self._backoff(failed, "the revert is tried again", problem)
            return proposals
        del self._failures[failed]
        return with_revert(proposals, future.result())

    def _import_result(self, name: str, proposal: LiveImport, running: _RunningImport, now: Now) -> LiveImport:
        problem = running.future.exception()
        if isinstance(problem, ImportRefused):
            return replace(proposal, refused_at=running.head, finding=problem.finding)
        if problem is not None:
            seconds = self._backoff(name, "an import is tried again", problem)
            return replace(proposal, next_at=now.wall + seconds)
        del self._failures[name]
        return replace(proposal, finished=True, refused_at="", finding=running.future.result())

    def _backoff(self, name: str, event: str, problem: BaseException) -> float:
        """Seconds until a job that failed is started again."""
        unexpected = None if isinstance(problem, GitopsAgentError) else problem
        asked = problem.retry_after if isinstance(problem, SourceUnavailable) else None
        seconds = delay(self._failures[name], FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, asked, 0.5)
        self._failures[name] += 1
        log.warning(event, proposal=name, seconds=round(seconds), problem=str(problem), exc_info=unexpected)
        return seconds


def _is_due(proposal: LiveImport, head: str, now: Now) -> bool:
    return not proposal.finished and proposal.refused_at != head and now.wall >= proposal.next_at
