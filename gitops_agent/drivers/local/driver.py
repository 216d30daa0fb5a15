"""The parts of a driver for local processes, put together."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gitops_agent.drivers.api import (
    AS_IT_RUNS,
    Action,
    AgentKey,
    Applied,
    Context,
    ExecResult,
    LogLine,
    Notify,
    Observation,
    ObserveRequest,
    RunAs,
)
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.apply import ProcessApplier
from gitops_agent.drivers.local.cgroup import DelegatedGroup, delegated_parent
from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.environment import Environment
from gitops_agent.drivers.local.exec import ProcessRunner
from gitops_agent.drivers.local.launcher import Launcher
from gitops_agent.drivers.local.log_files import LogFiles, Rotation, read_logs
from gitops_agent.drivers.local.memory_limit import MemoryLimits
from gitops_agent.drivers.local.observe import ProcessObserver
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.local.registry import ReplicaRegistry
from gitops_agent.drivers.local.start import Starter
from gitops_agent.drivers.local.watch import POLL_SECONDS, ProcessWatcher


@dataclass(frozen=True, slots=True)
class Options:
    """What a machine may have differently: log sizes, where ``/proc`` is, our environment, delegated groups."""

    rotation: Rotation = field(default_factory=Rotation)
    watch_every: float = POLL_SECONDS
    proc: str = "/proc"
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    groups: DelegatedGroup | None = field(default_factory=lambda: delegated_parent(Path("/proc/self")))


@dataclass(frozen=True, slots=True)
class LocalDriver:
    """A driver of ``drivers.api`` with all capabilities but leases, for which the host's lock files are right."""

    observer: ProcessObserver
    applier: ProcessApplier
    watcher: ProcessWatcher
    runner: ProcessRunner
    dirs: AgentDir

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Our replicas in the scope, the absence of those on record, and what stands in the way of claims."""
        return self.observer.observe(request)

    def unchanged(self, action: Action) -> bool:
        """Whether the process table is still as planned."""
        return self.applier.unchanged(action)

    def apply(self, action: Action, key: str) -> Applied:  # noqa: ARG002 - the marks make it idempotent
        """Start, stop or replace replicas."""
        return self.applier.apply(action)

    def start(self, notify: Notify) -> None:
        """Begin to notice exits."""
        self.watcher.start(notify)

    def stop(self) -> None:
        """End that."""
        self.watcher.stop()

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """Run a command in the agent's environment; how it ended."""
        return self.runner.run(agent, command, timeout, how)

    def logs(self, agent: AgentKey, lines: int, *, follow: bool = False) -> Iterator[LogLine]:
        """The log files of an agent, also of one that is gone."""
        return read_logs(Path(self.dirs.log(agent, 0)).parent, lines, follow=follow)


def build_context(driver: str, context: Context, options: Options) -> ProcessContext:
    """The objects that the parts of a driver share."""
    dirs = AgentDir(context.state_dir)
    registry = ReplicaRegistry(context.clock.now)
    return ProcessContext(
        driver=driver,
        instance=context.instance,
        clock=context.clock,
        dirs=dirs,
        table=ProcessTable(options.proc),
        registry=registry,
        memory=MemoryLimits(context.instance, options.groups, registry),
        logs=LogFiles(dirs, options.rotation),
        environment=Environment(driver, context.instance, dirs, options.environment),
    )


def build_driver(context: ProcessContext, launcher: Launcher, options: Options) -> LocalDriver:
    """A driver that starts agents by this launcher."""
    observer = ProcessObserver(context, launcher)
    return LocalDriver(
        observer=observer,
        applier=ProcessApplier(context, observer, Starter(context, launcher), launcher),
        watcher=ProcessWatcher(context, observer, options.watch_every),
        runner=ProcessRunner(context.environment, context.registry),
        dirs=context.dirs,
    )
