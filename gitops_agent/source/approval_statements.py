"""Statements in Git that name a plan: trailers of commits and lines of notes, not yet checked."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gitops_agent.model.revision import Revision
from gitops_agent.source.git_listing import parse_entries
from gitops_agent.source.mirror import APPROVALS_HERE, Mirror

TRAILER = "Gitops-Approve"
MAX_STATEMENTS = 200
"""More are not read: a note of a million lines must not keep a pass from its work."""

_LINE = re.compile(rf"^(?:{TRAILER}:\s*)?([0-9A-Fa-f]{{32}})$|^{TRAILER}:\s*(\S.*)$", re.IGNORECASE)
_TRAILERS = f"%H%x00%ae%x00%at%x00%(trailers:key={TRAILER},valueonly,unfold,separator=%x1f)"
_AUTHOR = "%H%x00%ae%x00%at"


@dataclass(frozen=True, slots=True)
class Statement:
    """A digest that was named. ``commit`` is the one on the branch; ``carrier`` the one that states it."""

    digest: str
    where: str
    commit: str
    carrier: str
    email: str
    at: float


def trailed(mirror: Mirror, window: Sequence[Revision]) -> Iterator[Statement]:
    """The statements in trailers of commits."""
    suspects = [each.sha for each in window if TRAILER.casefold() in each.message.casefold()]
    count = 0
    for sha, email, at, values in _log(mirror, suspects, _TRAILERS):
        for value in filter(None, (text.strip() for text in values.split("\x1f"))):
            count += 1
            if count <= MAX_STATEMENTS:
                yield Statement(value.lower(), "trailer", sha, sha, email.strip(), float(at))


def noted(mirror: Mirror, shas: Sequence[str]) -> Iterator[Statement]:
    """The statements in notes on commits, each with the author of the note in its present form."""
    blobs = _notes(mirror, set(shas)) if mirror.approvals() else {}
    texts = dict(mirror.blobs(list(dict.fromkeys(blobs.values()))))
    count = 0
    for sha in (sha for sha in shas if sha in blobs):
        digests = list(_digests(texts[blobs[sha]].decode(errors="replace")))
        count += len(digests)
        if not digests or count > MAX_STATEMENTS:
            continue
        carrier, email, at = _writer(mirror, sha, blobs[sha])
        yield from (Statement(digest, "note", sha, carrier, email, at) for digest in digests)


def _digests(text: str) -> Iterator[str]:
    """The digests that have a line of their own, bare or as a trailer; other lines are comments."""
    for line in text.splitlines():
        if found := _LINE.match(line.strip()):
            yield (found[1] or found[2]).strip().lower()


def _notes(mirror: Mirror, wanted: set[str]) -> dict[str, str]:
    """The blobs of the notes on some commits, however git has fanned them out into folders."""
    listed = mirror.git.local("ls-tree", "-r", "-l", "-z", "--full-tree", APPROVALS_HERE)
    entries = ((entry.path.replace("/", ""), entry) for entry in parse_entries(listed.output))
    return {sha: entry.blob for sha, entry in entries if sha in wanted and entry.type == "blob"}


def _writer(mirror: Mirror, sha: str, blob: str) -> tuple[str, str, float]:
    """The commit that wrote a note in its present form, with author and time: the last whose parents lack it.

    A commit that only moves notes into other folders, as git does when they become many, wrote none.
    """
    paths = [sha, f"{sha[:2]}/{sha[2:]}", f"{sha[:2]}/{sha[2:4]}/{sha[4:]}"]
    walk = ("rev-list", "--topo-order", "--full-history", "--parents", APPROVALS_HERE, "--", *paths)
    for line in mirror.git.local(*walk).text.splitlines():
        commit = line.split(" ")[0]
        parents = mirror.git.local("rev-list", "--parents", "--max-count=1", commit).text.split()[1:]
        if _note_at(mirror, commit, paths) == blob and blob not in [_note_at(mirror, p, paths) for p in parents]:
            ((_, email, at),) = _log(mirror, [commit], _AUTHOR)
            return commit, email.strip(), float(at)
    return "", "", 0.0


def _note_at(mirror: Mirror, commit: str, paths: Sequence[str]) -> str | None:
    entries = mirror.git.local("ls-tree", "--full-tree", commit, "--", *paths).text.splitlines()
    return next((entry.split()[2] for entry in entries), None)


def _log(mirror: Mirror, shas: Sequence[str], form: str) -> Iterator[list[str]]:
    if shas:
        given = "".join(f"{sha}\n" for sha in shas).encode()
        shape = ("--no-walk=unsorted", "--encoding=UTF-8", f"--format={form}%x1e", "--stdin")
        text = mirror.git.local("log", *shape, stdin=given).output.decode(errors="replace")
        yield from (record.lstrip("\n").split("\0") for record in text.split("\x1e") if record.strip())
