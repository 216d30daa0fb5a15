"""Does a process look like what was declared? For those that carry our marks but that we did not start."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any


def runs_command(found: Sequence[str], declared: Sequence[str]) -> bool:
    """Whether a command line is the declared one, perhaps behind an interpreter (``python3 ./bot`` for ``./bot``).

    A command line that is empty (not ours to see) or was replaced by a title proves nothing: it passes.
    """
    words = [word for word in found if word]
    if not words or (len(words) == 1 and _is_title(words[0])):
        return True
    before = len(found) - len(declared)
    return before >= 0 and same_command(found[before:], declared)


def same_command(found: Sequence[str], declared: Sequence[str]) -> bool:
    """Whether a command line is the declared one and nothing else; the program may be called by another path."""
    if len(found) != len(declared) or tuple(found[1:]) != tuple(declared[1:]):
        return False
    return posixpath.basename(found[0]) == posixpath.basename(declared[0])


def _is_title(word: str) -> bool:
    return " " in word or ":" in word


def has_environment(found: Mapping[str, str], declared: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an environment holds every declared literal (references are not compared: they are secrets)."""
    return all(found.get(item["name"]) == item["value"] for item in declared if "value" in item)
