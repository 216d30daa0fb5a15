"""Locks on files (``flock``): the kernel releases them however their holder ends, also by ``kill -9``.

A lock belongs to an open file, so it counts across processes, threads and pid namespaces, and child processes do
not inherit it. Lock files are never removed by their holder: two processes could then lock two files of one name.
No link is followed.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW
_PAUSE_SECONDS = 0.01


def open_lock_file(path: Path, *, new: bool = False) -> int:
    """The descriptor of a lock file, made if missing; ``new``: FileExistsError when it is there already."""
    return os.open(path, os.O_RDWR | os.O_CREAT | (os.O_EXCL if new else 0) | _SAFE, 0o600)


def try_lock(handle: int) -> bool:
    """Whether the exclusive lock was free and is ours now."""
    return _flock(handle, fcntl.LOCK_EX)


def lock(handle: int, timeout: float | None = None) -> None:
    """Wait for the exclusive lock: for ever, or TimeoutError after ``timeout`` seconds."""
    if timeout is None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + timeout
    while not try_lock(handle):
        if time.monotonic() >= deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"another process has held the lock for {timeout:g} s")
        time.sleep(_PAUSE_SECONDS)


def is_file_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file; a file that is not there is not locked."""
    try:
        handle = os.open(path, os.O_RDONLY | _SAFE)
    except FileNotFoundError:
        return False
    try:
        return not _flock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, timeout: float | None = None) -> Iterator[int]:
    """Hold the lock of a file meanwhile; gives its descriptor. TimeoutError as in ``lock``."""
    handle = open_lock_file(path)
    try:
        lock(handle, timeout)
        while not is_at(handle, path):
            # The file was replaced while we waited: what we hold is no longer what others ask for.
            os.close(handle)
            handle = open_lock_file(path)
            lock(handle, timeout)
        yield handle
    finally:
        os.close(handle)


def is_at(handle: int, path: Path) -> bool:
    """Whether the open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _flock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
