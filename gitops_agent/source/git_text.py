"""The text that git prints (trees, differences of trees, commits) and takes (new commits), as values. Pure."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gitops_agent.model.revision import Revision
from gitops_agent.ports import TreeEntry
from gitops_agent.source.git_environment import Identity

LOG_FORMAT = "%H%n%P%n%an <%ae>%n%at%n%ct%n%B%x00"


class TreeChange(NamedTuple):
    """One path that differs between two commits; ``mode`` is the new one, or the old one of a deleted path."""

    path: str
    old: str | None
    new: str | None
    mode: str


def parse_entries(listing: bytes) -> list[TreeEntry]:
    """The output of ``ls-tree -r -z`` (with sizes: ``-l``). Bytes of names that are no UTF-8 become surrogates."""
    entries = []
    for record in listing.decode(errors="surrogateescape").split("\0"):
        if record:
            facts, _, path = record.partition("\t")
            mode, kind, blob, *size = facts.split()
            entries.append(TreeEntry(mode, kind, blob, int(size[0]) if size and size[0].isdigit() else None, path))
    return entries


def parse_changes(listing: bytes) -> list[TreeChange]:
    """The output of ``diff-tree -r -z --no-renames``."""
    fields = iter(listing.decode(errors="surrogateescape").split("\0"))
    changes = []
    for facts in fields:
        if facts:
            old_mode, new_mode, old, new, _ = facts.removeprefix(":").split(" ", 4)
            there = new_mode != "000000"
            was = old if old_mode != "000000" else None
            changes.append(TreeChange(next(fields), was, new if there else None, new_mode if there else old_mode))
    return changes


def parse_commits(log: bytes, trees: Iterator[str]) -> Iterator[Revision]:
    """The output of ``log --format=LOG_FORMAT``, each with its tree below the path."""
    for record in log.decode(errors="replace").split("\0"):
        if record.strip():
            sha, parents, author, authored, committed, message = record.lstrip("\n").split("\n", 5)
            when, text = (float(authored), float(committed)), message.strip("\n")
            yield Revision(sha, next(trees), tuple(parents.split()), author, *when, text)


# -- the input of one ``git fast-import``, which takes names of any bytes and SHA-256


class NewCommit(NamedTuple):
    """A commit to be written. ``parent``: a sha, ``:1`` for the first one of the same call, "" for none.
    ``changes`` are made by the functions below; ``date``: seconds and offset, now by default."""

    parent: str
    message: str
    changes: Iterable[bytes]
    date: str = ""


def import_stream(ref: str, by: Identity, commits: Iterable[NewCommit]) -> bytes:
    """The input that writes the commits, sets the ref to the last of them, and has their shas printed."""
    parts = []
    for number, commit in enumerate(commits, 1):
        message = commit.message.replace("\0", "").encode(errors="replace")
        date = commit.date or time.strftime("%s %z")
        parts += [
            f"commit {ref}\nmark :{number}\ncommitter {by.name} <{by.email}> {date}\n".encode(),
            _data(message),
            f"from {commit.parent}\n".encode() if commit.parent else b"",
            *commit.changes,
            f"get-mark :{number}\n".encode(),
        ]
    return b"".join([*parts, b"done\n"])


def note_change(sha: str, text: str) -> bytes:
    """Sets the note on a commit."""
    return f"N inline {sha}\n".encode() + _data(text.encode(errors="replace"))


def file_change(path: str, mode: str, content: bytes) -> bytes:
    """Gives a file another content."""
    return f"M {mode} inline ".encode() + _quoted(path) + _data(content)


def tree_change(path: str, tree: str) -> bytes:
    """Puts a tree in the place of a folder; "" is the whole of a commit."""
    return f"M 040000 {tree} ".encode() + _quoted(path)


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


def _quoted(path: str) -> bytes:
    shown = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{shown}"\n'.encode(errors="surrogateescape")
