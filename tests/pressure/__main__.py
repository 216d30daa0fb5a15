"""``python -m tests.pressure``: see ``campaign.py``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.pressure import campaign


def main() -> int:
    parser = argparse.ArgumentParser(
        description=campaign.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=60, help="pushed as fast as they can be")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long everything goes wrong")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="pressure-"))
    print(f"seed {given.seed}: {given.commits} commits, {given.seconds:g} s of pressure, in {folder}", flush=True)
    found = campaign.Campaign(folder, given.seed, commits=given.commits, seconds=given.seconds).play()
    for kind, what in found.problems:
        print(f"{kind.upper()}: {what}")
    print(found)
    if not found.problems and given.folder is None:
        shutil.rmtree(folder)
    return int(bool(found.problems))


if __name__ == "__main__":
    sys.exit(main())
