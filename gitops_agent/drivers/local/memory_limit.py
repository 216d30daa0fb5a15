"""Control groups where the machine delegated one to us: each replica is born into a group of its own, which holds
all of it whatever becomes of its runner and its marks. There the kernel limits its memory, if the delegated group
hands the memory controller on; everywhere else the resident size of the tree is watched.

We never hand a controller on ourselves. The kernel lets no process into a group that does, and systemd starts a
service in the very group that it delegates: with agents that outlive us, our unit could not be restarted.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gitops_agent.drivers.local.handle import ReplicaHandle
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica, tree_of
from gitops_agent.drivers.local.procfs import Identity
from gitops_agent.model.key import AgentKey

NOWHERE = Path(os.devnull)  # below a device nothing can be made: everything fails there as without permission
PREFIX = "replica."
UNLIMITED = "max"
_DELEGATED = ("user.delegate", "trusted.delegate")
_UNITS = (".service", ".scope", ".slice")


class MemoryLimits:
    """Enforces or watches the limits of replicas: one group each below a delegated parent. ``driver``: whose
    replicas, where names have that: what belongs to one driver is not ended with what belongs to another."""

    def __init__(self, instance: str, parent: Path | None, driver: str = "") -> None:
        self._instance = instance
        self._of_driver = f".{driver}" if driver else ""
        self._parent = parent or NOWHERE
        self._over: set[Identity] = set()

    def birthplace(self, agent: AgentKey, replica: int) -> str | None:
        """The ``cgroup.procs`` that a replica is to be started in; None where the machine gives us no group."""
        path = self._path(agent, replica)
        # A new one where it is empty: what the kernel counted in the old one is of an earlier process.
        with suppress(OSError):
            path.rmdir()
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            return None
        return str(path / "cgroup.procs")

    def members(self, agent: AgentKey, replica: int) -> set[int]:
        """The pids in the group of a replica and in those that it made below, whatever became of its marks."""
        # Unlike a glob, a walk does not mind a folder that is removed meanwhile.
        folders = (Path(folder) for folder, _, _ in os.walk(self._path(agent, replica)))
        found = (word for folder in folders for word in _words(folder / "cgroup.procs"))
        return {int(word) for word in found if word.isdigit() and word != "0"}

    def confine(self, agent: AgentKey, replica: ReplicaHandle, limit: int | None) -> bool:
        """Put a running replica below its limit, or below none; False when the kernel does not hold it: it is
        watched."""
        path = self._path(agent, replica.number)
        try:
            if limit is None:
                (path / "memory.max").write_text(UNLIMITED)
                return False
            path.mkdir(exist_ok=True)
            (path / "memory.max").write_text(str(limit))
            (path / "memory.oom.group").write_text("1")
            (path / "cgroup.procs").write_text(str(replica.pid))
        except OSError:
            with suppress(OSError):
                path.rmdir()
            return False
        return True

    def confines(self, agent: AgentKey, replica: int, pid: int) -> bool:
        """Whether the kernel limits the memory of a process by the group of its replica."""
        limit = _words(self._path(agent, replica) / "memory.max")
        return limit not in ([], [UNLIMITED]) and pid in self.members(agent, replica)

    def killed(self, agent: AgentKey, replica: int) -> bool:
        """Whether the kernel killed something in the group for want of memory."""
        words = _words(self._path(agent, replica) / "memory.events")
        return "oom_kill" in words and words[words.index("oom_kill") + 1] != "0"

    def release(self, replica: Replica) -> None:
        """Remove the group of a replica that is gone."""
        self._over.discard(replica.proc.identity)
        # Never made, or something still lives in it: it is used again by the next start.
        with suppress(OSError):
            self._path(replica.agent, replica.number).rmdir()

    def over(self, replicas: Sequence[Replica], limit: int | None, tree: ProcessTree) -> list[Replica]:
        """The replicas that are, or once were, above the limit. Once is enough: they are due for a restart."""
        if limit is None:
            return []
        for replica in replicas:
            used = sum(proc.rss for proc in tree_of(replica, replicas, tree))
            # The kernel counts better than we do: shared pages once, not once per process.
            if used > limit and not self.confines(replica.agent, replica.number, replica.proc.pid):
                self._over.add(replica.proc.identity)
        return [replica for replica in replicas if replica.proc.identity in self._over]

    def _path(self, agent: AgentKey, replica: int) -> Path:
        return self._parent / f"{PREFIX}{self._instance}.{agent.tenant}.{agent.name}.{replica}{self._of_driver}"


def _words(path: Path) -> list[str]:
    """The words of a small file of the kernel; none when it cannot be read."""
    try:
        return path.read_text().split()
    except OSError:
        return []


def delegated_parent(proc: Path = Path("/proc/self")) -> Path | None:
    """The group below which we may make our own, if the machine gave us one: that which we run in, or the one
    above where we were put into a part of it."""
    try:
        memberships = (proc / "cgroup").read_text().splitlines()
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    own = next((line.removeprefix("0::") for line in memberships if line.startswith("0::")), None)
    mount = next(filter(None, map(_mount, mounts)), None)
    if own is None or mount is None:
        return None
    group = mount / own.lstrip("/")
    if group.name.startswith(PREFIX):
        return None  # we are part of an agent, and what we start must not leave it
    # What is above a unit belongs to the systemd that made the unit.
    candidates = (group,) if own == "/" or group.suffix in _UNITS else (group, group.parent)
    return next(filter(_is_ours, candidates), None)


def _mount(line: str) -> Path | None:
    """Where the unified hierarchy is, if this mount is it."""
    place, _, system = line.partition(" - ")
    return Path(place.split(" ")[4]) if system.startswith("cgroup2 ") else None


def _is_ours(group: Path) -> bool:
    """Whether a group was delegated to us: systemd marked it, or it belongs to our own unprivileged user and the
    one above does not. To be able to write to it, as root or as the user of a session, does not make it ours."""
    try:
        names = set(os.listxattr(group))
        if any(name in names and os.getxattr(group, name) == b"1" for name in _DELEGATED):
            return True
        return 0 != os.geteuid() == group.stat().st_uid != group.parent.stat().st_uid
    except OSError:
        return False
