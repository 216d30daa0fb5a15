"""Starts one replica: its own environment, its log, nothing else of ours. The driver's launcher brings the program
to life: the one thing in which drivers for local processes differ."""

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.environment import no_room
from gitops_agent.drivers.local.handle import ReplicaHandle
from gitops_agent.drivers.local.process_tree import ProcessTree
from gitops_agent.drivers.local.procfs import ProcessInfo
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.errors import ApplyError
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.support.atomic_file import remove_at

TRANSIENT = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.ETXTBSY}
SETTLE_TRIES = 50
SETTLE_PAUSE_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Program:
    """One replica to be started. ``environment`` holds secrets; ``log`` is a descriptor of its log."""

    agent: AgentKey
    replica: int
    command: tuple[str, ...]
    workdir: str
    environment: Mapping[str, str] = field(repr=False)
    log: int


class Launcher:
    """Starts the replicas of one instance as children of ours. A driver with a supervisor has one of its own."""

    def __init__(self, context: ProcessContext) -> None:
        self.context = context

    def launch(self, program: Program) -> int:
        """Start the program with exactly this environment, as a session leader; its pid. OSError when the kernel
        refused. Here it is a child of ours that outlives us: fork and exec in C, safe while other threads run."""
        child = subprocess.Popen(
            program.command,
            cwd=program.workdir,
            env=program.environment,
            stdin=subprocess.DEVNULL,
            stdout=program.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # The registry waits for it, and agents outlive us: Popen must neither wait nor warn that it still runs.
        child.returncode = 0
        # First of all: should anything fail from here on, it is still ours to reap, and its marks tell the rest.
        self.context.registry.adopt_child(child.pid, program.agent, program.replica)
        return child.pid

    def may_run_agents(self) -> bool:
        """Whether something started by this driver may run: False saves a sweep where no record asks for one."""
        return True

    def unsupervised(self, tree: ProcessTree) -> Collection[int]:  # noqa: ARG002 - the default has no supervisor
        """The pids of replicas that run outside of what they were started in, and must be replaced.
        Called once per observation, before anything is assessed; ObserveError when it cannot be known."""
        return ()

    def release(self, agent: AgentKey, first: int) -> None:
        """Remove what is left of the ended replicas numbered ``first`` and above."""

    def shown(self, agent: AgentKey) -> Mapping[str, Any]:  # noqa: ARG002 - as above
        """More for ``Observation.live``."""
        return {}

    def start(self, agent: AgentKey, desired: Desired, replica: int) -> ReplicaHandle:
        """Start a replica and wait until its marks can be seen; ApplyError names what is missing."""
        environment = self.context.environment.build(agent, desired, replica)
        workdir = self.context.environment.workdir(agent, desired)
        log = self._prepare(agent, replica)
        try:
            pid = self.launch(Program(agent, replica, desired.command, workdir, environment, log))
        except OSError as problem:
            failure = _explain(self.context.key(agent), desired.command[0], workdir, problem)
        else:
            found = self._settled(pid)
            return ReplicaHandle(replica, pid, found.start if found else 0, desired.spec)
        finally:
            os.close(log)
        # Raised out here: no traceback leads to a frame that holds the environment.
        raise failure

    def check(self, agent: AgentKey, desired: Desired, replica: int) -> None:
        """ApplyError for what a start would certainly fail at: asked before anything that runs is stopped."""
        path = self.context.environment.build(agent, desired, replica)["PATH"]
        workdir = self.context.environment.workdir(agent, desired)
        problem = obstacle(desired.command[0], workdir, path)
        if problem is not None:
            raise _explain(self.context.key(agent), desired.command[0], workdir, problem)

    def _settled(self, pid: int) -> ProcessInfo | None:
        """The new process, once its marks can be seen.
        The kernel reports a successful exec shortly before it publishes the environment: a look in between
        would see an unmarked process. A program that hides its environment is waited for in vain, and shortly. One
        that has ended may be reaped already: no start time is then on record, which no process ever matches."""
        for _ in range(SETTLE_TRIES):
            found = self.context.table.one(pid)
            if found is None or found.marks is not None or not found.alive:
                break
            time.sleep(SETTLE_PAUSE_SECONDS)
        return found

    def _prepare(self, agent: AgentKey, replica: int) -> int:
        dirs, logs = self.context.dirs, self.context.logs
        heartbeat = dirs.heartbeat(agent, replica)
        try:
            with dirs.opened(agent, create=True) as folder:
                remove_at(folder, heartbeat.name)  # that of an earlier process is not about this one
            logs.rotate(agent, replica)
            return logs.open(agent, replica)
        except OSError as problem:
            raise no_room(self.context.key(agent), str(heartbeat.parent), problem) from None


def obstacle(program: str, workdir: str, path: str) -> OSError | None:
    """What would keep the kernel from entering the program, as far as can be known without trying."""
    if not os.path.isdir(workdir):  # noqa: PTH112 - the path comes from a document
        return FileNotFoundError(errno.ENOENT, "no such folder")
    if "/" in program:
        file = os.path.join(workdir, program)  # noqa: PTH118
        if not os.path.exists(file):  # noqa: PTH110
            return FileNotFoundError(errno.ENOENT, "no such file")
        return None if os.access(file, os.X_OK) else PermissionError(errno.EACCES, "not executable")
    absolute = all(os.path.isabs(folder) for folder in path.split(os.pathsep))  # noqa: PTH117
    if absolute and shutil.which(program, path=path) is None:
        return FileNotFoundError(errno.ENOENT, "not on PATH")
    return None


def _explain(key: ResourceKey, program: str, workdir: str, problem: OSError) -> ApplyError:
    if not os.path.isdir(workdir):  # noqa: PTH112 - the path comes from a document
        what = f"runtime.workdir {workdir} is not a folder"
        hint = "create it, or correct runtime.workdir"
    elif problem.errno == errno.ENOENT:
        what = f"runtime.command: {program!r} was not found"
        hint = "install it, give its full path, or correct runtime.command; a script also needs its interpreter"
    elif problem.errno in (errno.EACCES, errno.ENOEXEC):
        what = f"runtime.command: {program!r} cannot be executed ({problem.strerror})"
        hint = "make it executable, and give a script a first line such as #!/usr/bin/env python3"
    else:
        what = f"runtime.command: {program!r} did not start ({problem.strerror})"
        hint = "see the limits of this machine (processes, memory, open files, argument size)"
    return ApplyError(f"{key}: {what}", hint=hint, permanent=problem.errno not in TRANSIENT)
