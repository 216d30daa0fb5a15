"""Which entries of a tree are read, which are left alone, and which make the commit invalid."""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from gitops_agent.model.finding import Finding
from gitops_agent.model.quantity import counted
from gitops_agent.snapshot.codes import Code, FilePosition, error, info, warning
from gitops_agent.snapshot.ignore import IGNORE_FILE, Ignored

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


class TreeFile(NamedTuple):
    """A regular file of the tree; ``size`` None: not known before it is read."""

    blob: str
    size: int | None


class TreeRules:
    """The rules for entries, with what ``.gitopsignore`` leaves out."""

    def __init__(self, ignored: Ignored) -> None:
        self._ignored = ignored

    def refusal(self, mode: str, path: str) -> Finding | None:
        """Why an entry makes the commit invalid, if it does."""
        if reason := _unfit(path):
            detail = "Rename it: such names mean different things on different systems."
            return error(Code.BAD_PATH, FilePosition(path), f"the path {reason}", detail)
        if mode in REGULAR or (path != IGNORE_FILE and self.is_skipped(path)):
            return None
        if mode == "120000":
            return error(Code.SYMLINK, FilePosition(path), "a symbolic link", _instead("Copy the file"))
        return error(Code.GITLINK, FilePosition(path), "a submodule or special entry", _instead("Copy the files"))

    def is_document(self, path: str) -> bool:
        """Whether a file is to be read for documents."""
        return path.endswith(SUFFIXES) and not self.is_skipped(path)

    def is_skipped(self, path: str) -> bool:
        """Whether a path lies in a dot-folder, or ``.gitopsignore`` matches it."""
        return is_dotted(path) or self._ignored(path)

    def is_hidden(self, path: str) -> bool:
        """Whether a file would be read if ``.gitopsignore`` did not match it."""
        return path.endswith(SUFFIXES) and not is_dotted(path) and self._ignored(path)

    def remark(self, path: str) -> Finding | None:
        """The finding about a file that is not read although its name suggests that it is."""
        if path.startswith("."):  # the habit of every tool, and of no interest
            return None
        if is_dotted(path):
            return _unread(info, path, "a name begins with a dot") if path.endswith(SUFFIXES) else None
        if _NEARLY_YAML.search(path) and not self._ignored(path):
            return _unread(warning, path, "the name ends in neither .yaml nor .yml")
        if _SET_ASIDE.search(path) and not self._ignored(path):
            return _unread(info, path, "the name ends in neither .yaml nor .yml")
        return None


def is_dotted(path: str) -> bool:
    """Whether a path is, or lies in, something whose name begins with a dot."""
    return path.startswith(".") or "/." in path


def hiding(count: int) -> Finding:
    """What ``.gitopsignore`` keeps from being read: an agent hidden by it is an agent deleted."""
    files = counted(count, "YAML file")
    return info(
        Code.IGNORED_FILES,
        FilePosition(IGNORE_FILE),
        f"{files} ignored",
        "Agents in ignored files are not declared.",
    )


def _unread(severity: Callable[..., Finding], path: str, reason: str) -> Finding:
    detail = f"Rename it if it declares agents: they are not declared now. Otherwise list it in {IGNORE_FILE}."
    return severity(Code.NOT_READ, FilePosition(path), f"not read: {reason}", detail)


def folded(path: str) -> str:
    """The path as a file system that ignores case would see it."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def collision(path: str, other: str) -> Finding:
    """The finding for two paths that some file systems take for one."""
    first, second = sorted((path, other))
    summary = f"differs from {first} only by case"
    return error(Code.CASE_COLLISION, FilePosition(second), summary, "Rename one of the two.")


def _instead(way: str) -> str:
    return f"It is never followed. {way} instead, or list the path in {IGNORE_FILE}."


def _unfit(path: str) -> str:
    """What is wrong with a path, or nothing."""
    if len(path) > MAX_PATH_CHARACTERS:
        return f"has {len(path)} characters; at most {MAX_PATH_CHARACTERS} are read"
    if path.count("/") > MAX_PATH_FOLDERS:
        return f"lies {path.count('/')} folders deep; at most {MAX_PATH_FOLDERS} are read"
    return _odd(path) if _UNUSUAL.search(path) else ""


def _odd(path: str) -> str:
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
