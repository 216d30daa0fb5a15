"""The text that git prints (trees, differences of trees, commits) and takes (new commits), as values. Pure."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gitops_agent.model.revision import Revision
from gitops_agent.ports import TreeEntry
from gitops_agent.source.git_environment import Identity

FEW_COMMITS = 24
"""Up to here GitPython's reader is faster than one ``git log``, which costs a process; above it is slower."""

LOG_FORMAT = "%H%n%P%n%an <%ae>%n%cn <%ce>%n%at%n%ct%n%B%x00"
_REVERTS = re.compile(r"^\s*This reverts commit ([0-9a-f]{7,64})\b", re.MULTILINE)


def parse_entries(listing: bytes) -> list[TreeEntry]:
    """The output of ``ls-tree -r -z`` (with sizes: ``-l``). Bytes of names that are no UTF-8 become surrogates."""
    entries = []
    for record in listing.decode(errors="surrogateescape").split("\0"):
        if record:
            facts, _, path = record.partition("\t")
            mode, kind, blob, *size = facts.split()
            entries.append(TreeEntry(mode, kind, blob, int(size[0]) if size and size[0].isdigit() else None, path))
    return entries


def parse_changes(listing: bytes) -> list[TreeEntry]:
    """The output of ``diff-tree -r -z --no-renames``; a path that is gone has its old mode and "" as blob."""
    fields = iter(listing.decode(errors="surrogateescape").split("\0"))
    changes = []
    for facts in fields:
        if facts:
            old_mode, new_mode, _, new, _ = facts.removeprefix(":").split(" ", 4)
            mode, blob = (new_mode, new) if new_mode != "000000" else (old_mode, "")
            changes.append(TreeEntry(mode, "blob", blob, None, next(fields)))
    return changes


def parse_commits(log: bytes, trees: Iterator[str]) -> Iterator[Revision]:
    """The output of ``log --format=LOG_FORMAT``, each with its tree below the path."""
    for record in log.decode(errors="replace").split("\0"):
        if record.strip():
            sha, parents, author, committer, authored, committed, message = record.lstrip("\n").split("\n", 6)
            when, text = (float(authored), float(committed)), message.strip("\n")
            yield Revision(sha, next(trees), tuple(parents.split()), author, *when, text, committer=committer)


# -- whether one difference takes back another: the text of ``git diff-tree -p -U0 --full-index`` in

# Line numbers do not count, since a revert in the middle of history lands elsewhere in the file; whitespace does,
# since in YAML it has meaning.
Lines = tuple[tuple[str, str], ...]


def named_reverts(message: str) -> tuple[str, ...]:
    """The commits that a message says it reverts, as ``git revert`` writes it; each once, in their order."""
    return tuple(dict.fromkeys(_REVERTS.findall(message)))


def patch_lines(patch: str) -> Lines:
    """The added and removed lines, each with its file; modes count too, and contents of binary files by id."""
    lines: list[tuple[str, str]] = []
    name, index, inside = "", "", False
    for line in patch.split("\n"):
        if line.startswith("diff --git "):
            name, inside = line, False
        elif line.startswith("@@ "):
            inside = True
        elif inside and line.startswith(("+", "-")):
            lines.append((name, line))
        elif inside and line.startswith("\\"):
            lines[-1] = (name, lines[-1][1] + "\0")  # "No newline at end of file" belongs to the line before
        elif line.startswith("index "):
            index = line.split(" ")[1]
        elif line.startswith("Binary files "):
            lines += [(name, "-" + index.split("..")[0]), (name, "+" + index.split("..")[1])]
        elif mode := re.fullmatch(r"(old|new|deleted file|new file) mode (\d+)", line):
            lines.append((name, ("-" if mode[1] in ("old", "deleted file") else "+") + "mode " + mode[2]))
    return tuple(lines)


def takes_back(later: Lines, inverses: Iterable[Lines]) -> bool:
    """Whether ``later`` is the inverse differences put together (an addition and a removal cancel out)."""
    together = tuple(line for part in inverses for line in part)
    if not later or not together:
        return False
    net = _net(later)
    return later == together or (bool(net) and net == _net(together))


def _net(lines: Lines) -> dict[tuple[str, str], int]:
    count: Counter[tuple[str, str]] = Counter()
    for name, line in lines:
        count[name, line[1:]] += 1 if line.startswith("+") else -1
    return {line: times for line, times in count.items() if times}


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
