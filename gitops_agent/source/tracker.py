"""From the repository to the desired state in force: fetch, register, verify, load, or fall back.

The newest commit is a candidate when it is trusted and valid. Otherwise the last good one stays in force, and
the newest one's record says why. A source that does not answer changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
import structlog

from gitops_agent.errors import InvalidDesiredState, SourceError, SourceRefused, SourceUnavailable, UsageError
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Finding, Severity, errors
from gitops_agent.model.freezes import frozen_since
from gitops_agent.model.key import AgentKey
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot, changed_agents
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.ports import Clock, Journal, JournalReader, SnapshotLoader, Source
from gitops_agent.rollout.state import RolloutState
from gitops_agent.source.checks import NewHead, examine
from gitops_agent.source.rollback import recognise
from gitops_agent.source.unfreezing import last_of_policy_alone, unfreezing
from gitops_agent.status.phases import entered, stopped, superseded

log = structlog.get_logger(__name__)

HISTORY = 500
"""How many earlier commits are searched for the one a rollback returns to."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What the source gave. ``target`` is what the newest commit asks for that may be followed; ``standing`` is
    what is in force before it. ``moved``: the agents for which the two differ.
    """

    head: Revision | None
    target: Snapshot | None
    standing: Snapshot | None
    moved: frozenset[AgentKey] = frozenset()
    problem: SourceError | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def desired(self) -> Snapshot | None:
        """The furthest there is to look at."""
        return self.target or self.standing


@dataclass(frozen=True, slots=True)
class Where:
    """The branch and the folder we follow, for messages."""

    branch: str
    path: str


class SourceTracker:
    """Keeps the snapshots in memory and the records of commits in the journal."""

    def __init__(
        self, source: Source, loader: SnapshotLoader, journal: Journal, clock: Clock, where: Where
    ) -> None:
        self._source = source
        self._where = where
        self._loader = loader
        self._journal = journal
        self._clock = clock
        self.enforcement = RolloutState(journal, clock, self._read)
        self._target: Snapshot | None = None
        self._head: Revision | None = None
        self._problem: SourceError | None = None
        self._rejected: dict[str, tuple[Finding, ...]] = {}
        self._policy: tuple[str, PolicySpec] | None = None

    def fetch(self) -> bool:
        """Ask the remote, from whatever thread; whether it said something new.

        Apart from ``take``, so that a remote that hangs keeps nobody from being repaired.
        """
        before = (self._head, self._problem)
        try:
            self._head, self._problem = self._source.refresh(), None
        except SourceError as problem:
            self._problem = problem
        except UsageError as problem:  # a token file that is gone for a moment, a state directory that is full
            self._problem = SourceUnavailable(problem.message, hint=problem.hint)
        if self._problem is None:
            self._journal.put({"last_fetch": str(self._clock.now()), **_remembered(None)})
        else:
            self._journal.put(_remembered(source_finding(self._problem)))
        return (self._head, self._problem) != before

    @property
    def problem(self) -> SourceError | None:
        """Why the source did not answer when it was last asked."""
        return self._problem

    def take(self) -> Intake:
        """Say what is desired now, by what the source last said. Whatever a commit holds, this does not fail."""
        problem, standing = self._problem, self.enforcement.standing()
        head = self._head or self._known(self._journal.get("head"))
        if head is None:
            return Intake(None, None, self._as_ruled(standing), problem=problem)
        try:
            if head.sha != self._journal.get("head"):
                self._register(head)
            target, findings = self._candidate(head, standing)
        except SourceError as broken:  # the mirror could not be read: what is known stays in force
            return Intake(head, None, self._as_ruled(standing), problem=problem or broken)
        if target is None:
            target = self._valid()  # the last that may be followed goes on, wherever its rollout was
        moved = changed_agents(standing, target) if target is not None else frozenset[AgentKey]()
        return Intake(head, target, standing, moved, problem, findings)

    def refuse(self, head: Revision) -> None:
        """SourceRefused when this head would not be followed."""
        if said := errors(self._examine(head, self.enforcement.standing())):
            raise SourceRefused(said[0].summary, hint=said[0].detail)

    def frozen_since(self) -> Mapping[str, float]:
        """When the freezes of the newest valid policy were first seen, by their scopes."""
        known: dict[str, float] = orjson.loads(self._journal.get("git_freezes") or "{}")
        return known

    def undone(self, head: Revision) -> frozenset[str]:
        """The commits that this one rolls back, or one below it since the last that converged.

        Not the head alone: an empty commit on top of a rollback (an approval, a merge) takes nothing back itself.
        """
        records = self._journal.commits()
        settled = (each.position for each in records if each.phase is Phase.CONVERGED and each.sha != head.sha)
        since = max(settled, default=-1)
        open_ = {each.sha: each for each in records if each.position > since}
        return frozenset(each.sha for each in records if _is_undone(each, open_))

    def _known(self, sha: str | None) -> Revision | None:
        try:
            return self._source.revision(sha) if sha else None
        except SourceError:
            return None

    def _read(self, sha: str) -> Snapshot | None:
        """The snapshot of a commit that was good once, if it can still be read."""
        if self._target is not None and self._target.revision.sha == sha:
            return self._target
        revision = self._known(sha)
        try:
            return self._loader.load(revision) if revision is not None else None
        except (InvalidDesiredState, SourceError):
            return None  # the mirror lost it, or this version no longer accepts it: nothing is concluded

    def _candidate(self, head: Revision, standing: Snapshot | None) -> tuple[Snapshot | None, tuple[Finding, ...]]:
        if self._target is not None and self._target.revision.sha == head.sha:
            return self._target, ()
        if head.sha in self._rejected:
            return None, self._rejected[head.sha]
        said = self._examine(head, standing)
        if errors(said):
            return self._reject(head, Phase.REFUSED, said)
        self._journal.put({"accepted": head.sha})
        try:
            snapshot = self._loader.load(head)
            said += self._unfreezing(head, snapshot)
        except InvalidDesiredState as invalid:
            return self._reject(head, Phase.INVALID, said + invalid.findings)
        except SourceRefused as refused:  # a tree that is too large to be listed, a blob to be read
            return self._reject(head, Phase.INVALID, (*said, source_finding(refused)))
        except SourceError:
            raise
        except Exception as problem:  # a bug of ours must stop this commit, never the repair of the last good one
            log.exception("a commit could not be loaded", commit=head.sha)
            return self._reject(head, Phase.INVALID, (*said, _unexpected(head, problem)))
        if errors(said):
            return self._reject(head, Phase.INVALID, said)
        self._reopen(head)
        since = frozen_since(snapshot.policy, self.frozen_since(), self._clock.now())
        self._journal.put({"valid": head.sha, "git_freezes": orjson.dumps(since).decode()})
        self._target = replace(snapshot, findings=said + snapshot.findings)
        return self._target, ()

    def _unfreezing(self, head: Revision, snapshot: Snapshot) -> tuple[Finding, ...]:
        """Whether it may lift what it lifts, by itself or after the commits that were pushed along with it."""
        valid, now = self._valid(), self._clock.now()
        found = unfreezing(valid, snapshot, now)
        if found and valid is not None:
            brought = self._source.between(valid.revision.sha, head.sha)
            found = unfreezing(last_of_policy_alone(valid, brought, self._read), snapshot, now)
        return found

    def _valid(self) -> Snapshot | None:
        """The newest commit that was valid so far: its freeze is the one in force."""
        sha = self._journal.get("valid")
        if self._target is None and sha is not None:
            self._target = self._read(sha)
        return self._target

    def in_force(self) -> Snapshot | None:
        """The spec in force for every agent, under the policy in force."""
        return self._as_ruled(self.enforcement.standing())

    def _as_ruled(self, standing: Snapshot | None) -> Snapshot | None:
        """What is in force, under the policy of the newest valid commit: a freeze that Git asked for holds while
        its own commit is still on the way, and whatever is pushed on top of it."""
        sha = self._journal.get("valid")
        if standing is None or sha is None:
            return standing
        if self._policy is None or self._policy[0] != sha:
            valid = self._read(sha)
            if valid is None:
                return standing
            self._policy = (sha, valid.policy)
        return replace(standing, policy=self._policy[1])

    def _reopen(self, head: Revision) -> None:
        """What was turned down for a reason that holds no longer (a corrected path, a newer us) starts over."""
        record = self._journal.commit(head.sha)
        if record is not None and record.phase in (Phase.REFUSED, Phase.INVALID):
            fresh = replace(
                record, phase=Phase.PENDING, findings=(), summary="", started_at=None, finished_at=None
            )
            self._journal.put_commits([fresh])

    def _examine(self, head: Revision, standing: Snapshot | None) -> tuple[Finding, ...]:
        """What the trust checks say. Compared is the last head that passed them, so that a commit on top of a
        rewritten branch is refused like the rewrite itself."""
        accepted = self._journal.get("accepted")
        last = (self._known(accepted) or Revision(accepted, "", (), "", 0.0, 0.0, "")) if accepted else None
        new = NewHead(
            head=head,
            last=last,
            contains_last=last is None or self._source.is_ancestor(last.sha, head.sha),
            branch=self._where.branch,
            path=self._where.path,
            force_push=standing.policy.force_push if standing else "refuse",
        )
        return examine(new)

    def _reject(
        self, head: Revision, phase: Phase, findings: tuple[Finding, ...]
    ) -> tuple[None, tuple[Finding, ...]]:
        record = self._journal.commit(head.sha)
        if record is not None and not record.phase.terminal:
            self._journal.put_commits([stopped(record, phase, findings, self._clock.now())])
        self._rejected = {head.sha: findings}
        return None, findings

    def _register(self, head: Revision) -> None:
        """Give every commit that the push brought a record, and say which ones it undoes."""
        now, known = self._clock.now(), self._journal.get("head")
        brought: Sequence[Revision] = self._source.between(known, head.sha) if known else (head,)
        brought = brought or (head,)  # moved back to an earlier commit: only the head is new again
        older = self._journal.commits()
        records = {record.sha: record for record in older}
        position = max((record.position for record in older), default=-1) + 1
        changed = superseded(older, head, now) + [
            _again(records.get(record.sha), record) for record in entered(brought, position, now)
        ]
        updated = {record.sha: record for record in changed}
        if known:
            self._mark_rollbacks(brought, records, updated)
        self._journal.put_commits(list(updated.values()))
        self._journal.put({"head": head.sha})

    def _mark_rollbacks(
        self, brought: Sequence[Revision], known: dict[str, CommitRecord], updated: dict[str, CommitRecord]
    ) -> None:
        """Say on both sides which commits a push takes back."""
        history = self._source.history(brought[-1].sha, HISTORY + len(brought))
        place = {revision.sha: index for index, revision in enumerate(history)}
        for revision in brought:
            earlier = history[place[revision.sha] + 1 :] if revision.sha in place else ()
            rollback = recognise(revision, earlier, self._source.undoes, self._merged)
            if rollback is None:
                continue
            updated[revision.sha] = replace(updated[revision.sha], rolls_back_to=rollback.to)
            for sha in rollback.undone:
                if (record := updated.get(sha) or known.get(sha)) is not None:
                    updated[sha] = replace(record, rolled_back_by=revision.sha)

    def _merged(self, sha: str) -> Sequence[str]:
        """What a merge brought in besides itself."""
        parents = self._source.revision(sha).parents
        brought = self._source.between(parents[0], sha) if len(parents) > 1 else ()
        return [revision.sha for revision in brought if revision.sha != sha]


def _is_undone(record: CommitRecord, open_: Mapping[str, CommitRecord]) -> bool:
    """Whether a commit is taken back by one of some commits that is not taken back itself."""
    by = open_.get(record.rolled_back_by or "")
    return by is not None and not _is_undone(by, open_)


def _again(old: CommitRecord | None, new: CommitRecord) -> CommitRecord:
    """A commit that comes back (a force-push to where we were) starts over, but keeps when it was first seen."""
    return new if old is None else replace(new, seen_at=old.seen_at)


def _unexpected(head: Revision, problem: Exception) -> Finding:
    return Finding(
        Severity.ERROR,
        "Unexpected",
        head.short,
        f"this commit could not be read: unexpected {type(problem).__name__}",
        "This is a mistake of gitops-agent, not of yours; the log has the details. The last good commit stays in "
        "force. Push a commit without what is unusual about this one, or report it.",
    )


def _remembered(finding: Finding | None) -> dict[str, str | None]:
    """What the journal keeps of a problem of the source, for those who only read it."""
    said = (finding.code, finding.summary, finding.detail) if finding else (None, None, None)
    return dict(zip(("source_code", "source_problem", "source_hint"), said, strict=True))


def recalled_problem(journal: JournalReader) -> Finding | None:
    """The problem of the source that the journal remembers."""
    problem = journal.get("source_problem")
    code = journal.get("source_code") or "SourceUnavailable"
    return Finding(Severity.ERROR, code, "source", problem, journal.get("source_hint") or "") if problem else None


def source_finding(problem: SourceError) -> Finding:
    """A source that does not answer, as a finding for status output."""
    code = "SourceRefused" if isinstance(problem, SourceRefused) else "SourceUnavailable"
    return Finding(Severity.ERROR, code, "source", problem.message, problem.hint)
