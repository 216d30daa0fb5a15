"""From the repository to the desired state in force: fetch, register, verify, load, or fall back.

The newest commit is a candidate when it is trusted and valid. Otherwise the last good one stays in force, and
the newest one's record says why. A source that does not answer changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gitops_agent.errors import InvalidDesiredState, SourceError, SourceRefused, SourceUnavailable
from gitops_agent.model.finding import Finding, Severity, errors
from gitops_agent.model.key import AgentKey
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot, changed_agents
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.ports import Clock, Journal, JournalReader, SnapshotLoader, Source
from gitops_agent.report.phases import entered, stopped, superseded
from gitops_agent.report.rollback import recognise
from gitops_agent.source.trust import Situation, examine

HISTORY = 500
"""How many earlier commits are searched for the one a rollback returns to."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What the source gave. ``snapshot`` is to be planned; ``fallback`` is what holds if a guard blocks it."""

    head: Revision | None
    snapshot: Snapshot | None
    fallback: Snapshot | None
    moved: frozenset[AgentKey] = frozenset()
    problem: SourceError | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def is_candidate(self) -> bool:
        """Whether the snapshot is the newest commit's, rather than the last good one's."""
        return self.head is not None and self.snapshot is not None and self.snapshot.revision.sha == self.head.sha


@dataclass(frozen=True, slots=True)
class Where:
    """The branch and the folder we follow, for messages."""

    branch: str
    path: str


class Receiver:
    """Keeps the snapshots in memory and the records of commits in the journal."""

    def __init__(
        self, source: Source, loader: SnapshotLoader, journal: Journal, clock: Clock, where: Where
    ) -> None:
        self._source = source
        self._where = where
        self._loader = loader
        self._journal = journal
        self._clock = clock
        self._enforced: Snapshot | None = None
        self._problem: SourceError | None = None
        self._rejected: dict[str, tuple[Finding, ...]] = {}

    def take(self, *, fetch: bool) -> Intake:
        """Look at the source and say what is desired now."""
        head, problem = self._head(fetch)
        enforced = self._last_good()
        if head is None:
            return Intake(None, enforced, None, problem=problem)
        if head.sha != self._journal.get("head"):
            self._register(head)
        if enforced is not None and enforced.revision.sha == head.sha:
            return Intake(head, enforced, enforced, problem=problem)
        candidate, findings = self._candidate(head, enforced)
        if candidate is None:
            return Intake(head, enforced, None, problem=problem, findings=findings)
        return Intake(head, candidate, enforced, changed_agents(enforced, candidate), problem)

    def enforce(self, snapshot: Snapshot) -> None:
        """From now on this is the last good snapshot."""
        if self._enforced is not None and self._enforced.revision.sha == snapshot.revision.sha:
            return
        self._enforced = snapshot
        self._journal.put({"enforced": snapshot.revision.sha})

    def _head(self, fetch: bool) -> tuple[Revision | None, SourceError | None]:
        """The newest commit, from the remote if it answers, else the newest we have seen.

        A problem lasts until the source answers, also in passes that do not ask it.
        """
        if fetch:
            try:
                head = self._source.refresh()
            except (SourceUnavailable, SourceRefused) as problem:
                self._problem = problem
                self._journal.put(_remembered(source_finding(problem)))
            else:
                self._problem = None
                self._journal.put({"last_fetch": str(self._clock.now()), **_remembered(None)})
                return head, None
        known = self._journal.get("head")
        return (self._known(known) if known else None), self._problem

    def _known(self, sha: str) -> Revision | None:
        try:
            return self._source.revision(sha)
        except SourceError:
            return None

    def _last_good(self) -> Snapshot | None:
        sha = self._journal.get("enforced")
        if self._enforced is None and sha is not None and (revision := self._known(sha)) is not None:
            try:
                self._enforced = self._loader.load(revision)
            except (InvalidDesiredState, SourceError):
                return None  # the mirror lost it, or this version no longer accepts it: nothing is concluded
        return self._enforced

    def _candidate(self, head: Revision, enforced: Snapshot | None) -> tuple[Snapshot | None, tuple[Finding, ...]]:
        if head.sha in self._rejected:
            return None, self._rejected[head.sha]
        said = self._examine(head, enforced)
        if errors(said):
            return self._reject(head, Phase.REFUSED, said)
        self._journal.put({"accepted": head.sha})
        try:
            snapshot = self._loader.load(head)
        except InvalidDesiredState as invalid:
            return self._reject(head, Phase.INVALID, said + invalid.findings)
        self._reopen(head)
        return replace(snapshot, findings=said + snapshot.findings), ()

    def _reopen(self, head: Revision) -> None:
        """What was turned down for a reason that holds no longer (a corrected path, a newer us) starts over."""
        record = self._journal.commit(head.sha)
        if record is not None and record.phase in (Phase.REFUSED, Phase.INVALID):
            fresh = replace(
                record, phase=Phase.PENDING, findings=(), summary="", started_at=None, finished_at=None
            )
            self._journal.put_commits([fresh])

    def _examine(self, head: Revision, enforced: Snapshot | None) -> tuple[Finding, ...]:
        """What the trust checks say. Compared is the last head that passed them, so that a commit on top of a
        rewritten branch is refused like the rewrite itself."""
        accepted = self._journal.get("accepted")
        last = (self._known(accepted) or Revision(accepted, "", (), "", 0.0, 0.0, "")) if accepted else None
        situation = Situation(
            head=head,
            last=last,
            contains_last=last is None or self._source.is_ancestor(last.sha, head.sha),
            branch=self._where.branch,
            path=self._where.path,
            force_push=enforced.policy.force_push if enforced else "refuse",
        )
        return examine(situation)

    def _reject(
        self, head: Revision, phase: Phase, findings: tuple[Finding, ...]
    ) -> tuple[None, tuple[Finding, ...]]:
        self._rejected = {head.sha: findings}
        record = self._journal.commit(head.sha)
        if record is not None and not record.phase.terminal:
            self._journal.put_commits([stopped(record, phase, findings, self._clock.now())])
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
        for revision in brought if known else ():
            _mark_rollback(revision, records | updated, updated, self._source)
        self._journal.put_commits(list(updated.values()))
        self._journal.put({"head": head.sha})


def _again(old: CommitRecord | None, new: CommitRecord) -> CommitRecord:
    """A commit that comes back (a force-push to where we were) starts over, but keeps when it was first seen."""
    return new if old is None else replace(new, seen_at=old.seen_at)


def _mark_rollback(
    revision: Revision, known: dict[str, CommitRecord], updated: dict[str, CommitRecord], source: Source
) -> None:
    earlier = source.history(revision.sha, HISTORY)[1:]
    rollback = recognise(revision, earlier, source.undoes)
    if rollback is None:
        return
    updated[revision.sha] = replace(updated[revision.sha], rolls_back_to=rollback.to)
    for sha in rollback.undone:
        if (record := updated.get(sha) or known.get(sha)) is not None:
            updated[sha] = replace(record, rolled_back_by=revision.sha)


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
