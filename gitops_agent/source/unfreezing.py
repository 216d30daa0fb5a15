"""Lifting a freeze of Git: the commit that does may change nothing but the Policy. Pure."""

from collections.abc import Callable, Sequence

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.freezes import git_freezes
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot, asks_the_same, changed_agents

LOOKED_AT = 50
"""Of a push of more commits than these none is looked at on its own: they count as one change."""

Load = Callable[[str], Snapshot | None]


def unfreezing(before: Snapshot | None, new: Snapshot, now: float) -> tuple[Finding, ...]:
    """What is wrong with a commit that lifts a freeze: what waited must be looked at on its own."""
    if before is None or not (lifted := _frozen(before, now) - _frozen(new, now)):
        return ()
    if not (others := _moved(before, new)):
        return ()
    names = ", ".join(others[:5]) + (" …" if len(others) > 5 else "")
    return (
        Finding(
            Severity.ERROR,
            "FreezeLiftedWithChanges",
            new.revision.short,
            f"the commit lifts the freeze of {', '.join(sorted(lifted))} and changes agents as well: {names}",
            f"A commit that lifts a freeze may change nothing but the Policy document. The freeze of "
            f"{before.revision.short} stays in force. Push a commit that takes the changes of agents back and "
            "keeps the Policy without the freeze; push the changes again afterwards.",
        ),
    )


def last_of_policy_alone(before: Snapshot, brought: Sequence[Revision], load: Load) -> Snapshot:
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


def _frozen(snapshot: Snapshot, now: float) -> set[str]:
    return {scope for scope, _ in git_freezes(snapshot.policy, now)}
