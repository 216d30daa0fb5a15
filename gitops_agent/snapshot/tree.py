"""Which entries of a tree are read, which are left alone, and which make the commit invalid."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from gitops_agent.model.finding import Finding
from gitops_agent.snapshot.codes import Code, Place, error

IGNORE_FILE = ".gitopsignore"
REGULAR = frozenset({"100644", "100755", "100664"})

# Anything unusual gets the closer look; ordinary names cost one search.
_UNUSUAL = re.compile(r"[^A-Za-z0-9_+@=,/.-]|(?:^|/)[./]|//|/$|^$|[.](?:/|$)")
_GIT_FOLDER = re.compile(r"^\.?git(?:~[0-9]+)?$")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Entry(NamedTuple):
    """A regular file of the tree; ``size`` None: not known before it is read."""

    blob: str
    size: int | None


class TreeRules:
    """The rules for entries, with what ``.gitopsignore`` leaves out."""

    def __init__(self, ignore_lines: list[str]) -> None:
        self._ignored: Callable[[str], bool] | None = None
        if ignore_lines:
            self._ignored = GitIgnoreSpec.from_lines(ignore_lines).match_file

    def refusal(self, mode: str, path: str) -> Finding | None:
        """Why an entry makes the commit invalid, if it does."""
        if _UNUSUAL.search(path) and (reason := _odd(path)):
            detail = "Rename it: such names mean different things on different systems."
            return error(Code.BAD_PATH, Place(path), f"the path {reason}", detail)
        if mode in REGULAR or self.is_skipped(path):
            return None
        if mode == "120000":
            return error(Code.SYMLINK, Place(path), "a symbolic link", _instead("Copy the file"))
        return error(Code.GITLINK, Place(path), "a submodule or special entry", _instead("Copy the files"))

    def is_document(self, path: str) -> bool:
        """Whether a file is to be read for documents."""
        return path.endswith((".yaml", ".yml")) and not self.is_skipped(path)

    def is_skipped(self, path: str) -> bool:
        """Whether a path lies in a dot-folder, or ``.gitopsignore`` matches it."""
        if path.startswith(".") or "/." in path:
            return True
        return self._ignored is not None and self._ignored(path)


def folded(path: str) -> str:
    """The path as a file system that ignores case would see it."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def collision(path: str, other: str) -> Finding:
    """The finding for two paths that some file systems take for one."""
    first, second = sorted((path, other))
    summary = f"differs from {first} only by case"
    return error(Code.CASE_COLLISION, Place(second), summary, "Rename one of the two.")


def _instead(way: str) -> str:
    return f"It is never followed. {way} instead, or list the path in {IGNORE_FILE}."


def _odd(path: str) -> str:
    """What is wrong with a path, or nothing."""
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
