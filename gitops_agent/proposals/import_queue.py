"""Imports: where live decides a field, Git follows by a branch that people review. Never on the tracked branch.

A pass hands over its IMPORT actions and goes on; a thread of its own makes the proposals. What was proposed is
remembered in the journal: each proposal is pushed once, also across restarts. Nothing is proposed in a freeze:
what live is like in an incident is nothing to follow.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from queue import SimpleQueue

import orjson
import structlog

from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.finding import Finding, packed, unpacked
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.plan import Action, Decision
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.freeze import is_frozen
from gitops_agent.ports import Clock, Journal, Scope
from gitops_agent.proposals.import_live import ImportProposer, Refused, branch_of
from gitops_agent.status.proceedings import PassRecord

MEMORY = "imports"
"""The name under which the journal keeps what was proposed."""

RETRY_AFTER = 60.0
"""Seconds until a proposal is tried again that the remote did not take because it did not answer."""

PATIENCE = 30.0
"""Seconds that a proposal under way is waited for at the end."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Proposal:
    """One change that live made: since when it was seen, and what came of it.

    ``done``: there is nothing more to do. ``head``: it was refused at this head, and the next one may do better.
    """

    key: ResourceKey
    since: float
    done: bool = False
    head: str = ""
    said: Finding | None = None
    next_at: float = 0.0


class ImportQueue:
    """Takes the IMPORT actions of passes. One pass at a time uses it."""

    def __init__(self, proposer: ImportProposer, journal: Journal, clock: Clock, hold: float = 0.0) -> None:
        self._proposer = proposer
        self._journal = journal
        self._clock = clock
        self._hold = hold
        self._known = _recalled(journal.get(MEMORY))
        self._running: dict[str, Future[Finding | None]] = {}
        self._jobs: SimpleQueue[tuple[Action, Future[Finding | None]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def propose(self, actions: Iterable[Action], scope: Scope, head: str) -> tuple[Finding, ...]:
        """Take what a pass over a scope wants imported; everything there is to say by now.

        Returns at once. A value must have been live for the hold time before it is proposed.
        """
        before = dict(self._known)
        self._collect(head)
        wanted = {branch_of(action): action for action in actions if action.decision is Decision.IMPORT}
        for name, proposal in before.items():
            if name not in wanted and (scope is None or proposal.key.agent in scope):
                self._known.pop(name, None)
        now = self._clock.now()
        for name, action in wanted.items():
            proposal = self._known.setdefault(name, _Proposal(action.key, now))
            if name not in self._running and self._is_due(proposal, head, now):
                self._running[name] = self._start(action)
        self._remember(before)
        return self.findings

    def witness(self, pass_: PassRecord) -> tuple[Finding, ...]:
        """Take what a pass wants imported; what became of the proposals so far."""
        head, now = pass_.intake.head, self._clock.now()
        context = PlanContext(now=now, snapshot=pass_.snapshot, bases={}, freezes=pass_.order.freezes)
        actions = [each for each in pass_.plan.actions if each.decision is Decision.IMPORT]
        free = [each for each in actions if not is_frozen(each.key.agent, context)]
        return self.propose(free, pass_.look.scope, head.sha if head else "")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What became of the proposals."""
        return tuple(proposal.said for proposal in self._known.values() if proposal.said is not None)

    def next_due(self) -> float | None:
        """Seconds until a value has been live for long enough, or something is tried again."""
        now = self._clock.now()
        waiting = [p for name, p in self._known.items() if not (p.done or p.head or name in self._running)]
        return min((max(0.0, self._due_at(proposal) - now) for proposal in waiting), default=None)

    def close(self) -> None:
        """Wait a while for what is being pushed, and remember it; a remote that hangs is left to hang."""
        before = dict(self._known)
        wait(self._running.values(), PATIENCE)
        self._collect("")
        self._remember(before)

    def _start(self, action: Action) -> Future[Finding | None]:
        # A pool would keep the process from ending while a remote hangs.
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="import", daemon=True)
            self._thread.start()
        future: Future[Finding | None] = Future()
        self._jobs.put((action, future))
        return future

    def _run(self) -> None:
        while True:
            action, future = self._jobs.get()
            try:
                future.set_result(self._proposer.propose(action))
            except BaseException as problem:
                future.set_exception(problem)

    def _is_due(self, proposal: _Proposal, head: str, now: float) -> bool:
        return not proposal.done and proposal.head != head and now >= self._due_at(proposal)

    def _due_at(self, proposal: _Proposal) -> float:
        return max(proposal.since + self._hold, proposal.next_at)

    def _collect(self, head: str) -> None:
        ended = [name for name, future in self._running.items() if future.done()]
        for name in ended:
            future = self._running.pop(name)
            if name in self._known:
                self._known[name] = self._judged(self._known[name], future, head)

    def _judged(self, proposal: _Proposal, future: Future[Finding | None], head: str) -> _Proposal:
        """The proposal with what came of it."""
        problem = future.exception()
        if problem is None:
            return replace(proposal, done=True, said=future.result())
        if isinstance(problem, Refused):
            return replace(proposal, head=head, said=problem.finding)
        known = isinstance(problem, GitopsAgentError)
        log.warning(
            "a proposal is tried again", agent=str(proposal.key.agent), exc_info=None if known else problem
        )
        return replace(proposal, next_at=self._clock.now() + RETRY_AFTER)

    def _remember(self, before: Mapping[str, _Proposal]) -> None:
        if self._known != before:
            self._journal.put({MEMORY: _packed(self._known) if self._known else None})


def _packed(known: Mapping[str, _Proposal]) -> str:
    rows = {
        name: [str(p.key), p.since, p.done, p.head, packed([p.said]) if p.said else [], p.next_at]
        for name, p in known.items()
    }
    return orjson.dumps(rows).decode()


def _recalled(text: str | None) -> dict[str, _Proposal]:
    return {
        name: _Proposal(ResourceKey.parse(key), since, done, head, next(iter(unpacked(said)), None), next_at)
        for name, (key, since, done, head, said, next_at) in orjson.loads(text or "{}").items()
    }


def proposed(text: str | None) -> tuple[Finding, ...]:
    """The findings about proposals, from what the journal remembers under ``MEMORY``."""
    return tuple(proposal.said for proposal in _recalled(text).values() if proposal.said is not None)
