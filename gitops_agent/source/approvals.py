"""Approvals given through Git alone: notes on commits of the branch, and trailers in later commits.

Both name the whole digest of a plan. Looked at are the commits after the one that is settled: what was said
earlier was said of another plan. Never raises: what cannot be read approves nothing, and says so.
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
class _Reading:
    """What was found between two commits."""

    approvals: tuple[Approval, ...] = ()
    objections: tuple[Finding, ...] = ()


class GitApprovals:
    """``ports.Approvals`` on the mirror. Reads git only when the branch or the notes have moved."""

    def __init__(self, mirror: Mirror, settings: Settings) -> None:
        self._mirror = mirror
        self._approvers = frozenset(name.casefold() for name in settings.approvers)
        self._signatures = Signatures(mirror.git, settings.allowed_signers)
        self._read_at: tuple[str | None, ...] = ()
        self._reading = _Reading()

    def since(self, enforced: str | None, head: Revision) -> Sequence[Approval]:
        """Valid approvals among the commits after the enforced one, and in the notes on them."""
        return self._read(enforced, head).approvals

    def objections(self, enforced: str | None, head: Revision) -> Sequence[Finding]:
        """What was said there and does not count: a warning for each, with the reason."""
        return self._read(enforced, head).objections

    def _read(self, enforced: str | None, head: Revision) -> _Reading:
        place = (enforced, head.sha, self._mirror.approvals())
        if enforced is None:
            return _Reading()  # nothing was ever in force, so nothing can be lost that needs an approval
        if place != self._read_at:
            try:
                self._reading, self._read_at = self._look(enforced, head), place
            except GitopsAgentError as problem:
                return _Reading((), (_unreadable(problem),))
        return self._reading

    def _look(self, enforced: str, head: Revision) -> _Reading:
        window = self._mirror.between(enforced, head.sha) if enforced != head.sha else ()
        said = [*trailed(self._mirror, window), *noted(self._mirror, [each.sha for each in window])]
        approvals, objections = [], []
        makers = _Makers(self._mirror, enforced, window) if said else None
        for statement in said:
            try:
                assert makers is not None
                approvals.append(self._judge(statement, makers))
            except _Objection as objection:
                objections.append(_finding(statement, objection))
        return _Reading(tuple(approvals), tuple(objections))

    def _judge(self, said: Statement, makers: _Makers) -> Approval:
        """The approval, if it counts; _Objection with the reason if not."""
        if not DIGEST.fullmatch(said.digest):
            raise _Objection(
                "it is not the whole digest of a plan (32 characters, 0-9 and a-f)",
                "Give the digest as gitops-agent plan prints it, all of it",
            )
        by = self._approver(said)
        if said.where == "trailer":
            makers.check(said, by)
        return Approval(said.digest, by, said.where, said.at, said.commit)

    def _approver(self, said: Statement) -> str:
        """Who says it: the name that goes with the signature where one is required, else the author's address."""
        by = self._signatures.principal(said.carrier) if self._signatures.required else said.email
        if not by and self._signatures.required:
            reason = self._signatures.problem or "it carries no signature of somebody in allowedSigners"
            raise _Objection(reason, "Say it again in a commit signed with a key in that file (git commit -S)")
        if not by:
            raise _Objection("its author has no address", "Set user.email and say it again")
        if self._approvers and by.casefold() not in self._approvers:
            raise _Objection(f"{by} is not among the approvers in the settings", "Let one of them approve")
        return by


class _Makers:
    """Who made the changes that an approval would let through.

    A commit makes a change when its tree below the path differs from that of any of its parents, merges included:
    a merge can bring back an old state with every single change in it made by somebody else. Commits after the
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

    def check(self, said: Statement, by: str) -> None:
        """_Objection unless the commit with this trailer changes nothing, and comes after others' changes."""
        if reason := self._reason(said, by):
            again = "Let somebody else push an empty commit with the trailer (git commit --allow-empty)"
            raise _Objection(reason, f"{again}, or approve on the machine with gitops-agent approve")

    def _reason(self, said: Statement, by: str) -> str:
        if not self._follows:
            return "the branch was rewritten, so nobody can tell who made the change"
        if said.commit in self._changes:
            return "its commit changes the desired state itself"
        if mine := {said.email.casefold(), by.casefold()} & self._authors:
            return f"{mine.pop()} is an author of the changes that wait"
        if self._changes and not self._changes & self._before(said.commit):
            return "it was said before the change, not after it"
        return ""

    def _before(self, commit: str) -> set[str]:
        return {each.sha for each in self._mirror.between(self._enforced, commit)}


def address(author: str) -> str:
    """The address in ``Name <address>``."""
    return author.rpartition("<")[2].removesuffix(">").strip()


def _finding(said: Statement, objection: _Objection) -> Finding:
    place = f"a note on {APPROVALS}" if said.where == "note" else "a Gitops-Approve trailer"
    return Finding(
        Severity.WARNING,
        "ApprovalRejected",
        said.commit[:10],
        f"the approval of {said.digest[:40]} by {said.email or 'nobody'} does not count: {objection.reason}",
        f"It was given as {place}, on {said.commit[:10]}. {objection.way_out}.",
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
