"""The names of a commit, before any content: what is there, what moved since the last load, what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gitops_agent.model.finding import Finding
from gitops_agent.settings import Limits
from gitops_agent.snapshot.codes import Code, FilePosition, error
from gitops_agent.snapshot.tree_rules import REGULAR, TreeFile, TreeRules, collision, folded, hiding
from gitops_agent.snapshot.yaml_documents import too_large


class Change(NamedTuple):
    """One path that differs: its new mode, blob (None: gone) and size (None: not known)."""

    path: str
    mode: str
    blob: str | None
    size: int | None = None


@dataclass(slots=True)
class TreeChanges:
    """The regular files of a tree, and what a commit did to them."""

    rules: TreeRules
    entries: dict[str, TreeFile] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # case-folded path to path
    touched: dict[str, str] = field(default_factory=dict)  # documents to read: path to blob
    moved: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)  # by .gitopsignore
    remarks: dict[str, Finding] = field(default_factory=dict)  # about files that are not read
    documents: int = 0
    whole: bool = True  # all of a tree, rather than what changed in it

    def after(self, changes: Iterable[Change]) -> TreeChanges:
        """The survey of the next commit; this one stays as it is."""
        known = list(changes)
        renames = any(change.blob is None or change.path not in self.entries for change in known)
        names = dict(self.names) if renames else self.names
        new = TreeChanges(self.rules, dict(self.entries), names, hidden=set(self.hidden), whole=not self.entries)
        new.remarks, new.documents = dict(self.remarks), self.documents
        for change in known:  # leaving first: a rename that changes only case is no collision
            new._drop(change.path, renames)
        for change in known:
            if change.blob is not None:
                new._add(change)
        return new

    def _drop(self, path: str, renames: bool) -> None:
        self.moved.add(path)
        self.hidden.discard(path)
        self.remarks.pop(path, None)
        if self.entries.pop(path, None) is None:
            return
        self.documents -= self.rules.is_document(path)
        if renames:
            self.names.pop(folded(path), None)

    def _add(self, change: Change) -> None:
        path, mode, blob, size = change
        if refusal := self.rules.refusal(mode, path):
            self.findings.append(refusal)
            return
        if mode not in REGULAR or blob is None:
            return
        other = self.names.setdefault(folded(path), path)
        if other != path:
            self.findings.append(collision(path, other))
        self.entries[path] = TreeFile(blob, size)
        if self.rules.is_document(path):
            self.touched[path] = blob
            self.documents += 1
        elif self.rules.is_hidden(path):
            self.hidden.add(path)
        elif remark := self.rules.remark(path):
            self.remarks[path] = remark

    def notes(self) -> list[Finding]:
        """What there is to say about files that are not read."""
        return [*self.remarks.values(), *([hiding(len(self.hidden))] if self.hidden else [])]

    def over_limits(self, limits: Limits) -> list[Finding]:
        """Why nothing of the commit may be read. Single files that are too large are only taken out."""
        self._take_out(limits.file_bytes)
        if self.documents > limits.files:
            summary = f"{self.documents} YAML files; at most {limits.files} are read"
            return [error(Code.TOO_MANY_FILES, FilePosition("."), summary, _way_out("files"))]
        total = sum(self.entries[path].size or 0 for path in self.touched)
        return [too_much(total, limits)] if total > limits.total_bytes else []

    def _take_out(self, allowed: int) -> None:
        large = [path for path in self.touched if (self.entries[path].size or 0) > allowed]
        for path in large:
            self.findings.append(too_large(path, self.entries[path].size or 0, allowed))
            del self.touched[path]


def too_much(total: int, limits: Limits) -> Finding:
    """The finding for a commit that holds more than may be read."""
    summary = f"{total} bytes to read; at most {limits.total_bytes} are read of one commit"
    return error(Code.TOO_LARGE, FilePosition("."), summary, _way_out("totalBytes"))


def _way_out(limit: str) -> str:
    return f"Raise limits.{limit} in the settings, narrow --path, or list files in .gitopsignore."
