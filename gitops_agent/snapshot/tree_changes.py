"""The names of a commit, before any content: what is there, what changed since the last load, what is refused."""

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
    files: dict[str, TreeFile] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # case-folded path to path
    hidden: set[str] = field(default_factory=set)  # by .gitopsignore
    remarks: dict[str, Finding] = field(default_factory=dict)  # about files that are not read
    document_count: int = 0
    documents: dict[str, str] = field(default_factory=dict)  # to read: path to blob
    changed: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    whole: bool = True  # all of a tree, rather than what changed in it

    def after(self, changes: Iterable[Change]) -> TreeChanges:
        """The changes that lead to the next commit; these stay as they are."""
        known = list(changes)
        renames = any(change.blob is None or change.path not in self.files for change in known)
        names = dict(self.names) if renames else self.names
        new = TreeChanges(
            self.rules, dict(self.files), names, set(self.hidden), dict(self.remarks), self.document_count
        )
        new.whole = not self.files
        for change in known:  # leaving first: a rename that changes only case is no collision
            new._drop(change.path, renames)
        for change in known:
            if change.blob is not None:
                new._add(change)
        return new

    def _drop(self, path: str, renames: bool) -> None:
        self.changed.add(path)
        self.hidden.discard(path)
        self.remarks.pop(path, None)
        if self.files.pop(path, None) is None:
            return
        self.document_count -= self.rules.is_document(path)
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
        self.files[path] = TreeFile(blob, size)
        if self.rules.is_document(path):
            self.documents[path] = blob
            self.document_count += 1
        elif self.rules.is_hidden(path):
            self.hidden.add(path)
        elif remark := self.rules.remark(path):
            self.remarks[path] = remark

    def notes(self) -> list[Finding]:
        """The findings about files that are not read."""
        return [*self.remarks.values(), *([hiding(len(self.hidden))] if self.hidden else [])]

    def over_limits(self, limits: Limits) -> list[Finding]:
        """Why nothing of the commit may be read. Single files that are too large are only left out."""
        large = [path for path in self.documents if (self.files[path].size or 0) > limits.file_bytes]
        for path in large:
            self.findings.append(too_large(path, self.files[path].size or 0, limits.file_bytes))
            del self.documents[path]
        if self.document_count > limits.files:
            summary = f"{self.document_count} YAML files; at most {limits.files} are read"
            return [error(Code.TOO_MANY_FILES, FilePosition("."), summary, _way_out("files"))]
        total = sum(self.files[path].size or 0 for path in self.documents)
        return [too_much(total, limits)] if total > limits.total_bytes else []


def too_much(total: int, limits: Limits) -> Finding:
    """The finding for a commit that holds more than may be read."""
    summary = f"{total} bytes to read; at most {limits.total_bytes} are read of one commit"
    return error(Code.TOO_LARGE, FilePosition("."), summary, _way_out("totalBytes"))


def _way_out(limit: str) -> str:
    return f"Raise limits.{limit} in the settings, narrow --path, or list files in .gitopsignore."
