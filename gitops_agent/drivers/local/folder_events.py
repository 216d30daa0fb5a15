"""Events of the kernel about the folders of agents (inotify): a file in one of them changed, or the folder itself.

Called by its C interface, and not through watchfiles: that starts anew with all folders for each one that comes,
and drops without a word what the kernel could not queue. Folders below (logs, work) are not watched, so whatever
an agent writes there costs nothing.
"""

import ctypes
import os
import struct
from collections.abc import Iterator

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.model.key import AgentKey

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0xC0, 0x100, 0x200
_GONE = 0x400 | 0x800  # deleted or moved itself
_OVERFLOW, _IGNORED, _ONLY_FOLDERS = 0x4000, 0x8000, 0x0100_0000
_MASK = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE | _GONE | _ONLY_FOLDERS
_HEADER = struct.Struct("iIII")
_READ_BYTES = 2**20  # more than the kernel queues by default
_libc = ctypes.CDLL(None, use_errno=True)


class FolderEvents:
    """One inotify instance; a folder that is watched stays so until it is gone. OSError where none can be had."""

    def __init__(self, dirs: AgentDir) -> None:
        self._dirs = dirs
        self._agents: dict[int, AgentKey] = {}
        self._watches: dict[AgentKey, int] = {}
        self.descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def __contains__(self, agent: AgentKey) -> bool:
        return agent in self._watches

    def close(self) -> None:
        """End all watches."""
        os.close(self.descriptor)

    def add(self, agent: AgentKey) -> None:
        """Watch the folder of an agent; OSError when there is none, or no more watches."""
        with self._dirs.opened(agent) as folder:  # which follows no link
            path = f"/proc/self/fd/{folder}".encode()
            watch = _checked(_libc.inotify_add_watch(self.descriptor, path, _MASK))
        self._agents[watch], self._watches[agent] = agent, watch

    def remove(self, agent: AgentKey) -> None:
        """End the watch of an agent, if there is one."""
        watch = self._watches.pop(agent, None)
        if watch is not None:
            del self._agents[watch]
            _libc.inotify_rm_watch(self.descriptor, watch)  # fails when the folder is gone, and the watch with it

    def read(self) -> Iterator[tuple[AgentKey | None, str]]:
        """What changed since the last read: the agent and the name of the file, empty for the folder itself.
        No agent: the kernel could not keep up, and anything may have changed."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            watch, what, _, length = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size + length
            agent = self._agents.get(watch)
            if what & _OVERFLOW:
                yield None, ""
            elif agent is not None:
                if what & (_GONE | _IGNORED):
                    self.remove(agent)
                yield agent, data[offset - length : offset].rstrip(b"\0").decode("utf-8", "surrogateescape")


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
