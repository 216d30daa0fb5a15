"""What a call of the command line does to itself before it begins (``Fleet.call_after``): a full disk, a mount."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys

CANNOT_MOUNT = 77
"""How a call ends that may not mount anything."""

CLONE_NEWNS = 0x20000


def limit_files(size: str) -> None:
    """No file may grow past this many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))


def mount_read_only(place: str) -> None:
    """Make a folder or a file a read-only mount, for this process and what it starts."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS):
        sys.exit(CANNOT_MOUNT)
    private = ["mount", "--make-rprivate", "/"]  # else everybody would have it
    for command in (private, ["mount", "--bind", place, place], ["mount", "-o", "remount,ro,bind", place]):
        if subprocess.run(command, check=False).returncode:
            sys.exit(CANNOT_MOUNT)


def set_busy_seconds(seconds: str) -> None:
    """Wait no longer than this for a journal that another process has locked."""
    from gitops_agent.journal import sqlite

    sqlite.BUSY_SECONDS = float(seconds)
