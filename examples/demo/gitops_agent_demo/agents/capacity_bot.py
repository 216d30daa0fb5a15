"""Watches the disk and warns when less is free than its instructions allow."""

from __future__ import annotations

import os
import shutil

from gitops_agent_demo.agents.body import instructions, live, log
from gitops_agent_demo.agents.rules import first_number


def verdict(free: int, total: int, limit: int) -> str:
    """One line on how much is free, and whether that is enough."""
    percent = 100 * free // max(total, 1)
    return f"{percent} % free: " + ("fine" if percent >= limit else f"WARNING, less than {limit} %")


def main() -> None:
    """Look at the disk until asked to stop."""
    folder, limit = os.environ.get("WATCHED", "/"), first_number(instructions(), default=10)

    def work(_number: int) -> None:
        usage = shutil.disk_usage(folder)
        log(f"capacity-bot: {folder} {verdict(usage.free, usage.total, limit)}")

    live(work, every=2.0)


if __name__ == "__main__":
    main()
