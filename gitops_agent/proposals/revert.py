"""Reverting: what Git sees when a gate fails. Nothing, a branch with the revert commit, or the revert itself.

The commit restores the tree of the last commit that converged. It is made once, written down before it is sent,
and sent fast-forward only: after a crash the same commit is sent again, and when somebody pushed meanwhile, theirs
wins. A revert of ours that fails is not reverted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson
import structlog

from gitops_agent.errors import GitopsAgentError, NothingToDo, SourceRefused
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.revision import Revision
from gitops_agent.model.rollout import Rollout
from gitops_agent.ports import Clock, HistoryWriter, Journal, Source
from gitops_agent.support.backoff import delay

PROPOSALS = "gitops-agent/revert-"
"""How the branches begin that hold a revert for review."""

log = structlog.get_logger(__name__)

KEPT = 20
"""How many of our own reverts are remembered."""


@dataclass(frozen=True, slots=True)
class Revert:
    """The answer to one failed commit. ``sha``: the commit that was made. ``branch``: where it was sent to.

    ``over``: nothing more is done about it. ``said``: what became of it, for people.
    """

    failed: str
    sha: str = ""
    branch: str = ""
    over: bool = False
    said: str = ""


class RevertProposer:
    """FleetReader failed gates, off the pass: a remote that hangs keeps nobody from being repaired."""

    def __init__(
        self, journal: Journal, source: Source, writer: HistoryWriter, branch: str, pool: Executor, clock: Clock
    ) -> None:
        self._journal = journal
        self._source = source
        self._writer = writer
        self._branch = branch
        self._pool = pool
        self._clock = clock
        self._running: Future[Revert] | None = None
        self._tries, self._next_at = 0, 0.0

    @property
    def is_busy(self) -> bool:
        """Whether an answer is on its way."""
        return self._running is not None

    def next_due(self) -> float | None:
        """Seconds until an answer that could not be sent is sent again; None when none waits."""
        return max(0.0, self._next_at - self._clock.monotonic()) if self._tries else None

    def consider(self, rollout: Rollout | None, head: Revision | None) -> Revert | None:
        """Answer a failed gate if the policy asks for it; the answer once there is one, to be remembered."""
        if self._running is not None:
            return self._collect() if self._running.done() else None
        asked = rollout is not None and rollout.failed and rollout.on_failure != "Hold"
        if rollout is None or head is None or not asked or head.sha != rollout.commit:
            self._rest()
            return None
        if self._clock.monotonic() < self._next_at:
            return None
        reverts = self._known()
        mine = reverts.get(rollout.commit, Revert(rollout.commit))
        if mine.over or any(each.sha == rollout.commit for each in reverts.values()):
            return None
        self._running = self._pool.submit(self._answer, mine, rollout)
        return self._collect() if self._running.done() else None

    def _collect(self) -> Revert | None:
        """What became of it; None when it is to be tried again."""
        assert self._running is not None
        future, self._running = self._running, None
        try:
            revert = future.result()
        except Exception as problem:  # a remote that is down, a full disk, a bug: no pass may fail for it
            self._tries += 1
            self._next_at = self._clock.monotonic() + delay(self._tries, 1.0, 300.0, None, 0.5)
            unexpected = None if isinstance(problem, GitopsAgentError) else problem
            log.warning("the revert could not be sent yet", problem=str(problem), exc_info=unexpected)
            return None
        self._rest()
        return revert

    def _rest(self) -> None:
        """Nothing waits to be sent (any more)."""
        self._tries, self._next_at = 0, 0.0

    def _answer(self, revert: Revert, rollout: Rollout) -> Revert:
        """Make the commit, unless an earlier try did, and send it."""
        try:
            if not revert.sha:
                revert = self._make(revert, rollout)
                self.remember(revert)
            wanted = self._branch if rollout.on_failure == "Revert" else _proposal(rollout)
            return self._send(revert, wanted, rollout)
        except NothingToDo:
            return replace(
                revert, over=True, said="nothing to revert: the tree is that of the last converged commit"
            )
        except SourceRefused as problem:  # what does not answer, or cannot be written down, is tried again
            return replace(revert, over=True, said=f"no revert was made: {problem.message}")

    def _make(self, revert: Revert, rollout: Rollout) -> Revert:
        good = self._journal.get("converged")
        if good is None:
            raise SourceRefused("no commit has ever converged, so there is nothing to go back to")
        undone = self._source.between(good, rollout.commit)
        sha = self._writer.restore(good, _message(undone, rollout))
        if self._source.revision(sha).parents[:1] != (rollout.commit,):
            raise SourceRefused("somebody pushed meanwhile, so the newest commit decides")
        return replace(revert, sha=sha)

    def _send(self, revert: Revert, branch: str, rollout: Rollout) -> Revert:
        try:
            self._writer.check_push(branch)
            self._writer.push(revert.sha, branch)
        except SourceRefused as refused:
            if branch != self._branch:
                raise
            if self._source.refresh().sha != rollout.commit:
                return replace(revert, over=True, said="somebody pushed meanwhile, so the newest commit decides")
            log.warning("the branch takes no revert; it is proposed instead", problem=refused.message)
            return self._send(revert, _proposal(rollout), rollout)
        to_us = branch == self._branch
        said = (
            f"reverted by {revert.sha[:10]}" if to_us else f"branch {branch} holds the revert: review and merge it"
        )
        return replace(revert, branch=branch, over=True, said=said)

    def _known(self) -> dict[str, Revert]:
        rows: list[dict[str, Any]] = orjson.loads(self._journal.get("reverts") or "[]")
        return {row["failed"]: Revert(**row) for row in rows}

    def remember(self, revert: Revert) -> None:
        """Write an answer down: the commit before it is sent, and how it ended once that was told."""
        known = self._known()
        known.pop(revert.failed, None)
        rows = [asdict(each) for each in (*known.values(), revert)][-KEPT:]
        self._journal.put({"reverts": orjson.dumps(rows).decode()})


def told(revert: Revert) -> Finding:
    """What the note on the failed commit says about its revert."""
    made = bool(revert.branch)
    return Finding(
        Severity.INFO if made else Severity.WARNING,
        _code(revert),
        revert.failed[:10],
        revert.said,
        "Policy rollout.onFailure asked for it." if made else "If it is still needed: gitops-agent rollback.",
    )


def _code(revert: Revert) -> str:
    if not revert.branch:
        return "NotReverted"
    return "RevertProposed" if revert.branch.startswith(PROPOSALS) else "Reverted"


def _proposal(rollout: Rollout) -> str:
    return f"{PROPOSALS}{rollout.commit[:10]}"


def _message(undone: Sequence[Revision], rollout: Rollout) -> str:
    newest = undone[-1]
    subject = (
        f'Revert "{newest.subject}"' if len(undone) == 1 else f"Revert {len(undone)} commits up to {newest.short}"
    )
    lines = "\n".join(f"This reverts commit {revision.sha}." for revision in reversed(undone))
    return f"{subject}\n\nThe rollout failed its gate: {rollout.failed}\n\n{lines}"
