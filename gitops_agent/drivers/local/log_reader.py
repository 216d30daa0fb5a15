"""Reads log files: the last lines of each, then what is added."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from gitops_agent.drivers.api import LogLine

FOLLOW_SECONDS = 0.3


def read_logs(folder: Path, lines: int, *, follow: bool) -> Iterator[LogLine]:
    """The last lines of every ``*.log`` in a folder; with ``follow`` also what is added, without end."""
    paths = sorted(folder.glob("*.log"))
    offsets = {path: path.stat().st_size for path in paths}
    for path in paths:
        yield from (LogLine(path.stem, line) for line in _tail(path, lines))
    while follow:
        for path in sorted({*offsets, *folder.glob("*.log")}):
            yield from (LogLine(path.stem, line) for line in _added(path, offsets))
        time.sleep(FOLLOW_SECONDS)


def _tail(path: Path, lines: int) -> list[str]:
    with path.open(encoding="utf-8", errors="replace") as log:
        return [line.rstrip("\n") for line in deque(log, maxlen=lines)] if lines else []


def _added(path: Path, offsets: dict[Path, int]) -> list[str]:
    """What was written since the last look; the offset moves on."""
    size, offset = path.stat().st_size, offsets.get(path, 0)
    offsets[path] = size
    begin = 0 if size < offset else offset  # rotated by copy and truncate
    if size <= begin:
        return []
    with path.open(encoding="utf-8", errors="replace") as log:
        log.seek(begin)
        return log.read(size - begin).splitlines()
