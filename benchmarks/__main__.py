"""``python -m benchmarks [NAME …]``: run all or some, print one table, fail when a limit is missed.

A ratio compares two things measured in turns within this run, and its name says which: A / B.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from functools import partial
from pathlib import Path

from benchmarks import Row
from benchmarks.table import text_table, write_into
from benchmarks.timing import moment, say, timed

README = Path(__file__).parent.parent / "README.md"

CAPTION = (
    f"Python {platform.python_version()} on {os.cpu_count()} cores. A ratio compares the two things it names, "
    "A / B. Times are medians, both sides measured in turns; memory and ansible-pull are one run each."
)

BENCHMARKS = {
    "help": "benchmarks.command",
    "snapshot": "benchmarks.snapshot",
    "passes": "benchmarks.passes",
    "plan": "benchmarks.planning",
    "processes": "benchmarks.processes",
    "ansible": "benchmarks.beside_ansible",
}
"""What can be asked for by name, quick ones first, and the module whose ``run`` measures it."""


def main() -> int:
    """Run what was asked for; 1 when a limit is missed."""
    asked = _arguments()
    rows: list[Row] = []
    for name in asked.names or BENCHMARKS:
        say(f"== {name}")
        taken = timed(partial(_run, name, rows))
        say(f"== {name}: done in {moment(taken)}")
    print(text_table(rows))
    if asked.write_readme:
        write_into(README, rows, CAPTION)
    over = [row.name for row in rows if not row.holds]
    print(f"{len(over)} over their limit: {'; '.join(over)}" if over else "every limit holds", file=sys.stderr)
    return 1 if over else 0


def _run(name: str, rows: list[Row]) -> None:
    rows.extend(importlib.import_module(BENCHMARKS[name]).run())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *BENCHMARKS], help=", ".join(BENCHMARKS))
    parser.add_argument("--write-readme", action="store_true", help="put the table into README.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
