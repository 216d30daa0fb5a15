"""Control groups, where the machine has delegated some to us.

Being able to write to a group as root does not make it ours: only a group that systemd marked as delegated, or
that belongs to our own unprivileged user, is used. Everywhere else memory is watched instead of confined.
"""

import os
from pathlib import Path
from typing import NamedTuple

from gitops_agent.model.key import AgentKey

_DELEGATED = ("user.delegate", "trusted.delegate")


class DelegatedGroup(NamedTuple):
    """A group below which we may make our own."""

    path: Path
    version: int


class MemoryGroups:
    """Makes one memory group per replica below a delegated parent; does nothing without one."""

    def __init__(self, instance: str, parent: DelegatedGroup | None) -> None:
        self._instance = instance
        self._parent = parent

    def confine(self, agent: AgentKey, replica: int, pid: int, limit: int) -> bool:
        """Put a process below a limit; False when the machine does not let us (memory is then watched)."""
        path = self._path(agent, replica)
        if path is None:
            return False
        try:
            path.mkdir(exist_ok=True)
            self._limit(path, limit)
            (path / "cgroup.procs").write_text(str(pid))
        except OSError:
            self.release(agent, replica)
            return False
        return True

    def confines(self, agent: AgentKey, replica: int, pid: int) -> bool:
        """Whether a process lives in the group of its replica."""
        path = self._path(agent, replica)
        try:
            return path is not None and str(pid) in (path / "cgroup.procs").read_text().split()
        except OSError:
            return False

    def killed(self, agent: AgentKey, replica: int) -> bool:
        """Whether the kernel killed something in the group for want of memory."""
        path = self._path(agent, replica)
        if path is None or self._parent is None:
            return False
        name = "memory.events" if self._parent.version == 2 else "memory.oom_control"
        try:
            lines = (path / name).read_text().splitlines()
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)

    def release(self, agent: AgentKey, replica: int) -> None:
        """Remove the group of a replica that is gone."""
        path = self._path(agent, replica)
        try:
            if path is not None:
                path.rmdir()
        except OSError:
            pass  # never made, or something still lives in it: it is used again by the next start

    def _path(self, agent: AgentKey, replica: int) -> Path | None:
        if self._parent is None:
            return None
        return self._parent.path / f"gitops-agent.{self._instance}.{agent.tenant}.{agent.name}.{replica}"

    def _limit(self, path: Path, limit: int) -> None:
        assert self._parent is not None
        if self._parent.version == 2:
            (path / "memory.max").write_text(str(limit))
            (path / "memory.oom.group").write_text("1")
        else:
            (path / "memory.limit_in_bytes").write_text(str(limit))


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
        if version == 1 and "memory" not in controllers.split(","):
            continue
        mount = _mount(mounts, version)
        if mount is None:
            continue
        group = mount / own.lstrip("/")
        candidates = (group, group.parent) if version == 2 and own != "/" else (group,)
        for candidate in candidates:
            if _is_ours(candidate) and (version == 1 or _passes_memory_on(candidate)):
                return DelegatedGroup(candidate, version)
    return None


def _mount(mounts: list[str], version: int) -> Path | None:
    for line in mounts:
        place, _, system = line.partition(" - ")
        kind, _, options = system.split(" ", 2)
        wanted = kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in options.split(",")
        if wanted:
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


def _passes_memory_on(group: Path) -> bool:
    try:
        return "memory" in (group / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
