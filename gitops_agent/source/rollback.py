"""Recognising a rollback in Git history. Pure, given the commits we know and two questions to the source.

Two signs, in this order: the commit restores the exact tree of an earlier one; or its message says "This
reverts commit …" and the difference it makes is the inverse of that commit's. Words alone prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gitops_agent.model.revision import Revision
from gitops_agent.source.revert_match import named_reverts

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
    named = [_find(prefix, earlier) for prefix in named_reverts(revision.message)]
    taken_back = {other for other in named if other is not None and undoes(revision.sha, other.sha)}
    if not taken_back:
        return None
    reverted = [other for other in earlier if other in taken_back]
    undone = {sha for other in reverted for sha in (other.sha, *merged(other.sha))}
    to = reverted[-1].parents[:1]
    return Rollback(to[0], _in_order(undone, earlier)) if to else None


def _find(prefix: str, earlier: Sequence[Revision]) -> Revision | None:
    matches = [other for other in earlier if other.sha.startswith(prefix)]
    return matches[0] if len(matches) == 1 else None


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
