"""How things are timed: wall clock, repeated in turns, the median of each.

Turns matter more than repeats: whatever slows the machine for a while slows both sides of a ratio.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median


def timed(work: Callable[[], object]) -> float:
    """Seconds that some work takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def medians(turns: int, *works: Callable[[], float]) -> list[float]:
    """The median of what each work says it took, all of them measured in turns."""
    taken = [[work() for work in works] for _ in range(turns)]
    return [median(column) for column in zip(*taken, strict=True)]


def resident_mib() -> float:
    """The memory this process has in RAM now."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def moment(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def say(text: str) -> None:
    """Progress, on stderr: stdout carries the table."""
    print(text, file=sys.stderr, flush=True)
