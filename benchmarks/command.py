"""The command line itself: how long ``gitops-agent --help`` takes, beside a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys

from benchmarks import Row
from benchmarks.timing import medians, moment, timed

TURNS = 11


def run() -> list[Row]:
    """The time until help is on the screen."""
    bare, taken = medians(
        TURNS,
        lambda: timed(lambda: _python("-c", "pass")),
        lambda: timed(lambda: _python("-m", "gitops_agent", "--help")),
    )
    return [Row("gitops-agent --help", taken, 0.3, "s", note=f"an empty Python takes {moment(bare)}")]


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    print(*run(), sep="\n")
