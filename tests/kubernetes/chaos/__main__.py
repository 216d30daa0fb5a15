"""``python -m tests.kubernetes.chaos``: see ``campaign.py``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.kubernetes.chaos import campaign
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres


def main() -> int:
    parser = argparse.ArgumentParser(
        description=campaign.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="how long everything goes wrong")
    parser.add_argument("--commits", type=int, default=40, help="spread over that time")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {given.seed}: {given.commits} commits, {given.seconds:g} s of chaos, in {folder}", flush=True)
    with Cluster(lambda line: print(line, flush=True)) as cluster, Postgres() as postgres:
        chaos = campaign.Campaign(
            folder, cluster, postgres, given.seed, commits=given.commits, seconds=given.seconds
        )
        found = chaos.play()
        if found.problems:
            for log in cluster.folder.glob("*.log"):  # of every server, the audit log too
                shutil.copy(log, folder)
    for kind, what in found.problems:
        print(f"{kind.upper()}: {what}")
    print(found)
    if not found.problems and given.folder is None:
        shutil.rmtree(folder)
    return int(bool(found.problems))


if __name__ == "__main__":
    sys.exit(main())
