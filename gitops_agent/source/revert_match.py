"""Whether one difference takes back another. Pure: the text of ``git diff-tree -p -U0 --full-index`` in.

Line numbers do not count, since a revert in the middle of history lands elsewhere in the file; whitespace does,
since in YAML it has meaning.
"""

import re
from collections import Counter
from collections.abc import Iterable

Lines = tuple[tuple[str, str], ...]
_REVERTS = re.compile(r"^\s*This reverts commit ([0-9a-f]{7,64})\b", re.MULTILINE)


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
    parts = list(inverses)
    if not later or not any(parts):
        return False
    if len(parts) == 1 and later == parts[0]:
        return True
    net = _net(later)
    total: Counter[tuple[str, str]] = Counter()
    for part in parts:
        for line, times in _net(part).items():
            total[line] += times
    return bool(net) and net == {line: times for line, times in total.items() if times}


def _net(lines: Lines) -> dict[tuple[str, str], int]:
    count: Counter[tuple[str, str]] = Counter()
    for name, line in lines:
        count[name, line[1:]] += 1 if line.startswith("+") else -1
    return {line: times for line, times in count.items() if times}
