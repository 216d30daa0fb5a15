"""Output of agents: append-mode files, rotated by copy and truncate.

The agent holds the file itself, so it keeps writing while we are down; a pipe to us would block or kill it. Only
the newest part of an oversized file is kept, so that a flood costs a bounded amount of disk. Read for ``logs``.
"""

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gitops_agent.drivers.api import LogLine
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.model.key import AgentKey
from gitops_agent.support.atomic_file import remove_at

# Not blocking: a pipe that an agent put there would otherwise keep us waiting for a reader, for ever.
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLLOW_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a log is rotated and how many older ones are kept."""

    size: int = 10 * 2**20
    keep: int = 3


class LogFiles:
    """The log files of every agent."""

    def __init__(self, dirs: AgentDir, rotation: Rotation) -> None:
        self._dirs = dirs
        self._rotation = rotation

    def open(self, agent: AgentKey, replica: int) -> int:
        """A descriptor that appends to a replica's log; the caller closes it."""
        with self._dirs.opened(agent, "logs", create=True) as folder:
            handle = os.open(f"{replica}.log", _APPEND, 0o600, dir_fd=folder)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.set_blocking(handle, True)
            return handle
        os.close(handle)
        raise OSError(errno.EINVAL, f"{replica}.log is not a regular file")

    def rotate(self, agent: AgentKey, replica: int) -> bool:
        """Rotate if it is due; whether it was. A log that cannot be rotated is never a reason to fail."""
        try:
            found = os.lstat(self._dirs.log(agent, replica))
            if found.st_size <= self._rotation.size:
                return False
            with self._dirs.opened(agent, "logs") as folder:
                self._turn(folder, f"{replica}.log")
        except OSError:
            return False
        return True

    def _turn(self, folder: int, name: str) -> None:
        handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            for older in range(self._rotation.keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    os.rename(f"{name}.{older}", f"{name}.{older + 1}", src_dir_fd=folder, dst_dir_fd=folder)
            if self._rotation.keep > 0:
                self._copy_tail(folder, handle, f"{name}.1")
        finally:
            # Truncated even if the copy failed: on a full disk the flood must end first.
            os.ftruncate(handle, 0)
            os.close(handle)

    def _copy_tail(self, folder: int, source: int, name: str) -> None:
        remove_at(folder, name)
        end = os.fstat(source).st_size
        position = max(0, end - self._rotation.size)
        with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=folder), "wb") as target:
            while sent := os.sendfile(target.fileno(), source, position, end - position):
                position += sent


def read_logs(folder: Path, lines: int, *, follow: bool) -> Iterator[LogLine]:
    """The last lines of every ``*.log`` in a folder; with ``follow`` also what is added, without end."""
    paths = sorted(folder.glob("*.log"))
    offsets = {path: path.stat().st_size for path in paths}
    for path in paths:
        yield from (LogLine(path.stem, line) for line in _tail(path, lines))
    while follow:
        for path in sorted({*offsets, *folder.glob("*.log")}):
            yield from (LogLine(path.stem, line) for line in _added(path, offsets))
        time.sleep(FOLLOW_SECONDS)


def _tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log, also when it was rotated just now and they are in the file before."""
    found: list[str] = []
    for each in (path, path.with_name(f"{path.name}.1")):
        if len(found) < lines and each.exists():
            with each.open(encoding="utf-8", errors="replace") as log:
                found = [line.rstrip("\n") for line in deque(log, lines - len(found))] + found
    return found


def _added(path: Path, offsets: dict[Path, int]) -> list[str]:
    """What was written since the last look; the offset moves on."""
    size, offset = path.stat().st_size, offsets.get(path, 0)
    offsets[path] = size
    begin = 0 if size < offset else offset  # rotated by copy and truncate
    if size <= begin:
        return []
    with path.open(encoding="utf-8", errors="replace") as log:
        log.seek(begin)
        return log.read(size - begin).splitlines()
