"""Control groups where the machine gave us one: each replica is born into its own, which holds all of it and
limits its memory. Elsewhere its runner holds it together, and the resident size of the tree is watched.

Being able to write to a group as root does not make it ours: only a group that systemd marked as delegated, or
that belongs to our own unprivileged user, is used. Everywhere else memory is watched instead of confined.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gitops_agent.drivers.local.handle import ReplicaHandle
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica, tree_of
from gitops_agent.drivers.local.procfs import Identity
from gitops_agent.model.key import AgentKey

NOWHERE = Path(os.devnull)  # below a device nothing can be made: everything fails there as without permission
_DELEGATED = ("user.delegate", "trusted.delegate")


class DelegatedGroup(NamedTuple):
    """A group below which we may make our own."""

    path: Path
    version: int


class MemoryLimits:
    """Enforces or watches the limits of replicas: one group per replica below a delegated parent."""

    def __init__(self, instance: str, parent: DelegatedGroup | None) -> None:
        self._instance = instance
        self._parent, self._version = parent or DelegatedGroup(NOWHERE, 2)
        self._over: set[Identity] = set()

    def birthplace(self, agent: AgentKey, replica: int) -> str | None:
        """The ``cgroup.procs`` that a replica is to be started in; None where the machine gives us no group."""
        path = self._path(agent, replica)
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            return None
        return str(path / "cgroup.procs")

    def members(self, agent: AgentKey, replica: int) -> set[int]:
        """The pids in the group of a replica, whatever became of its runner and of its marks."""
        words = _words(self._path(agent, replica) / "cgroup.procs")
        return {int(word) for word in words if word.isdigit() and word != "0"}

    def confine(self, agent: AgentKey, replica: ReplicaHandle, limit: int | None) -> bool:
        """Put a running replica below its limit; False when the machine does not let us (it is watched)."""
        if limit is None:
            return False
        path = self._path(agent, replica.number)
        try:
            path.mkdir(exist_ok=True)
            if self._version == 2:
                (path / "memory.max").write_text(str(limit))
                (path / "memory.oom.group").write_text("1")
            else:
                (path / "memory.limit_in_bytes").write_text(str(limit))
            (path / "cgroup.procs").write_text(str(replica.pid))
        except OSError:
            with suppress(OSError):
                path.rmdir()
            return False
        return True

    def confines(self, agent: AgentKey, replica: int, pid: int) -> bool:
        """Whether a process lives in the group of its replica."""
        return str(pid) in _words(self._path(agent, replica) / "cgroup.procs")

    def killed(self, agent: AgentKey, replica: int) -> bool:
        """Whether the kernel killed something in the group for want of memory."""
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        words = _words(self._path(agent, replica) / name)
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
        return self._parent / f"gitops-agent.{self._instance}.{agent.tenant}.{agent.name}.{replica}"


def _words(path: Path) -> list[str]:
    """The words of a small file of the kernel; none when it cannot be read."""
    try:
        return path.read_text().split()
    except OSError:
        return []


def delegated_parent(proc: Path = Path("/proc/self")) -> DelegatedGroup | None:
    """The group below which we may make our own, if the machine gave us one."""
    try:
        memberships = (proc / "cgroup").read_text().splitlines()
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    for line in memberships:
        _, controllers, own = line.split(":", 2)
        version = 2 if not controllers else 1
        mount = _mount(mounts, version)
        if mount is None or (version == 1 and "memory" not in controllers.split(",")):
            continue
        group = mount / own.lstrip("/")
        candidates = (group, group.parent) if version == 2 and own != "/" else (group,)
        for candidate in candidates:
            if _is_ours(candidate) and (version == 1 or "memory" in _words(candidate / "cgroup.subtree_control")):
                return DelegatedGroup(candidate, version)
    return None


def _mount(mounts: list[str], version: int) -> Path | None:
    for line in mounts:
        place, _, system = line.partition(" - ")
        kind, _, options = system.split(" ", 2)
        if kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in options.split(","):
            return Path(place.split(" ")[4])
    return None


def _is_ours(group: Path) -> bool:
    try:
        if 0 != os.geteuid() == group.stat().st_uid:
            return True
        names = set(os.listxattr(group))
        return any(name in names and os.getxattr(group, name) == b"1" for name in _DELEGATED)
    except OSError:
        return False
