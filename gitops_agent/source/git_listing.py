"""Reading what git lists: trees, differences of trees, commits. Pure: bytes in, values out."""

from collections.abc import Iterator
from typing import NamedTuple

from gitops_agent.model.revision import Revision
from gitops_agent.ports import TreeEntry

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
