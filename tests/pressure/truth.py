"""What was really running, and when: written down beside gitops-agent, from the process table alone.

Every agent of the campaign appends ``pid version`` to a file of its own when it starts; from then on the kernel is
asked whether that very process is alive. Times are seconds since boot, which no clock that jumps can move.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Span:
    """One process of an agent: from its start to its end, or still there."""

    agent: str
    pid: int
    version: str
    began: float
    ended: float | None = None

    def lived(self, since: float, until: float) -> bool:
        """Whether it was alive at some moment between two."""
        return self.began <= until and (self.ended is None or self.ended >= since)


class Truth:
    """All spans of all agents, kept up to date by a thread."""

    def __init__(self, folder: Path, agents: Iterable[str], pause: float = 0.02) -> None:
        self._files = {agent: folder / f"starts.{agent}" for agent in agents}
        self._read = dict.fromkeys(self._files, 0)
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.spans: dict[str, list[Span]] = {agent: [] for agent in self._files}
        self.problem = ""

    def __enter__(self) -> Truth:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def alive(self, agent: str) -> list[Span]:
        return [span for span in self.spans[agent] if span.ended is None]

    def knows(self, agent: str, pid: int) -> Span | None:
        """The newest span of a pid."""
        return next((span for span in reversed(self.spans[agent]) if span.pid == pid), None)

    def twice(self) -> list[tuple[Span, Span]]:
        """Two processes of one agent that were there at the same time."""
        return [
            (one, other)
            for spans in self.spans.values()
            for one, other in pairwise(spans)
            if one.ended is None or other.began < one.ended - self._pause * 2
        ]

    def all_there(self, versions: Mapping[str, str], since: float, until: float) -> bool:
        """Whether there was a moment between two at which every agent ran, in these versions."""
        chosen = [
            [span for span in self.spans[agent] if span.version == version and span.lived(since, until)]
            for agent, version in versions.items()
        ]
        # If there is such a moment, one is where the last of them began.
        moments = [max(since, span.began) for spans in chosen for span in spans]
        return any(
            all(any(span.lived(moment, moment) for span in spans) for spans in chosen)
            for moment in moments
            if moment <= until
        )

    def _watch(self) -> None:
        try:
            while not self._stop.wait(self._pause):
                self.look()
        except Exception as problem:  # a recorder that died must not pass for a quiet campaign
            self.problem = f"{type(problem).__name__}: {problem}"
            raise

    def look(self, is_alive: Callable[[int], bool] | None = None) -> None:
        is_alive = is_alive or running
        for agent, path in self._files.items():
            for span in self.alive(agent):
                if not is_alive(span.pid):
                    span.ended = now()
            if not path.exists():
                continue
            text = path.read_text()
            for line in text[self._read[agent] :].splitlines():
                pid, _, version = line.partition(" ")
                began = now()
                self.spans[agent].append(
                    Span(agent, int(pid), version, began, None if is_alive(int(pid)) else began)
                )
            self._read[agent] = len(text)


def running(pid: int) -> bool:
    """Whether a process is there and not only waiting to be buried."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
