"""Approvals given through Git alone: notes on commits of the branch, and trailers in later commits.

Both name the whole digest of a plan. Read are the commits after the one in force: an earlier statement meant
another plan. Never raises: what cannot be read approves nothing and becomes a finding.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.passes import Approval
from gitops_agent.model.revision import Revision
from gitops_agent.settings import Settings
from gitops_agent.source.git_environment import config_variables
from gitops_agent.source.mirror import APPROVALS, APPROVALS_HERE, Mirror
from gitops_agent.source.notes import read_notes

TRAILER = "Gitops-Approve"
MAX_STATEMENTS = 200
"""More are not read: a note of a million lines must not keep a pass from its work."""

UNREADABLE = "ApprovalsUnreadable"
"""The code of the finding that approvals could not be read."""

_DIGEST = re.compile(r"[0-9a-f]{32}")
_LINE = re.compile(rf"^(?:{TRAILER}:\s*)?([0-9A-Fa-f]{{32}})$|^{TRAILER}:\s*(\S.*)$", re.IGNORECASE)
_TRAILERS = f"%H%x00%(trailers:key={TRAILER},valueonly,unfold,separator=%x1f)%x1e"
_NO_PROGRAM = "false"
"""A program that verifies nothing: of the kinds of signature git knows, only ssh is asked about."""

Signer = tuple[str, str]
"""The name in the allowed-signers file, and the fingerprint of the key; both "" without a good signature."""

_Found = tuple[Sequence[Approval], Sequence[Finding]]


@dataclass(frozen=True, slots=True)
class Statement:
    """A digest that was named. ``commit`` is the one on the branch; ``carrier`` what states it, if known."""

    digest: str
    where: str
    commit: str
    carrier: Revision | None

    @property
    def email(self) -> str:
        """The address of its author, "" when that is unknown."""
        return _address(self.carrier.author) if self.carrier else ""


class _Objection(Exception):
    """Why an approval does not count, and the way out."""


class GitApprovals:
    """Approvals that the mirror holds. Reads git only when the branch or the notes have moved; never raises: what
    cannot be read approves nothing."""

    def __init__(self, mirror: Mirror, settings: Settings) -> None:
        self._mirror = mirror
        self._approvers = frozenset(name.casefold() for name in settings.approvers)
        self._signers = Path(settings.allowed_signers).absolute() if settings.allowed_signers else None
        self._read_at: tuple[str | None, ...] = ()
        self._found: _Found = ((), ())

    def since(self, enforced: str | None, head: Revision) -> _Found:
        """Valid approvals among the commits after the enforced one and in the notes on them, and a warning for
        each statement there that does not count, with the reason."""
        if enforced is None:
            return (), ()  # nothing was ever in force, so nothing can be lost that needs an approval
        place = (enforced, head.sha, self._mirror.approvals())
        if place != self._read_at:
            try:
                self._found, self._read_at = self._read_window(enforced, head), place
            except GitopsAgentError as problem:
                return (), (_unreadable(problem),)
        return self._found

    def _read_window(self, enforced: str, head: Revision) -> _Found:
        window = self._mirror.between(enforced, head.sha) if enforced != head.sha else ()
        statements = [*islice(_trailed(self._mirror, window), MAX_STATEMENTS), *_noted(self._mirror, window)]
        if not statements:
            return (), ()
        authors = _ChangeAuthors(self._mirror, enforced, window, self._signers_of if self._signers else None)
        approvals, objections = [], []
        for statement in statements:
            try:
                approvals.append(self._approval(statement, authors))
            except _Objection as objection:
                objections.append(_finding(statement, *objection.args))
        return approvals, objections

    def _approval(self, statement: Statement, authors: "_ChangeAuthors") -> Approval:
        """The approval, if it counts; _Objection with the reason if not."""
        if not _DIGEST.fullmatch(statement.digest):
            raise _Objection(
                "it is not the whole digest of a plan (32 characters, 0-9 and a-f)",
                "Give the digest as gitops-agent plan prints it, all of it",
            )
        by, key = (statement.email, "") if self._signers is None else self._signer(statement.carrier)
        if not by:
            raise _Objection("its author has no address", "Set user.email and approve again")
        if self._approvers and by.casefold() not in self._approvers:
            raise _Objection(f"{by} is not among the approvers in the settings", "Let one of them approve")
        if statement.where == "trailer" and (reason := authors.objection(statement, by, key)):
            again = "Let another person push an empty commit with the trailer (git commit --allow-empty)"
            raise _Objection(reason, f"{again}, or approve on the machine with gitops-agent approve")
        stated_in = statement.carrier.sha if statement.carrier else ""
        return Approval(statement.digest, by, statement.where, 0.0, statement.commit, stated_in)

    def _signer(self, commit: Revision | None) -> Signer:
        """Who signed a commit, by a key in the ssh allowed-signers file."""
        again = "Approve again in a commit signed with a key in that file (git commit -S)"
        if self._signers is None or not self._signers.is_file():
            raise _Objection(f"allowedSigners names {self._signers}, and there is no such file", again)
        found = self._signers_of([commit])[commit.sha] if commit is not None else ("", "")
        if not found[0]:
            raise _Objection("it carries no signature by a key in allowedSigners", again)
        return found

    def _signers_of(self, commits: Sequence[Revision]) -> dict[str, Signer]:
        """Who signed each of some commits. Git asks ssh-keygen: no user configuration, no keyring, no other kind
        of signature."""
        allowed = self._signers
        rules = {
            "gpg.ssh.allowedSignersFile": str(allowed),
            "gpg.ssh.program": "ssh-keygen",
            "gpg.openpgp.program": _NO_PROGRAM,
            "gpg.x509.program": _NO_PROGRAM,
        }
        listed = self._mirror.git.local(
            *("log", "--no-walk=unsorted", "--format=%H%n%G?%n%GF%n%GS%x1e", "--stdin"),
            stdin="".join(f"{each.sha}\n" for each in commits).encode(),
            env=config_variables(rules),
        )
        found: dict[str, Signer] = {each.sha: ("", "") for each in commits}
        for record in filter(None, (text.strip("\n") for text in listed.text.split("\x1e"))):
            sha, verdict, key, name = (*record.split("\n"), "", "", "")[:4]
            if verdict == "G" and name.strip():
                found[sha] = name.strip(), key
        return found


class _ChangeAuthors:
    """Who made the changes that an approval would let through: their authors, committers and (where signers are
    configured) signers.

    A commit makes a change when its tree below the path differs from that of any of its parents, merges included:
    a merge can bring back an old state with every single change in it made by another author. Commits after the
    approving one count as well, or an author could approve first and push the change then.
    """

    def __init__(
        self,
        mirror: Mirror,
        enforced: str,
        window: Sequence[Revision],
        signers_of: Callable[[Sequence[Revision]], dict[str, Signer]] | None,
    ) -> None:
        self._mirror = mirror
        self._enforced = enforced
        self._follows = bool(window) and mirror.is_ancestor(enforced, window[-1].sha)
        trees = {each.sha: each.tree for each in window}
        outside = {parent for each in window for parent in each.parents} - trees.keys()
        trees |= {each.sha: each.tree for each in map(mirror.revision, sorted(outside))}
        changes = [each for each in window if {each.tree} != {trees[parent] for parent in each.parents}]
        self._changes = {each.sha for each in changes}
        self._authors = {_address(name).casefold() for each in changes for name in (each.author, each.committer)}
        self._signers = signers_of(changes) if signers_of is not None and changes else {}

    def objection(self, statement: Statement, by: str, key: str) -> str:
        """A reason, unless the commit with this trailer changes nothing, and comes after others' changes."""
        if not self._follows:
            return "the branch was rewritten, so the authors of the change are unknown"
        if statement.commit in self._changes:
            return "its commit changes the desired state itself"
        if mine := {statement.email.casefold(), by.casefold()} & self._authors:
            return f"{mine.pop()} is an author of the changes that wait"
        for sha, (name, used) in self._signers.items():
            if not name:  # an address is typed, so nothing says that it was another person
                return f"who made {sha[:10]} is unknown: it carries no signature by a key in allowedSigners"
            if used == key or name.casefold() == by.casefold():
                return f"{by} signed {sha[:10]}, one of the changes that wait"
        before = {each.sha for each in self._mirror.between(self._enforced, statement.commit)}
        if self._changes and not self._changes & before:
            return "it was given before the change, not after it"
        return ""


# -- statements, not yet checked


def _trailed(mirror: Mirror, window: Sequence[Revision]) -> Iterator[Statement]:
    """The statements in trailers of commits."""
    suspects = {each.sha: each for each in window if TRAILER.casefold() in each.message.casefold()}
    if not suspects:
        return
    shape = ("--no-walk=unsorted", "--encoding=UTF-8", f"--format={_TRAILERS}", "--stdin")
    listed = mirror.git.local("log", *shape, stdin="".join(f"{sha}\n" for sha in suspects).encode())
    for record in listed.output.decode(errors="replace").split("\x1e"):
        sha, _, values = record.strip("\n").partition("\0")
        for value in filter(None, (text.strip() for text in values.split("\x1f"))):
            yield Statement(value.lower(), "trailer", sha, suspects[sha])


def _noted(mirror: Mirror, window: Sequence[Revision]) -> Iterator[Statement]:
    """The statements in notes on commits, each with the author of the note in its present form."""
    count = 0
    for sha, (blob, text) in read_notes(mirror, APPROVALS_HERE, [each.sha for each in window]).items():
        # A digest has a line of its own, bare or as a trailer; other lines are comments.
        lines = [found for line in text.splitlines() if (found := _LINE.match(line.strip()))]
        count += len(lines)
        if lines and count <= MAX_STATEMENTS:
            carrier = _writer(mirror, sha, blob)
            for line in lines:
                yield Statement((line[1] or line[2]).strip().lower(), "note", sha, carrier)


def _writer(mirror: Mirror, sha: str, blob: str) -> Revision | None:
    """The commit that wrote a note in its present form: the last whose parents lack it.

    A commit that only moves notes into other folders, as git does when they become many, wrote none.
    """
    paths = [sha, f"{sha[:2]}/{sha[2:]}", f"{sha[:2]}/{sha[2:4]}/{sha[4:]}"]
    walk = ("rev-list", "--topo-order", "--full-history", APPROVALS_HERE, "--", *paths)
    for name in mirror.git.local(*walk).text.split():
        commit = mirror.revision(name)
        having = [
            {mirror.git.find(f"{each}:{path}", "blob") for path in paths} for each in (name, *commit.parents)
        ]
        if [blob in notes for notes in having] == [True] + [False] * len(commit.parents):
            return commit
    return None


def _address(author: str) -> str:
    """The address in ``Name <address>``."""
    return author.rpartition("<")[2].removesuffix(">").strip()


# -- findings


def _finding(statement: Statement, reason: str, way_out: str) -> Finding:
    by = statement.email or "an unknown author"
    place = f"a note on {APPROVALS}" if statement.where == "note" else "a Gitops-Approve trailer"
    return Finding(
        Severity.WARNING,
        "ApprovalRejected",
        statement.commit[:10],
        f"the approval of {statement.digest[:40]} by {by} does not count: {reason}",
        f"It was given as {place}, on {statement.commit[:10]}. {way_out}.",
    )


def _unreadable(problem: GitopsAgentError) -> Finding:
    return Finding(
        Severity.WARNING,
        UNREADABLE,
        APPROVALS,
        "approvals in Git cannot be read, so none of them counts",
        f"{problem.message}. It is tried again with every pass; meanwhile, approve on the machine with "
        "gitops-agent approve.",
    )
