"""``.gitopsignore``: what is not read, in the grammar of ``.gitignore``.

The file comes with the commit, so matching must be bounded: a path is compared name by name, and in a name every
fixed part between two stars is looked for once, from left to right (an atomic group never tries another place).
So ``*a*a*a…`` takes as long as reading the name. A line that could never match is an error: what it was meant to
hide would be read. Not with pathspec: its expressions backtrack (seven stars against sixty characters: 20 s), and
it decided 8 of 150 random files of patterns otherwise than git.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gitops_agent.model.finding import Finding
from gitops_agent.snapshot.codes import Code, FilePosition, error, shown
from gitops_agent.snapshot.yaml_documents import not_utf8
from gitops_agent.snapshot.yaml_text_guard import BYTE_ORDER_MARK

IGNORE_FILE = ".gitopsignore"
MAX_PATTERNS = 256
MAX_PATTERN_CHARACTERS = 256

_CACHED_FOLDERS = 10_000
_ANY = re.compile(".*", re.DOTALL)
_NEVER = re.compile("(?!)")
_FOLDERS = re.compile(r"\*\*+")  # to git, more than two stars are two
_PARTS = re.compile(r"\\.|\*+|\?|\[[!^]?\]?(?:\\.|[^]\\])*\]|.", re.DOTALL)
_MEMBERS = re.compile(r"(\\.|[^\\])(?:-(\\.|[^\\]))?", re.DOTALL)


class Pattern(NamedTuple):
    """One line. ``names`` is what each name of a path must match; None: any number of folders."""

    negated: bool
    folders_only: bool
    names: tuple[re.Pattern[str] | None, ...]

    def matches(self, path: Sequence[str]) -> bool:
        """Whether a path, given as its names, is meant."""
        here, at, any_number, resume = 0, 0, -1, 0
        while at < len(path):
            name = self.names[here] if here < len(self.names) else _NEVER
            if name is None:
                any_number, resume = here, at
                here += 1
            elif name.fullmatch(path[at]):
                here, at = here + 1, at + 1
            elif any_number >= 0:
                resume += 1
                here, at = any_number + 1, resume
            else:
                return False
        return all(name is None for name in self.names[here:])


class Ignored:
    """All lines together: the last one that matches decides, and what lies in an ignored folder stays ignored."""

    def __init__(self, patterns: Sequence[Pattern] = ()) -> None:
        self._latest_first = tuple(reversed(patterns))
        self._folders: dict[str, bool] = {}

    def __call__(self, path: str) -> bool:
        """Whether a file is ignored."""
        if not self._latest_first:
            return False
        names = path.split("/")
        return self._is_inside(path.rpartition("/")[0], names[:-1]) or self._decides(names, is_folder=False)

    def _is_inside(self, folder: str, names: list[str]) -> bool:
        if folder not in self._folders:
            if len(self._folders) >= _CACHED_FOLDERS:
                self._folders.clear()
            above = (names[:depth] for depth in range(1, len(names) + 1))
            self._folders[folder] = any(self._decides(part, is_folder=True) for part in above)
        return self._folders[folder]

    def _decides(self, names: Sequence[str], *, is_folder: bool) -> bool:
        for pattern in self._latest_first:
            if (is_folder or not pattern.folders_only) and pattern.matches(names):
                return not pattern.negated
        return False


def too_large(size: int, allowed: int) -> Finding:
    """The finding for a file of patterns that is not read because of its size."""
    summary = f"{size} bytes; at most {allowed} are read"
    return error(Code.TOO_LARGE, FilePosition(IGNORE_FILE), summary, "Name folders instead of files.")


def read(data: bytes, allowed: int) -> tuple[Ignored, list[Finding]]:
    """The patterns of the file, and what is wrong with it."""
    if len(data) > allowed:
        return Ignored(), [too_large(len(data), allowed)]
    try:
        return _read(data.decode("utf-8").removeprefix(BYTE_ORDER_MARK))
    except UnicodeDecodeError as problem:
        return Ignored(), [not_utf8(IGNORE_FILE, data, problem.start)]


def _read(text: str) -> tuple[Ignored, list[Finding]]:
    patterns: list[Pattern] = []
    findings: list[Finding] = []
    for number, line in enumerate(text.split("\n"), start=1):
        pattern = _without_spaces(line.removesuffix("\r"))
        if not pattern or pattern.startswith("#"):
            continue
        if len(patterns) == MAX_PATTERNS:
            summary = f"more than {MAX_PATTERNS} patterns"
            findings.append(
                error(Code.TOO_LARGE, FilePosition(IGNORE_FILE, number), summary, "Name folders instead.")
            )
            break
        try:
            patterns.append(parse(pattern))
        except ValueError as problem:
            summary = f"the pattern {shown(pattern)} {problem}"
            detail = "Correct the line, or remove it; the grammar is that of .gitignore."
            findings.append(error(Code.BAD_PATTERN, FilePosition(IGNORE_FILE, number), summary, detail))
    return Ignored(patterns), findings


def parse(line: str) -> Pattern:
    """One pattern; ValueError with the reason when it could never match."""
    if len(line) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"has {len(line)} characters; at most {MAX_PATTERN_CHARACTERS} are read")
    negated = line.startswith("!")
    rest = line[negated:]
    folders_only = rest.endswith("/")
    rest = rest[: len(rest) - folders_only]
    if not rest:
        raise ValueError("names nothing")
    if "/" not in rest:
        return Pattern(negated, folders_only, (None, _name(rest)))
    parts = rest.removeprefix("/").split("/")
    if "" in parts:
        raise ValueError("can never match: it holds an empty name")
    names = tuple(None if _FOLDERS.fullmatch(part) else _name(part) for part in parts)
    # "a/**" is what lies in a, not a itself.
    return Pattern(negated, folders_only, (*names[:-1], _ANY, None) if names[-1] is None else names)


def _without_spaces(line: str) -> str:
    """The line without spaces at its end, except for those that a backslash keeps."""
    kept = line.rstrip(" ")
    slashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if slashes % 2 and len(kept) < len(line) else kept


def _name(glob: str) -> re.Pattern[str]:
    """The expression for one name of a path."""
    fixed = [""]
    for part in _PARTS.findall(glob):
        if part.startswith("*"):
            fixed.append("")
        else:
            fixed[-1] += _character(part)
    first, *others = fixed
    between = "".join(f"(?>.*?{part})" for part in others[:-1])
    return re.compile(first + between + (f".*{others[-1]}" if others else ""), re.DOTALL)


def _character(part: str) -> str:
    if part == "?":
        return "."
    if part == "\\":
        raise ValueError("can never match: it ends with a backslash")
    if part == "[":
        raise ValueError("can never match: its [ is not closed")
    return _one_of(part) if part.startswith("[") else re.escape(part[-1])


def _one_of(part: str) -> str:
    inner = part[1:-1]
    negated = inner[0] in "!^"
    inner = inner[negated:]
    if "[:" in inner:
        raise ValueError("holds a class of characters such as [:alpha:], which is not supported")
    ranges = [(low[-1], (high or low)[-1]) for low, high in _MEMBERS.findall(inner)]
    if any(low > high for low, high in ranges):
        raise ValueError("can never match: it holds a range that ends before it begins")
    members = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in ranges)
    return f"[{'^' if negated else ''}{members}]"
