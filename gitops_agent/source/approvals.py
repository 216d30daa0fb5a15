"""Approvals given through Git alone: notes on commits of the branch, and trailers in later commits.

Both name the whole digest of a plan. Read are the commits after the one in force: an earlier statement meant
another plan. Never raises: what cannot be read approves nothing and becomes a finding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.passes import Approval
from gitops_agent.model.revision import Revision
from gitops_agent.settings import Settings
from gitops_agent.source.approval_statements import Statement, noted, trailed
from gitops_agent.source.mirror import APPROVALS, Mirror
from gitops_agent.source.signature import Signatures

DIGEST = re.compile(r"[0-9a-f]{32}")


class _Objection(Exception):
    """Why an approval does not count, and the way out."""

    def __init__(self, reason: str, way_out: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.way_out = way_out


@dataclass(frozen=True, slots=True)
class _Approvals:
    """The approvals that count between two commits, and the findings on those that do not."""

    approvals: tuple[Approval, ...] = ()
    objections: tuple[Finding, ...] = ()


class GitApprovals:
    """Approvals that the mirror holds. Reads git only when the branch or the notes have moved; never raises: what
    cannot be read approves nothing."""

    def __init__(self, mirror: Mirror, settings: Settings) -> None:
        self._mirror = mirror
        self._approvers = frozenset(name.casefold() for name in settings.approvers)
        self._signatures = Signatures(mirror.git, settings.allowed_signers)
        self._read_at: tuple[str | None, ...] = ()
        self._found = _Approvals()

    def since(self, enforced: str | None, head: Revision) -> Sequence[Approval]:
        """Valid approvals among the commits after the enforced one, and in the notes on them."""
        return self._read(enforced, head).approvals

    def objections(self, enforced: str | None, head: Revision) -> Sequence[Finding]:
        """A warning for each statement there that does not count, with the reason."""
        return self._read(enforced, head).objections

    def _read(self, enforced: str | None, head: Revision) -> _Approvals:
        place = (enforced, head.sha, self._mirror.approvals())
        if enforced is None:
            return _Approvals()  # nothing was ever in force, so nothing can be lost that needs an approval
        if place != self._read_at:
            try:
                self._found, self._read_at = self._read_window(enforced, head), place
            except GitopsAgentError as problem:
                return _Approvals((), (_unreadable(problem),))
        return self._found

    def _read_window(self, enforced: str, head: Revision) -> _Approvals:
        window = self._mirror.between(enforced, head.sha) if enforced != head.sha else ()
        statements = [*trailed(self._mirror, window), *noted(self._mirror, [each.sha for each in window])]
        approvals, objections = [], []
        authors = _ChangeAuthors(self._mirror, enforced, window) if statements else None
        for statement in statements:
            try:
                assert authors is not None
                approvals.append(self._approval(statement, authors))
            except _Objection as objection:
                objections.append(_finding(statement, objection))
        return _Approvals(tuple(approvals), tuple(objections))

    def _approval(self, statement: Statement, authors: _ChangeAuthors) -> Approval:
        """The approval, if it counts; _Objection with the reason if not."""
        if not DIGEST.fullmatch(statement.digest):
            raise _Objection(
                "it is not the whole digest of a plan (32 characters, 0-9 and a-f)",
                "Give the digest as gitops-agent plan prints it, all of it",
            )
        by = self._approver(statement)
        if statement.where == "trailer":
            authors.check(statement, by)
        return Approval(statement.digest, by, statement.where, statement.at, statement.commit)

    def _approver(self, statement: Statement) -> str:
        """The name that goes with the signature where one is required, else the author's address."""
        by = self._signatures.principal(statement.carrier) if self._signatures.required else statement.email
        if not by and self._signatures.required:
            reason = self._signatures.problem or "it carries no signature by a key in allowedSigners"
            raise _Objection(reason, "Approve again in a commit signed with a key in that file (git commit -S)")
        if not by:
            raise _Objection("its author has no address", "Set user.email and approve again")
        if self._approvers and by.casefold() not in self._approvers:
            raise _Objection(f"{by} is not among the approvers in the settings", "Let one of them approve")
        return by


class _ChangeAuthors:
    """The authors of the changes that an approval would let through.

    A commit makes a change when its tree below the path differs from that of any of its parents, merges included:
    a merge can bring back an old state with every single change in it made by another author. Commits after the
    approving one count as well, or an author could approve first and push the change then.
    """

    def __init__(self, mirror: Mirror, enforced: str, window: Sequence[Revision]) -> None:
        self._mirror = mirror
        self._enforced = enforced
        self._follows = bool(window) and mirror.is_ancestor(enforced, window[-1].sha)
        trees = {each.sha: each.tree for each in window}
        outside = {parent for each in window for parent in each.parents} - trees.keys()
        trees |= {each.sha: each.tree for each in map(mirror.revision, sorted(outside))}
        changes = [each for each in window if {each.tree} != {trees[parent] for parent in each.parents}]
        self._changes = {each.sha for each in changes}
        self._authors = {address(each.author).casefold() for each in changes}

    def check(self, statement: Statement, by: str) -> None:
        """_Objection unless the commit with this trailer changes nothing, and comes after others' changes."""
        if reason := self._reason(statement, by):
            again = "Let another person push an empty commit with the trailer (git commit --allow-empty)"
            raise _Objection(reason, f"{again}, or approve on the machine with gitops-agent approve")

    def _reason(self, statement: Statement, by: str) -> str:
        if not self._follows:
            return "the branch was rewritten, so the authors of the change are unknown"
        if statement.commit in self._changes:
            return "its commit changes the desired state itself"
        if mine := {statement.email.casefold(), by.casefold()} & self._authors:
            return f"{mine.pop()} is an author of the changes that wait"
        if self._changes and not self._changes & self._before(statement.commit):
            return "it was given before the change, not after it"
        return ""

    def _before(self, commit: str) -> set[str]:
        return {each.sha for each in self._mirror.between(self._enforced, commit)}


def address(author: str) -> str:
    """The address in ``Name <address>``."""
    return author.rpartition("<")[2].removesuffix(">").strip()


def _finding(statement: Statement, objection: _Objection) -> Finding:
    by = statement.email or "an unknown author"
    place = f"a note on {APPROVALS}" if statement.where == "note" else "a Gitops-Approve trailer"
    return Finding(
        Severity.WARNING,
        "ApprovalRejected",
        statement.commit[:10],
        f"the approval of {statement.digest[:40]} by {by} does not count: {objection.reason}",
        f"It was given as {place}, on {statement.commit[:10]}. {objection.way_out}.",
    )


def _unreadable(problem: GitopsAgentError) -> Finding:
    return Finding(
        Severity.WARNING,
        "ApprovalsUnreadable",
        APPROVALS,
        "approvals in Git cannot be read, so none of them counts",
        f"{problem.message}. It is tried again with every pass; meanwhile, approve on the machine with "
        "gitops-agent approve.",
    )
