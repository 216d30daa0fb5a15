"""The process table, read in one sweep.

psutil answers every question about one process well, but opens several files for each: for 390 processes its
``process_iter`` takes 83 ms, this sweep 13 ms, and a fleet is observed every few seconds. So the sweep reads one
``stat`` per process and remembers the marks of those it has seen. The remembered marks are keyed by start time and
by the memory addresses of arguments and environment, which the kernel moves at every exec: a process that becomes
another program is read again, one that overwrites its own environment (setproctitle) stays known.
"""

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

from gitops_agent.drivers.local.agent_dir import OUR_LIMITS
from gitops_agent.drivers.local.marks import Marks, read_marks
from gitops_agent.errors import ObserveError

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
GONE_OR_HIDDEN = (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM)
_STATUSES = {"T": "Suspended", "t": "Traced"}
_CLOCK_READINGS = 5
KERNEL_THREADS_PID = 2  # the parent of every kernel thread

Table = Mapping[int, "ProcessInfo"]
Identity = tuple[int, int]
"""Pid and start time, in clock ticks since boot: together they name a process for ever."""


class ProcessInfo(NamedTuple):
    """One process. ``name``: what the kernel calls it, which it may change; by that a runner speaks."""

    pid: int
    state: str
    ppid: int
    group: int
    session: int
    start: int
    rss: int
    marks: Marks | None
    name: bytes = b""

    @property
    def identity(self) -> Identity:
        """What tells it from every other process, also from a later one with its pid."""
        return (self.pid, self.start)

    def started_at(self, booted: float) -> float:
        """When it started, by the wall clock on which the machine ``booted``."""
        return booted + self.start / TICKS_PER_SECOND

    @property
    def alive(self) -> bool:
        """Whether it runs or could; a zombie is dead."""
        return self.state not in "ZX"

    @property
    def status(self) -> str:
        """Suspended (by SIGSTOP), Traced (a debugger holds it) or Running."""
        return _STATUSES.get(self.state, "Running")


class ProcessTable:
    """Sweeps ``/proc``. Shared by threads; every sweep is a value of its own."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._lock = threading.Lock()
        self._marks: dict[int, tuple[tuple[int, bytes], Marks | None]] = {}

    def sweep(self) -> dict[int, ProcessInfo]:
        """Every process that exists now; ObserveError when the table cannot be read whole."""
        try:
            with os.scandir(self._root) as entries:
                names = [entry.name for entry in entries if entry.name.isdigit()]
        except OSError as problem:
            hint = "mount procfs and give us access to it"
            raise ObserveError(f"cannot list {self._root}: {problem.strerror}", hint=hint) from None
        if not names:
            raise ObserveError(f"{self._root} lists no process at all", hint=f"mount procfs on {self._root}")
        with self._lock:
            found: dict[int, ProcessInfo] = {}
            for name in names:
                if (proc := self._read(name, found)) is not None:
                    found[proc.pid] = proc
            for pid in self._marks.keys() - found.keys():
                del self._marks[pid]
        return found

    def one(self, pid: int) -> ProcessInfo | None:
        """One process, if it exists; ObserveError when it cannot be known."""
        with self._lock:
            return self._read(str(pid), {})

    def find(self, identity: Identity) -> ProcessInfo | None:
        """Exactly this process, perhaps as a zombie; None when it is gone, whatever has its pid now."""
        found = self.one(identity[0])
        return found if found is not None and found.start == identity[1] else None

    def is_alive(self, identity: Identity) -> bool:
        """Whether exactly this process still runs."""
        found = self.find(identity)
        return found is not None and found.alive

    def is_suspended(self, pid: int) -> bool:
        """Whether a process is suspended; a small read, for a look at thousands. Not so when it is gone."""
        try:
            line = _slurp(f"{self._root}/{pid}/stat", once=True) or b""
        except ObserveError:
            return False
        end = line.rfind(b") ")
        return line[end + 2 : end + 3] == b"T"

    def exists(self, pid: int) -> bool:
        """Whether there is such a process; for a look at thousands."""
        return os.path.exists(f"{self._root}/{pid}")  # noqa: PTH110

    def environ(self, pid: int) -> bytes | None:
        """The environment block of a process; None when it is gone or not ours to see."""
        return _slurp(f"{self._root}/{pid}/environ")

    def command_line(self, pid: int) -> tuple[str, ...]:
        """The arguments of a process; empty when it is gone or not ours to see."""
        data = _slurp(f"{self._root}/{pid}/cmdline")
        return tuple(os.fsdecode(data.removesuffix(b"\0")).split("\0")) if data else ()

    def working_directory(self, pid: int) -> str:
        """Where a process is, although the folder may be gone; empty when it is gone or not ours to see."""
        path = f"{self._root}/{pid}/cwd"
        try:
            return os.readlink(path).removesuffix(" (deleted)")  # noqa: PTH115 - text is compared with text
        except OSError as problem:
            _gone_or_hidden(path, problem)
            return ""

    def _read(self, name: str, swept: Table) -> ProcessInfo | None:
        line = _slurp(f"{self._root}/{name}/stat", once=True)
        if not line:
            return None
        # The second field is the program's name in parentheses and may hold anything, parentheses included.
        end = line.rindex(b")")
        fields = line[end + 2 :].split()
        pid, state, start = int(name), fields[0].decode(), int(fields[19])
        ppid, group, session, rss = int(fields[1]), int(fields[2]), int(fields[3]), int(fields[21]) * PAGE_BYTES
        above = swept.get(ppid)
        if ppid == KERNEL_THREADS_PID:
            marks = None
        elif above is not None and above.marks is not None and above.marks.runner:
            # What a runner is the parent of belongs to its replica, whatever its environment says by now.
            marks = above.marks.of_agent
        else:
            marks = self._marks_of(pid, state, start, b" ".join(fields[45:49]))
        return ProcessInfo(pid, state, ppid, group, session, start, rss, marks, line[line.index(b"(") + 1 : end])

    def _marks_of(self, pid: int, state: str, start: int, addresses: bytes) -> Marks | None:
        known = self._marks.get(pid)
        if known is not None and known[0][0] == start and (known[0][1] == addresses or state in "ZX"):
            return known[1]
        environ = self.environ(pid)
        if environ is None:
            return None  # not remembered: it may be readable in the next sweep
        marks = read_marks(environ)
        self._marks[pid] = ((start, addresses), marks)
        return marks


def age_of(proc: ProcessInfo) -> float:
    """For how many seconds a process has run."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - proc.start / TICKS_PER_SECOND


def booted_at(now: Callable[[], float]) -> float:
    """When this machine was booted, by the wall clock ``now``: the same number until that clock is set, also in
    another process. Two clocks are never read at one moment, so of a few readings the closest counts, rounded."""
    readings = []
    for _ in range(_CLOCK_READINGS):
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        wall = now()
        readings.append((time.clock_gettime(time.CLOCK_BOOTTIME) - before, wall - before))
    return round(min(readings)[1], 1)


def _slurp(path: str, *, once: bool = False) -> bytes | None:
    """A file of procfs; None when the process is gone or not ours to see, ObserveError when it cannot be known.
    ``once``: one read gives all of it (a ``stat`` is one line)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(handle, 65536)
            while not once and (part := os.read(handle, 65536)):
                data += part
            return data
        finally:
            os.close(handle)
    except OSError as problem:
        _gone_or_hidden(path, problem)
        return None


def _gone_or_hidden(path: str, problem: OSError) -> None:
    """Raise ObserveError for any other problem: without descriptors or memory, the process may well be there."""
    if problem.errno not in GONE_OR_HIDDEN:
        raise ObserveError(f"cannot read {path}: {problem.strerror}", hint=OUR_LIMITS) from None


class Host(NamedTuple):
    """Which life of which machine (or container) pids belong to."""

    boot: str
    pid_namespace: str


@cache
def this_host() -> Host:
    """The boot and the pid namespace we are in: the same as long as we live."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, PermissionError):
        boot = str(int(psutil.boot_time()))
    except OSError as problem:
        # Never another name for the same boot: all we know of our processes would be lost.
        raise ObserveError(f"cannot read the id of this boot: {problem.strerror}", hint=OUR_LIMITS) from None
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except (FileNotFoundError, PermissionError):
        namespace = ""
    return Host(boot, namespace)
