"""Records of commits: how a push enters them, and which commits it takes back. Pure, but for questions to Git.

A rollback has two signs, in this order: the commit restores the exact tree of an earlier one; or its message says
"This reverts commit …" and the difference it makes is the inverse of that commit's. Words alone prove nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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


def register(
    commits: CommitsState, known: str | None, head: Revision, source: Mirror, lookup: Lookup, now: float
) -> CommitsState:
    """The records with one for every commit that a push brought, and marks on those that it takes back.

    ``known``: the head that was seen before.
    """
    brought: Sequence[Revision] = source.between(known, head.sha) if known else (head,)
    brought = brought or (head,)  # moved back to an earlier commit: only the head is new again
    position = max((record.position for record in commits.newest_first[:1]), default=-1) + 1
    new = [
        CommitRecord(
            sha=revision.sha,
            tree=revision.tree,
            subject=revision.subject,
            author=revision.author,
            committed_at=revision.committed_at,
            position=position + index,
            phase=Phase.PENDING,
            # A commit that comes back (a force-push to where we were) starts over, but was first seen before.
            seen_at=now if (old := lookup(revision.sha)) is None else old.seen_at,
        )
        for index, revision in enumerate(brought)
    ]
    open_ = (record for record in (*commits.newest_first, *new) if not record.phase.terminal)
    why = f"superseded by {head.short}"
    closed = [replace(record, phase=Phase.SUPERSEDED, finished_at=now, summary=why) for record in open_]
    updated = {record.sha: record for record in closed} | {head.sha: new[-1]}
    if known:
        updated |= _marked(brought, updated, source, lookup)
    return commits.updated(updated.values())


def _marked(
    brought: Sequence[Revision], updated: Mapping[str, CommitRecord], source: Mirror, lookup: Lookup
) -> dict[str, CommitRecord]:
    """The records that say on both sides which commits a push takes back."""
    history = source.history(brought[-1].sha, MOST_SEARCHED_COMMITS + len(brought))
    place = {revision.sha: index for index, revision in enumerate(history)}
    marked = dict(updated)
    for revision in brought:
        earlier = history[place[revision.sha] + 1 :] if revision.sha in place else ()
        rollback = recognise(revision, earlier, source.undoes, partial(_merged, source))
        if rollback is None:
            continue
        marked[revision.sha] = replace(marked[revision.sha], rolls_back_to=rollback.to)
        for sha in rollback.undone:
            if (record := marked.get(sha) or lookup(sha)) is not None:
                marked[sha] = replace(record, rolled_back_by=revision.sha)
    return marked


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
    first = f"{reasons[0].address}: {reasons[0].summary}" if reasons else phase.value
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

Undoes = Callable[[str, str], bool]
"""``undoes(later, earlier)``: whether a commit takes back an earlier one (with others it names, if any)."""

Merged = Callable[[str], Sequence[str]]
"""``merged(sha)``: the commits a merge brought in, newest first; none for other commits."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """``to``: the commit whose state is back; ``undone``: the commits that no longer count, newest first."""

    to: str
    undone: tuple[str, ...]


def recognise(
    revision: Revision, earlier: Sequence[Revision], undoes: Undoes, merged: Merged = lambda _: ()
) -> Rollback | None:
    """What a commit rolls back, if it does. ``earlier``: its ancestors as far as we know them, newest first."""
    return _by_tree(revision, earlier) or _by_message(revision, earlier, undoes, merged)


def _by_tree(revision: Revision, earlier: Sequence[Revision]) -> Rollback | None:
    known = {other.sha: other for other in earlier}
    parent = known.get(revision.parents[0]) if revision.parents else None
    if parent is None or not revision.tree or revision.tree == parent.tree:
        return None
    # Only the first-parent side can be rolled back to: a merged revert branch already holds the same tree, and
    # matching that would say that the merge undoes nothing.
    mainline = _reach(revision.parents[:1], known)
    match = next((other for other in earlier if other.sha in mainline and other.tree == revision.tree), None)
    if match is None:
        return None
    return Rollback(match.sha, _in_order(mainline - _reach([match.sha], known), earlier))


def _by_message(
    revision: Revision, earlier: Sequence[Revision], undoes: Undoes, merged: Merged
) -> Rollback | None:
    taken_back = set()
    for prefix in named_reverts(revision.message):
        matches = [other for other in earlier if other.sha.startswith(prefix)]
        if len(matches) == 1 and undoes(revision.sha, matches[0].sha):
            taken_back.add(matches[0])
    if not taken_back:
        return None
    reverted = [other for other in earlier if other in taken_back]
    undone = {sha for other in reverted for sha in (other.sha, *merged(other.sha))}
    to = reverted[-1].parents[:1]
    return Rollback(to[0], _in_order(undone, earlier)) if to else None


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
