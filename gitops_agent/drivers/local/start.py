"""Starts one replica: its own environment, its log, nothing else of ours but a runner as its parent. The driver's
launcher brings the runner to life: the one thing in which drivers for local processes differ."""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gitops_agent.drivers.local import marks, runner
from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.environment import no_room
from gitops_agent.drivers.local.handle import ReplicaHandle
from gitops_agent.drivers.local.process_tree import ProcessTree, spoken
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.errors import ApplyError
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.support.atomic_file import remove_at, write_atomic_at

TRANSIENT = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.ETXTBSY}
START_SECONDS = 10.0  # for a runner of a driver that does not wait for it
START_PAUSE_SECONDS = 0.002
# Isolated from the agent's folder and variables, without site-packages: it must start anywhere, and fast.
RUNNER_COMMAND = (sys.executable, "-I", "-S", "-X", "utf8", runner.__file__)


@dataclass(frozen=True, slots=True)
class Program:
    """One replica to be started. ``environment`` holds secrets; ``log`` is a descriptor of its log; ``group``: the
    ``cgroup.procs`` that it is born into, or ``-``."""

    agent: AgentKey
    replica: int
    command: tuple[str, ...]
    workdir: str
    environment: Mapping[str, str] = field(repr=False)
    log: int
    group: str = runner.NONE

    def runner(self, report: int | None = None) -> tuple[str, ...]:
        """The command line of its runner, which tells a descriptor how the start went."""
        told = runner.NONE if report is None else str(report)
        return (*RUNNER_COMMAND, told, self.group, *self.command)

    @property
    def runner_environment(self) -> dict[str, str]:
        """What the runner is started with."""
        return marks.for_runner(self.environment)


class Launched(NamedTuple):
    """A replica that was started. ``main``: the agent's own process; None: ask the runner."""

    runner: int
    main: int | None = None


class Launcher:
    """Starts the replicas of one instance as children of ours. A driver with a supervisor has one of its own."""

    def __init__(self, context: ProcessContext) -> None:
        self.context = context

    def launch(self, program: Program) -> Launched:
        """Start the runner of a program as a session leader, and wait until it started the program with exactly
        this environment. OSError when the kernel refused. Here the runner is a child of ours that outlives us:
        fork and exec in C, safe while other threads run."""
        receiver, report = os.pipe()
        try:
            child = subprocess.Popen(
                program.runner(report),
                cwd=program.workdir,
                env=program.runner_environment,
                stdin=subprocess.DEVNULL,
                stdout=program.log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(report,),
            )
            os.close(report)
            report = -1
            told = int(os.read(receiver, 64) or b"0")
        finally:
            os.close(receiver)
            if report >= 0:
                os.close(report)
        if told <= 0:
            child.kill()
            child.wait()
            # It may have been killed before it could tell anything.
            raise OSError(-told or errno.EAGAIN, os.strerror(-told) if told else "its runner was killed")
        # The registry waits for it, and agents outlive us: Popen must neither wait nor warn that it still runs.
        child.returncode = 0
        self.context.registry.adopt_child(child.pid, program.agent, program.replica, told)
        return Launched(child.pid, told)

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
        """Start a replica; ApplyError names what is missing."""
        environment = self.context.environment.build(agent, desired, replica)
        workdir = self.context.environment.workdir(agent, desired)
        log = self._prepare(agent, replica)
        try:
            group = self.context.memory.birthplace(agent, replica) or runner.NONE
            self.context.check_leading()
            launched = self.launch(Program(agent, replica, desired.command, workdir, environment, log, group))
        except OSError as problem:
            failure = _explain(self.context.key(agent), desired.command[0], workdir, problem)
        else:
            return self._settled(launched, replica, desired.spec)
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

    def _settled(self, launched: Launched, replica: int, spec: str) -> ReplicaHandle:
        """The new replica, once its runner tells which process it is.
        One that has ended may be collected already: no start time is then on record, which no process matches."""
        table, deadline = self.context.table, time.monotonic() + START_SECONDS
        main = launched.main
        while main is None and (above := table.one(launched.runner)) is not None and above.alive:
            if (told := spoken(above)) is not None:
                main = told.pid
            elif time.monotonic() >= deadline:
                break
            else:
                time.sleep(START_PAUSE_SECONDS)
        found = table.one(main) if main is not None else None
        start = found.start if found is not None and found.ppid == launched.runner else 0
        return ReplicaHandle(replica, main or launched.runner, start, spec, launched.runner)

    def _prepare(self, agent: AgentKey, replica: int) -> int:
        dirs, logs = self.context.dirs, self.context.logs
        heartbeat = dirs.heartbeat(agent, replica)
        try:
            with dirs.opened(agent, create=True) as folder:
                remove_at(folder, heartbeat.name)  # that of an earlier process is not about this one
                if dirs.has_own_heartbeats:
                    write_atomic_at(folder, heartbeat.name, b"")
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
