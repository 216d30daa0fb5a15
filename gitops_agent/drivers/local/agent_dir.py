"""Where local drivers keep the files of an agent, and how they touch them without following planted links.

Agents run as our user and may write to their own folder, so every step below the state directory is opened with
``O_NOFOLLOW``: a link that an agent plants there is an obstacle, never a way out.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gitops_agent.model.key import AgentKey

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

BUNDLE = "config.json"
BUNDLE_CAP_BYTES = 16 * 2**20
OUR_LIMITS = "see the limits of gitops-agent (open files, memory) and the disk"
TRANSIENT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.EAGAIN}
"""Errors that are about this moment and this machine, and not about what is there."""


class AgentDir:
    """The files of every agent of one instance, below its state directory. ``driver``: whose replicas they are of,
    where it names its own: an agent that moves from one local driver to another runs in both for a while."""

    def __init__(self, state_dir: str, driver: str = "") -> None:
        self.root = Path(state_dir).absolute()
        self._agents = f"{self.root}/agents"
        self._of_driver = f"{driver}-" if driver else ""

    def folder(self, agent: AgentKey) -> Path:
        """The agent's own folder."""
        return Path(self._agents, *agent)

    # Text, not Path: every observation names these files, and parsing their paths was most of its cost.

    def config(self, agent: AgentKey) -> str:
        """The bundle of the agent (``MANAGED_AGENT_CONFIG``)."""
        return f"{self._agents}/{agent.tenant}/{agent.name}/{BUNDLE}"

    def work(self, agent: AgentKey) -> str:
        """The working directory of an agent that declares none."""
        return f"{self._agents}/{agent.tenant}/{agent.name}/work"

    def log(self, agent: AgentKey, replica: int) -> str:
        """Where a replica's output goes."""
        return f"{self._agents}/{agent.tenant}/{agent.name}/logs/{replica}.log"

    def heartbeat(self, agent: AgentKey, replica: int) -> Path:
        """The file that a replica reports its progress in (``MANAGED_AGENT_HEARTBEAT``)."""
        return Path(self.heartbeat_file(agent, replica))

    def heartbeat_file(self, agent: AgentKey, replica: int) -> str:
        """The same as text."""
        return f"{self._agents}/{agent.tenant}/{agent.name}/heartbeat-{self._of_driver}{replica}.json"

    @property
    def has_own_heartbeats(self) -> bool:
        """Whether heartbeats are named by the driver."""
        return bool(self._of_driver)

    def unnamed_heartbeat(self, agent: AgentKey, replica: int) -> Path:
        """The file that replicas of an earlier version report in, whatever their driver."""
        return self.folder(agent) / f"heartbeat-{replica}.json"

    @contextmanager
    def opened(self, agent: AgentKey, *below: str, create: bool = False) -> Iterator[int]:
        """The agent's folder (or one below it) as a descriptor; OSError when a link or nothing is there."""
        if create:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.root / "agents").mkdir(mode=0o700, exist_ok=True)
        handle = os.open(self._agents, _FOLDER)
        try:
            for part in (*agent, *below):
                if create:
                    with suppress(FileExistsError):  # opened below, which refuses anything but a real folder
                        os.mkdir(part, 0o700, dir_fd=handle)
                step = os.open(part, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = step
            yield handle
        finally:
            os.close(handle)

    def used_at(self, agent: AgentKey) -> float:
        """When its folder last changed (its bundle came or went, a replica wrote); infinite when it is closed."""
        newest = 0.0
        try:
            for below in ((), ("logs",)):
                with self.opened(agent, *below) as folder, os.scandir(folder) as entries:
                    times = [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
                    newest = max(newest, os.fstat(folder).st_mtime, *times)
        except OSError:
            return newest or float("inf")  # one that never started has no logs
        return newest

    def remove(self, agent: AgentKey) -> None:
        """Remove an agent's folder with all that it wrote, and the tenant's when it was the last one. Links are
        removed, never followed."""
        with self.opened_tenant(agent) as tenant:
            shutil.rmtree(agent.name, dir_fd=tenant)
        with suppress(OSError):  # it has other agents
            Path(self._agents, agent.tenant).rmdir()

    @contextmanager
    def opened_tenant(self, agent: AgentKey) -> Iterator[int]:
        """The folder of an agent's tenant as a descriptor."""
        root = os.open(self._agents, _FOLDER)
        try:
            handle = os.open(agent.tenant, _FOLDER, dir_fd=root)
        finally:
            os.close(root)
        try:
            yield handle
        finally:
            os.close(handle)

    def agents(self) -> Iterator[AgentKey]:
        """Every agent that has a folder here."""
        for tenant in _subfolders(self._agents):
            for name in _subfolders(f"{self._agents}/{tenant}"):
                yield AgentKey(tenant, name)


def is_bundle_or_heartbeat(name: str) -> bool:
    """Whether a file in the folder of an agent is its bundle or a heartbeat."""
    return name == BUNDLE or (name.startswith("heartbeat-") and name.endswith(".json"))


def _subfolders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_regular(
    name: str, cap: int, folder: int | None = None, flags: int = os.O_NOFOLLOW
) -> tuple[bytes, os.stat_result]:
    """The content of a small regular file; OSError for links, devices, pipes and files above the cap."""
    # Not blocking: a pipe would keep us waiting for a writer, for ever.
    handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")
        data = os.read(handle, cap + 1)
    finally:
        os.close(handle)
    if len(data) > cap:
        raise OSError(f"larger than {cap} bytes")
    return data, found
