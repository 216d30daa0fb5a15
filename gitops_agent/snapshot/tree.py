"""The names of a commit, before any content: which are read, which make it invalid, and what changed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gitops_agent.model.finding import Finding
from gitops_agent.model.quantity import counted
from gitops_agent.ports import TreeEntry
from gitops_agent.settings import Limits
from gitops_agent.snapshot.codes import Code, FilePosition, error, info, warning
from gitops_agent.snapshot.ignore import IGNORE_FILE, Ignored
from gitops_agent.snapshot.yaml_documents import too_large

REGULAR = frozenset({"100644", "100755", "100664"})
SUFFIXES = (".yaml", ".yml")
MAX_PATH_CHARACTERS = 1_024
MAX_PATH_FOLDERS = 64
"""Longer and deeper paths are no work of people, and cost time in every match."""

# Anything unusual gets the closer look; ordinary names cost one search.
_UNUSUAL = re.compile(r"[^A-Za-z0-9_+@=,/.-]|(?:^|/)[./]|//|/$|^$|[.](?:/|$)")
_GIT_FOLDER = re.compile(r"^\.?git(?:~[0-9]+)?$")
_NEARLY_YAML = re.compile(r"\.(?:ya?ml[ .]*|yam|ymal|yalm|ylm|ya?ml\.txt)$", re.IGNORECASE)
_SET_ASIDE = re.compile(r"\.ya?ml(?:~|[._-](?:bak|backup|disabled|off|old|orig|rej|save|tmp))$", re.IGNORECASE)
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(slots=True)
class TreeChanges:
    """The regular files of a tree, and what a commit did to them."""

    ignored: Ignored
    files: dict[str, TreeEntry] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # case-folded path to path
    hidden: set[str] = field(default_factory=set)  # by .gitopsignore
    remarks: dict[str, Finding] = field(default_factory=dict)  # about files that are not read
    document_count: int = 0
    documents: dict[str, str] = field(default_factory=dict)  # to read: path to blob
    changed: frozenset[str] = frozenset()
    findings: list[Finding] = field(default_factory=list)
    whole: bool = True  # all of a tree, rather than what changed in it

    def after(self, changes: Sequence[TreeEntry]) -> TreeChanges:
        """The changes that lead to the next commit (no blob: the path is gone); these stay as they are."""
        changed = frozenset(change.path for change in changes)
        renames = any(not change.blob or change.path not in self.files for change in changes)
        new = TreeChanges(
            self.ignored,
            dict(self.files),
            dict(self.names) if renames else self.names,
            self.hidden - changed,
            dict(self.remarks),
            self.document_count,
            changed=changed,
            whole=not self.files,
        )
        # Leaving first: a rename that changes only case is no collision.
        for path in changed & self.files.keys():
            new._drop(path, renames)
        for change in changes:
            if change.blob:
                new._add(change)
        return new

    def _drop(self, path: str, renames: bool) -> None:
        del self.files[path]
        self.remarks.pop(path, None)
        self.document_count -= self.is_document(path)
        if renames:
            self.names.pop(_folded(path), None)

    def _add(self, entry: TreeEntry) -> None:
        path = entry.path
        if refusal := self._refusal(entry.mode, path):
            self.findings.append(refusal)
            return
        if entry.mode not in REGULAR:
            self._hide(path)
            return
        other = self.names.setdefault(_folded(path), path)
        if other != path:
            first, second = sorted((path, other))
            summary, detail = f"differs from {first} only by case", "Rename one of the two."
            self.findings.append(error(Code.CASE_COLLISION, FilePosition(second), summary, detail))
        self.files[path] = entry
        if self.is_document(path):
            self.documents[path] = entry.blob
            self.document_count += 1
        elif not self._hide(path) and (remark := self._remark(path)):
            self.remarks[path] = remark

    def _hide(self, path: str) -> bool:
        """Note a path that only ``.gitopsignore`` keeps from being read; whether it is one."""
        if is_hidden := path.endswith(SUFFIXES) and not _is_dotted(path):
            self.hidden.add(path)
        return is_hidden

    def _refusal(self, mode: str, path: str) -> Finding | None:
        """Why an entry makes the commit invalid, if it does."""
        if reason := _unfit(path):
            detail = "Rename it: such names mean different things on different systems."
            return error(Code.BAD_PATH, FilePosition(path), f"the path {reason}", detail)
        if mode in REGULAR or (path != IGNORE_FILE and self._is_skipped(path)):
            return None
        code, what, copied = Code.GITLINK, "a submodule or special entry", "files"
        if mode == "120000":
            code, what, copied = Code.SYMLINK, "a symbolic link", "file"
        detail = f"It is never followed. Copy the {copied} instead, or list the path in {IGNORE_FILE}."
        return error(code, FilePosition(path), what, detail)

    def is_document(self, path: str) -> bool:
        """Whether a path is read."""
        return path.endswith(SUFFIXES) and not self._is_skipped(path)

    def _is_skipped(self, path: str) -> bool:
        """Whether a path lies in a dot-folder, or ``.gitopsignore`` matches it."""
        return _is_dotted(path) or self.ignored(path)

    def _remark(self, path: str) -> Finding | None:
        """The finding about a file that is not read although its name suggests that it is."""
        if path.startswith("."):  # the habit of every tool, and of no interest
            return None
        if _is_dotted(path):
            return _unread(info, path, "a name begins with a dot") if path.endswith(SUFFIXES) else None
        nearly = _NEARLY_YAML.search(path)
        if (nearly or _SET_ASIDE.search(path)) and not self.ignored(path):
            return _unread(warning if nearly else info, path, "the name ends in neither .yaml nor .yml")
        return None

    def notes(self) -> list[Finding]:
        """The findings about files that are not read."""
        found = list(self.remarks.values())
        if self.hidden:  # an agent hidden by .gitopsignore is an agent deleted
            summary = f"{counted(len(self.hidden), 'YAML file')} ignored"
            detail = "Agents in ignored files are not declared."
            found.append(info(Code.IGNORED_FILES, FilePosition(IGNORE_FILE), summary, detail))
        return found

    def over_limits(self, limits: Limits) -> list[Finding]:
        """Why nothing of the commit may be read. Single files that are too large are only left out."""
        sizes = {path: self.files[path].size or 0 for path in self.documents}
        for path, size in sizes.items():
            if size > limits.file_bytes:
                self.findings.append(too_large(path, size, limits.file_bytes))
                del self.documents[path]
        if self.document_count > limits.files:
            summary = f"{self.document_count} YAML files; at most {limits.files} are read"
            return [error(Code.TOO_MANY_FILES, FilePosition("."), summary, _way_out("files"))]
        total = sum(sizes[path] for path in self.documents)
        return [too_much(total, limits)] if total > limits.total_bytes else []


def too_much(total: int, limits: Limits) -> Finding:
    """The finding for a commit that holds more than may be read."""
    summary = f"{total} bytes to read; at most {limits.total_bytes} are read of one commit"
    return error(Code.TOO_LARGE, FilePosition("."), summary, _way_out("totalBytes"))


def _way_out(limit: str) -> str:
    return f"Raise limits.{limit} in the settings, narrow --path, or list files in .gitopsignore."


def _is_dotted(path: str) -> bool:
    """Whether a path is, or lies in, something whose name begins with a dot."""
    return path.startswith(".") or "/." in path


def _unread(severity: Callable[..., Finding], path: str, reason: str) -> Finding:
    detail = f"Rename it if it declares agents: they are not declared now. Otherwise list it in {IGNORE_FILE}."
    return severity(Code.NOT_READ, FilePosition(path), f"not read: {reason}", detail)


def _folded(path: str) -> str:
    """The path as a file system that ignores case would see it."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def _unfit(path: str) -> str:
    """What is wrong with a path, or nothing."""
    if len(path) > MAX_PATH_CHARACTERS:
        return f"has {len(path)} characters; at most {MAX_PATH_CHARACTERS} are read"
    if path.count("/") > MAX_PATH_FOLDERS:
        return f"lies {path.count('/')} folders deep; at most {MAX_PATH_FOLDERS} are read"
    if not _UNUSUAL.search(path):
        return ""
    if path.startswith("/") or "\\" in path:
        return "is absolute or holds a backslash"
    if any(unicodedata.category(char) in _INVISIBLE for char in path):
        return "holds invisible characters"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "holds an empty, . or .. part"
    if any(_GIT_FOLDER.match(unicodedata.normalize("NFKC", part).casefold().rstrip(". ")) for part in parts):
        return "names a Git folder"
    return ""
