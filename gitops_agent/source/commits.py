"""Records of commits: how a push enters them, and which commits it takes back. Pure, but for questions to Git.

A rollback has two signs, in this order: the commit restores the exact tree of an earlier one; or its message says
"This reverts commit …" and the difference it makes is the inverse of that commit's. Words alone prove nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gitops_agent.model.finding import Finding, errors
from gitops_agent.model.revision import Revision
from gitops_agent.model.state import CommitsState
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.source.git_text import named_reverts
from gitops_agent.source.mirror import Mirror

MOST_SEARCHED_COMMITS = 500
"""How many earlier commits are searched for the one a rollback returns to."""

Lookup = Callable[[str], CommitRecord | None]
"""The record of any commit, also of one that is long past."""

Undoes = Callable[[str, str], bool]
"""``undoes(later, earlier)``: whether a commit takes back an earlier one (with others it names, if any)."""

Merged = Callable[[str], Sequence[str]]
"""``merged(sha)``: the commits a merge brought in, newest first; none for other commits."""


Reverter = Callable[[str], str | None]
"""``reverter(sha)``: the commit that took an earlier one back already, if one did."""


def register(
    commits: CommitsState, brought: Sequence[Revision], head: Revision, lookup: Lookup, now: float
) -> CommitsState:
    """The records with one for every commit that a push brought and that has none, and a fresh one for the head.
    Nothing else changes until the head has passed the checks (``accept``)."""
    position = max((record.position for record in commits.newest_first[:1]), default=-1) + 1
    known = {revision.sha: lookup(revision.sha) for revision in (*brought, head)}
    # A commit that comes back (a force-push to where we were) starts over, but was first seen before.
    new = [each for each in brought if known[each.sha] is None and each.sha != head.sha]
    return commits.updated(
        CommitRecord(
            sha=revision.sha,
            tree=revision.tree,
            subject=revision.subject,
            author=revision.author,
            committed_at=revision.committed_at,
            position=position + index,
            phase=Phase.PENDING,
            seen_at=now if (old := known[revision.sha]) is None else old.seen_at,
        )
        for index, revision in enumerate((*new, head))
    )


def accept(
    commits: CommitsState, brought: Sequence[Revision], head: Revision, source: Mirror, lookup: Lookup, now: float
) -> CommitsState:
    """The records when the head may be followed: it supersedes what was open, and takes back what it reverts."""
    open_ = (each for each in commits.newest_first if each.sha != head.sha and not each.phase.terminal)
    closed = [
        replace(each, phase=Phase.SUPERSEDED, finished_at=now, summary=_superseded(each, head)) for each in open_
    ]
    commits = commits.updated(closed)
    return commits.updated(_marked(brought, commits, source, lookup).values()) if brought else commits


def _superseded(record: CommitRecord, head: Revision) -> str:
    """That a newer commit came; of one that waited for people also that it did, and why."""
    was = f"; it was {record.phase}: {record.summary}" if record.phase is Phase.BLOCKED else ""
    return f"superseded by {head.short}{was}"


def refuse(
    commits: CommitsState, pushed: Sequence[Revision], phase: Phase, findings: tuple[Finding, ...], now: float
) -> CommitsState:
    """The records when a head is not followed, nor what was pushed with it. It supersedes nothing: what was under
    way before goes on. Of a head that is looked at again, with other settings perhaps, they say what is wrong now.
    """
    records = [record for revision in pushed if (record := commits.records.get(revision.sha)) is not None]
    changed = [stopped(record, phase, findings, now) for record in records if not record.phase.terminal]
    changed += [
        replace(record, findings=findings)
        for record in records
        if record.sha == pushed[-1].sha and record.phase is phase and record.findings != findings
    ]
    return commits.updated(changed)


def _marked(
    brought: Sequence[Revision], commits: CommitsState, source: Mirror, lookup: Lookup
) -> dict[str, CommitRecord]:
    """The records that say on both sides which commits a push takes back, and which ones it brings back so."""
    history = source.history(brought[-1].sha, MOST_SEARCHED_COMMITS + len(brought))
    place = {revision.sha: index for index, revision in enumerate(history)}
    merged = partial(_merged, source)
    pairs = _Pairs(lambda sha: commits.records.get(sha) or lookup(sha), merged)
    for revision in brought:
        earlier = history[place[revision.sha] + 1 :] if revision.sha in place else ()
        rollback = recognise(revision, earlier, source.undoes, merged, pairs.reverter)
        own = pairs.record(revision.sha)
        if rollback is not None and own is not None:
            pairs.changed[own.sha] = replace(own, rolls_back_to=rollback.to, reverts=rollback.reverts)
            for sha in rollback.undone:
                pairs.take_back(sha, revision.sha)
    return pairs.changed


class _Pairs:
    """Which commit takes back which. A revert that is itself taken back lets its commits count again."""

    def __init__(self, lookup: Lookup, merged: Merged) -> None:
        self._lookup = lookup
        self._merged = merged
        self.changed: dict[str, CommitRecord] = {}

    def record(self, sha: str) -> CommitRecord | None:
        return self.changed.get(sha) or self._lookup(sha)

    def reverter(self, sha: str) -> str | None:
        record = self.record(sha)
        return record.rolled_back_by if record is not None else None

    def take_back(self, sha: str, by: str) -> None:
        if (record := self.record(sha)) is not None:
            self.changed[sha] = replace(record, rolled_back_by=by)
            for other in self._taken_back_by(record):
                if self.reverter(other) == sha:
                    self._bring_back(other)

    def _bring_back(self, sha: str) -> None:
        if (record := self.record(sha)) is not None:
            self.changed[sha] = replace(record, rolled_back_by=None)
            for other in self._taken_back_by(record):
                if self.reverter(other) is None:
                    self.take_back(other, sha)

    def _taken_back_by(self, record: CommitRecord) -> Iterator[str]:
        return (sha for reverted in record.reverts for sha in (reverted, *self._merged(reverted)))


def _merged(source: Mirror, sha: str) -> Sequence[str]:
    """The commits that a merge brought in besides itself."""
    parents = source.revision(sha).parents
    brought = source.between(parents[0], sha) if len(parents) > 1 else ()
    return [revision.sha for revision in brought if revision.sha != sha]


def stopped(
    record: CommitRecord, phase: Phase, findings: tuple[Finding, ...], now: float, plan: str = ""
) -> CommitRecord:
    """A commit that is not enforced: Invalid, Refused or Blocked."""
    reasons = errors(findings) or findings
    # Its own sha is beside it wherever this is read.
    where = f"{reasons[0].address}: " if reasons and not record.sha.startswith(reasons[0].address) else ""
    first = f"{where}{reasons[0].summary}" if reasons else phase.value
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return replace(
        record,
        phase=phase,
        findings=findings,
        summary=first + more,
        plan=plan,
        started_at=record.started_at or now,
        finished_at=(record.finished_at or now) if phase.terminal else None,
    )


# -- recognising a rollback


@dataclass(frozen=True, slots=True)
class Rollback:
    """``to``: the newest commit whose very state is back, if there is one. ``reverts``: the commits that it takes
    back itself, newest first; ``undone``: these, and what those of them that are merges brought in."""

    to: str | None
    reverts: tuple[str, ...]
    undone: tuple[str, ...]


def recognise(
    revision: Revision,
    earlier: Sequence[Revision],
    undoes: Undoes,
    merged: Merged = lambda _: (),
    reverter: Reverter = lambda _: None,
) -> Rollback | None:
    """What a commit rolls back, if it does. ``earlier``: its ancestors as far as we know them, newest first.
    Where its message names what it reverts, and that is true, these are the pairs; a restored tree without such
    words takes back everything since that was not taken back before."""
    known = {other.sha: other for other in earlier}
    match = _same_state(revision, earlier, known)
    named = _named(revision, earlier, undoes)
    if named:
        undone = {sha for other in named for sha in (other, *merged(other))}
        return Rollback(match, named, _in_order(undone, earlier))
    if match is None:
        return None
    since = _reach(revision.parents[:1], known) - _reach([match], known)
    reverted = _in_order(since - _cancelled(since, reverter), earlier)
    return Rollback(match, reverted, reverted)


def _same_state(revision: Revision, earlier: Sequence[Revision], known: Mapping[str, Revision]) -> str | None:
    """The newest earlier commit that has the tree of a commit which differs from its parent's."""
    parent = known.get(revision.parents[0]) if revision.parents else None
    if parent is None or not revision.tree or revision.tree == parent.tree:
        return None
    # Only the first-parent side can be rolled back to: a merged revert branch already holds the same tree, and
    # matching that would say that the merge undoes nothing.
    mainline = _reach(revision.parents[:1], known)
    return next((each.sha for each in earlier if each.sha in mainline and each.tree == revision.tree), None)


def _named(revision: Revision, earlier: Sequence[Revision], undoes: Undoes) -> tuple[str, ...]:
    """The commits that the message says it reverts, as far as that is true, newest first."""
    taken_back = set()
    for prefix in named_reverts(revision.message):
        matches = [other.sha for other in earlier if other.sha.startswith(prefix)]
        if len(matches) == 1 and undoes(revision.sha, matches[0]):
            taken_back.add(matches[0])
    return tuple(other.sha for other in earlier if other.sha in taken_back)


def _cancelled(since: set[str], reverter: Reverter) -> set[str]:
    """Of some commits in a row, those that were taken back by others of them, and these."""
    pairs = {sha: by for sha in since if (by := reverter(sha)) in since}
    return {*pairs, *(by for by in pairs.values() if by is not None)}


def _reach(heads: Iterable[str], known: Mapping[str, Revision]) -> set[str]:
    """These commits and all their ancestors, as far as known."""
    seen: set[str] = set()
    waiting = [sha for sha in heads if sha in known]
    while waiting:
        sha = waiting.pop()
        if sha not in seen:
            seen.add(sha)
            waiting.extend(parent for parent in known[sha].parents if parent in known)
    return seen


def _in_order(shas: Iterable[str], earlier: Sequence[Revision]) -> tuple[str, ...]:
    chosen = set(shas)
    listed = [other.sha for other in earlier if other.sha in chosen]
    # What a merge brought in may be older than all we know.
    return (*listed, *sorted(chosen.difference(listed)))
