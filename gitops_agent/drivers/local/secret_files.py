"""Reads secrets from files. One that does not answer (a dead mount) is waited for once, for a moment, and alone:
until it answers, the next read of it fails at once."""

import errno
import threading
import time
from concurrent.futures import Future
from typing import NamedTuple

from gitops_agent.drivers.local.agent_dir import read_regular
from gitops_agent.support.daemon_pool import DaemonPool

SECRET_CAP_BYTES = 65536
START_SECONDS = 5.0  # for a file that an agent is to be started with
LOOK_SECONDS = 0.25  # for one that is only compared
MAX_HANGING_LOOKS = 16  # more than these together would keep an observation from ending in time
MAX_READS = 64  # side by side
SLOW_SECONDS = 0.5  # then a read no longer counts among these: it keeps its thread, and no other from being read
MAX_HANGING_READS = 1000


class _Read(NamedTuple):
    data: Future[bytes]
    began_at: float


class SecretFiles:
    """The files that hold secrets, read on threads of their own. Shared by threads."""

    def __init__(self) -> None:
        self._pool = DaemonPool("secret-files", MAX_READS, slow_after=SLOW_SECONDS, spare=MAX_HANGING_READS)
        self._lock = threading.Lock()
        self._reads: dict[str, _Read] = {}

    def read(self, path: str) -> bytes:
        """What a file holds, for a start; OSError when it cannot be had within a few seconds."""
        return self._within(START_SECONDS, path)

    def look(self, path: str) -> bytes:
        """What a file holds, for a comparison; OSError when it cannot be had in a moment, or too many cannot."""
        with self._lock:
            hanging = sum(not each.data.done() for each in self._reads.values())
        return self._within(LOOK_SECONDS if hanging < MAX_HANGING_LOOKS else 0.0, path)

    def _within(self, seconds: float, path: str) -> bytes:
        with self._lock:
            read = self._reads.get(path)
            if read is None or read.data.done():  # what answered late may be of long ago
                if not seconds:
                    raise OSError(errno.EBUSY, "too many other secret files do not answer")
                read = self._reads[path] = _Read(self._pool.submit(_content, path), time.monotonic())
        try:
            return read.data.result(max(0.0, read.began_at + seconds - time.monotonic()))
        except TimeoutError:
            if read.data.done():
                raise  # by the file system itself
            late = f"it has not answered for {time.monotonic() - read.began_at:.0f} s"
            raise OSError(errno.ETIMEDOUT, late) from None
        finally:
            with self._lock:
                if read.data.done() and self._reads.get(path) is read:
                    del self._reads[path]


def _content(path: str) -> bytes:
    return read_regular(path, SECRET_CAP_BYTES, flags=0)[0]  # links are followed: secrets are often mounted so
