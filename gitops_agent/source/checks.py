"""Whether a new head may be followed: an ordered list of same-shaped checks. Pure.

A check looks at a new head and says nothing or one finding; an error keeps the last good commit in force.
Signatures and review will be further checks in the same list. ``unfreezing`` needs the snapshot of the head: a
commit that lifts, shortens or narrows a freeze of Git may change nothing but the Policy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from gitops_agent.model.control import EVERYTHING, git_freezes
from gitops_agent.model.document import Freeze
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.quantity import epoch
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot, asks_the_same, changed_agents

LOOKED_AT = 50
"""Of a push of more commits than these none is looked at on its own: they count as one change."""


@dataclass(frozen=True, slots=True)
class NewHead:
    """A new head, and what it would follow. ``contains_last``: the last good commit is in its history."""

    head: Revision
    last: str | None
    contains_last: bool
    branch: str
    path: str = "."
    force_push: Literal["refuse", "follow"] = "refuse"


Check = Callable[[NewHead], Finding | None]


def path_missing(new: NewHead) -> Finding | None:
    """The folder we read must exist: a missing one is a mistake, never an empty fleet."""
    head, last = new.head, new.last
    if head.tree:
        return None
    kept = f"Commit {last} stays in force" if last else "Nothing is enforced yet, and nothing is changed"
    return Finding(
        Severity.ERROR,
        "PathMissing",
        f"{new.branch}@{head.short}",
        f"folder {new.path} does not exist in commit {head.short}",
        f"Found no folder {new.path!r} in {head.sha}; expected the folder with the desired state. {kept}. "
        "Push a commit that brings the folder back, or choose another one with --path.",
    )


def branch_rewritten(new: NewHead) -> Finding | None:
    """A head without the last good commit in its history was force-pushed."""
    head, last = new.head, new.last
    if last is None or new.contains_last:
        return None
    follow = new.force_push == "follow"
    outcome = (
        f"Policy forcePush: follow, so {head.sha} is followed."
        if follow
        else f"The last good commit {last} stays in force. To accept the new history, make it contain the old "
        f"commit and push (git merge -s ours {last[:10]}); to go back, restore the branch. For the next time, "
        "forcePush: follow in the policy follows a rewrite by itself."
    )
    return Finding(
        Severity.WARNING if follow else Severity.ERROR,
        "ForcePush",
        f"{new.branch}@{head.short}",
        f"branch {new.branch} was rewritten: {head.short} does not contain {last[:10]}",
        f"Found head {head.sha}, which does not have {last} in its history; expected a descendant. {outcome}",
    )


CHECKS: tuple[Check, ...] = (path_missing, branch_rewritten)


def examine(new: NewHead, checks: Sequence[Check] = CHECKS) -> tuple[Finding, ...]:
    """Everything the checks have to say, in their order."""
    return tuple(finding for check in checks if (finding := check(new)) is not None)


# -- lifting a freeze


def unfreezing(before: Snapshot | None, new: Snapshot, now: float) -> tuple[Finding, ...]:
    """What is wrong with a commit that lifts a freeze: what waited must be looked at on its own."""
    if before is None or not (lifted := _lifted(before, new, now)):
        return ()
    if not (others := _moved(before, new)):
        return ()
    names = ", ".join(others[:5]) + (" …" if len(others) > 5 else "")
    return (
        Finding(
            Severity.ERROR,
            "FreezeLiftedWithChanges",
            new.revision.short,
            f"the commit lifts, shortens or narrows the freeze of {', '.join(lifted)} and changes agents as well: "
            f"{names}",
            "A commit that lifts, shortens or narrows a freeze may change nothing but the Policy document. The "
            f"freeze of {before.revision.short} stays in force. Push a commit that takes the changes of agents "
            "back and keeps the new Policy; push the changes again afterwards.",
        ),
    )


def last_of_policy_alone(
    before: Snapshot, brought: Sequence[Revision], load: Callable[[str], Snapshot | None]
) -> Snapshot:
    """Where a push stood after the commits in it that change nothing but the Policy.

    What comes after them is free of a freeze that they lifted. ``brought``: the commits, the newest last.
    """
    reached = before
    for revision in _way(before.revision.sha, brought):
        step = load(revision.sha)
        if step is not None and not _moved(before, step):  # what cannot be read, or is invalid, counts for nothing
            reached = step
    return reached


def _way(start: str, brought: Sequence[Revision]) -> list[Revision]:
    """The commits before the newest, oldest first, if the branch itself went from the start through each of them.

    What a merge brought along stood on other policies, and lifted nothing by not knowing of a freeze.
    """
    known = {revision.sha: revision for revision in brought}
    way: list[Revision] = []
    at = next(iter(brought[-1].parents), "") if brought else ""
    while at in known and len(way) < LOOKED_AT:
        way.append(known[at])
        at = next(iter(known[at].parents), "")
    return way[::-1] if at == start else []


def _moved(before: Snapshot, new: Snapshot) -> list[str]:
    """The agents that the newer one asks something else of."""
    changed = changed_agents(before, new)
    return sorted(str(key) for key in changed if not asks_the_same(before.agents.get(key), new.agents.get(key)))


def _lifted(before: Snapshot, new: Snapshot, now: float) -> list[str]:
    """The scopes of freezes for which the newer one has none that covers as much for as long."""
    kept = [(scope, _end(freeze)) for scope, freeze in git_freezes(new.policy, now)]
    frozen = ((scope, _end(freeze)) for scope, freeze in git_freezes(before.policy, now))
    return sorted(
        {
            scope
            for scope, end in frozen
            if not any(
                wide in (EVERYTHING, scope, scope.partition("/")[0]) and end <= other for wide, other in kept
            )
        }
    )


def _end(freeze: Freeze) -> float:
    return inf if freeze.until is None else epoch(freeze.until)
