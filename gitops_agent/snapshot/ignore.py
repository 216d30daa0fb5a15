"""``.gitopsignore``: what is not read, in the grammar of ``.gitignore``.

The file comes with the commit, so matching must be bounded: every fixed part between two stars, and every run of
names between two double stars, is looked for once, from left to right (an atomic group never tries another place).
So ``*a*a*a…`` takes as long as reading the path. A line that could never match is an error: what it was meant to
hide would be read. Not with pathspec: its expressions backtrack (seven stars against sixty characters: 20 s), and
it decided 8 of 150 random files of patterns otherwise than git.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gitops_agent.model.finding import Finding
from gitops_agent.snapshot.codes import Code, FilePosition, error, shown
from gitops_agent.snapshot.yaml_documents import not_utf8, too_large
from gitops_agent.snapshot.yaml_text_guard import BYTE_ORDER_MARK

IGNORE_FILE = ".gitopsignore"
SHORTER = "Name folders instead of files."
MAX_PATTERNS = 256
MAX_PATTERN_CHARACTERS = 256

_CACHED_FOLDERS = 10_000
_FOLDERS = re.compile(r"\*\*+")  # to git, more than two stars are two
_PARTS = re.compile(r"\\.|\*+|\?|\[[!^]?\]?(?:\\.|[^]\\])*\]|.", re.DOTALL)
_MEMBERS = re.compile(r"(\\.|[^\\])(?:-(\\.|[^\\]))?", re.DOTALL)


class Pattern(NamedTuple):
    """One line: the paths that it means, as an expression."""

    negated: bool
    folders_only: bool
    paths: re.Pattern[str]


class Ignored:
    """All lines together: the last one that matches decides, and what lies in an ignored folder stays ignored."""

    def __init__(self, patterns: Sequence[Pattern] = ()) -> None:
        self._latest_first = tuple(reversed(patterns))
        self._folders: dict[str, bool] = {"": False}

    def __call__(self, path: str) -> bool:
        """Whether a file is ignored."""
        if not self._latest_first:
            return False
        return self._is_inside(path.rpartition("/")[0]) or self._decides(path, is_folder=False)

    def _is_inside(self, folder: str) -> bool:
        if folder not in self._folders:
            if len(self._folders) >= _CACHED_FOLDERS:
                self._folders = {"": False}
            above = self._is_inside(folder.rpartition("/")[0])
            self._folders[folder] = above or self._decides(folder, is_folder=True)
        return self._folders[folder]

    def _decides(self, path: str, *, is_folder: bool) -> bool:
        for negated, folders_only, paths in self._latest_first:
            if (is_folder or not folders_only) and paths.fullmatch(path):
                return not negated
        return False


def read(data: bytes, allowed: int) -> tuple[Ignored, list[Finding]]:
    """The patterns of the file, and what is wrong with it."""
    if len(data) > allowed:
        return Ignored(), [too_large(IGNORE_FILE, len(data), allowed, SHORTER)]
    try:
        text = data.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as problem:
        return Ignored(), [not_utf8(IGNORE_FILE, data, problem.start)]
    patterns: list[Pattern] = []
    findings: list[Finding] = []
    for number, line in enumerate(text.split("\n"), start=1):
        pattern = _without_spaces(line.removesuffix("\r"))
        if not pattern or pattern.startswith("#"):
            continue
        if len(patterns) == MAX_PATTERNS:
            summary, detail = f"more than {MAX_PATTERNS} patterns", "Name folders instead."
            findings.append(error(Code.TOO_LARGE, FilePosition(IGNORE_FILE, number), summary, detail))
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
    parts = rest.removeprefix("/").split("/")
    if "" in parts:
        raise ValueError("can never match: it holds an empty name")
    if "/" not in rest:
        parts = ["**", rest]
    return Pattern(negated, folders_only, re.compile(_paths(parts), re.DOTALL))


def _paths(parts: list[str]) -> str:
    """The expression for a path, from the names of a pattern."""
    runs = [""]
    for part in parts[:-1]:
        if _FOLDERS.fullmatch(part):
            runs.append("")
        else:
            runs[-1] += _name(part) + "/"
    # "a/**" is what lies in a, not a itself.
    last = ".+" if _FOLDERS.fullmatch(parts[-1]) else _name(parts[-1])
    return _in_turn([*runs[:-1], runs[-1] + last], "(?:[^/]+/)*")


def _in_turn(fixed: list[str], gap: str) -> str:
    """The expression for fixed parts with any number of something between two of them: each at its first place."""
    first, *others = fixed
    middle = [f"(?>{gap}?{part})" for part in others[:-1]]
    return "".join([first, *middle, *(gap + part for part in others[-1:])])


def _without_spaces(line: str) -> str:
    """The line without spaces at its end, except for those that a backslash keeps."""
    kept = line.rstrip(" ")
    slashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if slashes % 2 and len(kept) < len(line) else kept


def _name(glob: str) -> str:
    """The expression for one name of a path."""
    fixed = [""]
    for part in _PARTS.findall(glob):
        if part.startswith("*"):
            fixed.append("")
        else:
            fixed[-1] += _character(part)
    return _in_turn(fixed, "[^/]*")


def _character(part: str) -> str:
    if part == "?":
        return "[^/]"
    if part == "\\":
        raise ValueError("can never match: it ends with a backslash")
    if part == "[":
        raise ValueError("can never match: its [ is not closed")
    return _one_of(part) if part.startswith("[") else re.escape(part[-1])


def _one_of(part: str) -> str:
    inner = part[1:-1]
    negated = inner.startswith(("!", "^"))
    inner = inner[negated:]
    if not inner:
        raise ValueError("can never match: its [ is not closed")  # a ] that comes first is one of the set
    if "[:" in inner:
        raise ValueError("holds a class of characters such as [:alpha:], which is not supported")
    ranges = [(low[-1], (high or low)[-1]) for low, high in _MEMBERS.findall(inner)]
    if any(low > high for low, high in ranges):
        raise ValueError("can never match: it holds a range that ends before it begins")
    members = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in ranges)
    return f"(?!/)[{'^' if negated else ''}{members}]"
