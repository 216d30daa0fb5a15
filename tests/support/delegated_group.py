"""A control group that is delegated to us for real, as systemd does it: where we are root and the unified
hierarchy is mounted. The kernel counts what is in it; ``run_in`` puts a process of ours there at its begin.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.fleet import signal_pid, until

REASON = "needs root and a mounted unified hierarchy of control groups"


def unified_mount() -> Path | None:
    """Where groups can be made; None where we may not."""
    if os.geteuid() != 0:
        return None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, system = line.partition(" - ")
        where = Path(place.split(" ")[4])
        if system.startswith("cgroup2 ") and os.access(where, os.W_OK) and "rw" in place.split(" ")[5].split(","):
            return where
    return None


@contextmanager
def delegated_group() -> Iterator[Path]:
    """Make a delegated group; in the end whatever runs in it is killed, and it is removed with all below it."""
    mount = unified_mount()
    assert mount is not None, REASON
    group = mount / f"gitops-agent-test-{uuid.uuid4().hex[:10]}"
    group.mkdir()
    try:
        os.setxattr(group, "trusted.delegate", b"1")
        yield group
    finally:
        until(lambda: _removed(group), f"the end of {group}")


def run_in(group: str) -> None:
    """Move this process into a group, which is made if it is not there."""
    Path(group).mkdir(exist_ok=True)
    (Path(group) / "cgroup.procs").write_text("0")


def members(group: Path) -> set[int]:
    """The pids in a group itself."""
    return {int(word) for word in (group / "cgroup.procs").read_text().split()}


def _removed(group: Path) -> bool:
    for each in sorted((path.parent for path in group.rglob("cgroup.procs")), reverse=True):
        for pid in members(each):
            signal_pid(pid)
        with suppress(OSError):
            each.rmdir()
    return not group.exists()
