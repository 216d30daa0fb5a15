"""Whether a new head may be followed: an ordered list of same-shaped checks. Pure.

A check looks at a new head and says nothing or one finding; an error keeps the last good commit in force.
Signatures and review will be further checks in the same list. ``unfreezing.py`` has the one check that needs the
snapshot of the head.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.revision import Revision


@dataclass(frozen=True, slots=True)
class NewHead:
    """A new head, and what it would follow. ``contains_last``: the last good commit is in its history."""

    head: Revision
    last: Revision | None
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
    kept = f"Commit {last.sha} stays in force" if last else "Nothing is enforced yet, and nothing is changed"
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
        else f"The last good commit {last.sha} keeps being enforced and repaired. To accept the new "
        f"history, make it contain the old commit and push (git merge -s ours {last.short}); to go back, restore "
        "the branch. For the next time, forcePush: follow in the policy follows a rewrite by itself."
    )
    return Finding(
        Severity.WARNING if follow else Severity.ERROR,
        "ForcePush",
        f"{new.branch}@{head.short}",
        f"branch {new.branch} was rewritten: {head.short} does not contain {last.short}",
        f"Found head {head.sha}, which does not have {last.sha} in its history; expected a descendant. {outcome}",
    )


CHECKS: tuple[Check, ...] = (path_missing, branch_rewritten)


def examine(new: NewHead, checks: Sequence[Check] = CHECKS) -> tuple[Finding, ...]:
    """Everything the checks have to say, in their order."""
    return tuple(finding for check in checks if (finding := check(new)) is not None)
