"""Rollbacks that an operator asks for: a commit that undoes others, or restores an earlier tree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gitops_agent.errors import SourceRefused, UsageError
from gitops_agent.model.plan import Plan
from gitops_agent.model.revision import Revision
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import Mirror
from gitops_agent.support.secrets import Redactor


@dataclass(frozen=True, slots=True)
class RollbackCommit:
    """A commit that was made but not pushed, and what it would change."""

    sha: str
    subject: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class RollbackCommand:
    """Makes a revert commit, plans it, pushes it. Live systems follow by the next pass.

    ``plan`` gives the plan of a commit; ``redactor`` masks what the verb prints. ``last_good``: the last commit
    whose changes were all in, where one is on record.
    """

    source: Mirror
    writer: BranchWriter
    plan: Callable[[str], Plan]
    branch: str
    redactor: Redactor
    last_good: str | None = None

    def propose(self, commits: Sequence[str], to: str | None, message: str | None) -> RollbackCommit:
        """The commit that undoes these commits, or restores the tree of ``to``."""
        if to is not None and commits:
            raise UsageError("give commits to revert or --to, not both")
        source = self.source
        head = source.refresh()
        if not commits:
            to = to or self._below_an_empty(head)
        if to is not None:
            target = revision_named(source, to)
            sha = self.writer.restore(target.sha, message or f'Restore "{target.subject}" ({target.short})')
        else:
            undone = self._chosen(commits, head)
            sha = self.writer.revert([revision.sha for revision in undone], message or _subject(undone))
        return RollbackCommit(sha, source.revision(sha).subject, self.plan(sha))

    def _below_an_empty(self, head: Revision) -> str | None:
        """The last good commit when the newest one changes nothing, but what is below it does: to revert an empty
        commit (an approval, a note to the others) would take nothing back."""
        source, good = self.source, self.last_good
        is_empty = bool(head.parents) and source.revision(head.parents[0]).tree == head.tree
        if not is_empty or good is None or not source.is_ancestor(good, head.sha):
            return None
        return good if source.revision(good).tree != head.tree else None

    def _chosen(self, commits: Sequence[str], head: Revision) -> list[Revision]:
        """The commits a person named, newest first; the head when none was."""
        source = self.source
        chosen: dict[str, Revision] = {}
        for text in commits:
            old, dots, new = text.partition("..")
            if dots:
                until = revision_named(source, new).sha if new else head.sha
                found: Sequence[Revision] = source.between(revision_named(source, old).sha, until)
            else:
                found = (revision_named(source, text),)
            chosen.update((revision.sha, revision) for revision in found)
        return self._in_order(chosen, head) if chosen else [head]

    def _in_order(self, chosen: Mapping[str, Revision], head: Revision) -> list[Revision]:
        """The commits newest first as history has them: the dates of commits come from their authors' clocks."""
        depth = 64
        while True:
            history = self.source.history(head.sha, depth)
            ordered = [revision for revision in history if revision.sha in chosen]
            if len(ordered) == len(chosen):
                return ordered
            if len(history) < depth:
                stray = next(revision for revision in chosen.values() if revision not in ordered)
                hint = "give commits of the branch; gitops-agent history lists them"
                raise UsageError(f"commit {stray.short} is not part of {self.branch}", hint=hint)
            depth *= 4


def revision_named(source: Mirror, text: str) -> Revision:
    """The commit a person means; UsageError when there is none of that name."""
    try:
        return source.revision(text)
    except SourceRefused as unknown:
        raise UsageError(unknown.message, hint=unknown.hint) from unknown


def _subject(undone: Sequence[Revision]) -> str:
    if len(undone) == 1:
        return f'Revert "{undone[0].subject}"'
    return f"Revert {len(undone)} commits, {undone[-1].short} to {undone[0].short}"
