"""New commits as the input of one ``git fast-import``, which takes names of any bytes and SHA-256. Pure."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from gitops_agent.source.git_environment import Identity


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
