"""Print the log files of one agent: the last lines, then what is added."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from gitops_agent.cli.common import print_json
from gitops_agent.model.key import AgentKey
from gitops_agent.support.text import escape_control

FOLLOW_PERIOD = 0.3


def print_logs(key: AgentKey, paths: Sequence[Path], lines: int, *, follow: bool, as_json: bool) -> None:
    """Last lines of every replica; with ``follow``, until interrupted."""
    if as_json:
        print_json({"agent": str(key), "logs": [{"file": str(p), "lines": _tail(p, lines)} for p in paths]})
        return
    for path in paths:
        _write(path, _tail(path, lines), len(paths) > 1)
    if follow:
        for path, line in _follow({path: path.stat().st_size for path in paths}):
            _write(path, [line], len(paths) > 1)


def _tail(path: Path, lines: int) -> list[str]:
    with path.open(encoding="utf-8", errors="replace") as log:
        return [line.rstrip("\n") for line in deque(log, maxlen=lines)] if lines else []


def _write(path: Path, lines: Sequence[str], named: bool) -> None:
    prefix = f"{path.stem} | " if named else ""
    # What an agent prints is shown, never obeyed by the terminal.
    sys.stdout.write("".join(f"{prefix}{escape_control(line)}\n" for line in lines))
    sys.stdout.flush()


def _follow(offsets: dict[Path, int]) -> Iterator[tuple[Path, str]]:
    while True:
        for path, offset in offsets.items():
            size = path.stat().st_size
            start = 0 if size < offset else offset  # rotated by copy and truncate
            if size > start:
                with path.open(encoding="utf-8", errors="replace") as log:
                    log.seek(start)
                    for line in log.read(size - start).splitlines():
                        yield path, line
            offsets[path] = size
        time.sleep(FOLLOW_PERIOD)
