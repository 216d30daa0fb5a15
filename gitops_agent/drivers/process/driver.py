"""The process driver, put together."""

from __future__ import annotations

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
from gitops_agent.drivers.local.cgroup import Groups, Parent, delegated_parent
from gitops_agent.drivers.local.environment import Environment
from gitops_agent.drivers.local.log_files import Logs, Rotation
from gitops_agent.drivers.local.log_reader import read_logs
from gitops_agent.drivers.local.memory_limit import Memory
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.process.apply import ProcessApplier
from gitops_agent.drivers.process.context import ProcessContext
from gitops_agent.drivers.process.exec import ProcessRunner
from gitops_agent.drivers.process.observe import ProcessObserver
from gitops_agent.drivers.process.registry import ReplicaRegistry
from gitops_agent.drivers.process.start import Starter
from gitops_agent.drivers.process.watch import EVERY, ProcessWatcher


@dataclass(frozen=True, slots=True)
class Options:
    """What a machine may have differently: log sizes, where ``/proc`` is, our environment, delegated groups."""

    rotation: Rotation = field(default_factory=Rotation)
    watch_every: float = EVERY
    proc: str = "/proc"
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    groups: Parent | None = field(default_factory=lambda: delegated_parent(Path("/proc/self")))


@dataclass(frozen=True, slots=True)
class ProcessDriver:
    """The parts of the process driver behind the calls of ``drivers.api``."""

    observer: ProcessObserver
    applier: ProcessApplier
    watcher: ProcessWatcher
    runner: ProcessRunner
    place: AgentDir

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Our replicas in the scope, the absence of those on record, and what stands in the way of claims."""
        return self.observer.observe(request.scope, request.bases, request.claims)

    def unchanged(self, action: Action) -> bool:
        """Whether the process table is still as planned."""
        return self.applier.unchanged(action)

    def apply(self, action: Action, key: str) -> Applied:
        """Start, stop or replace processes."""
        return self.applier.apply(action, key)

    def start(self, notify: Notify) -> None:
        """Begin to notice exits."""
        self.watcher.start(notify)

    def stop(self) -> None:
        """End that."""
        self.watcher.stop()

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """Run a command in the agent's environment."""
        return self.runner.run(agent, command, timeout, how)

    def logs(self, agent: AgentKey, lines: int, *, follow: bool = False) -> Iterator[LogLine]:
        """The log files of an agent, also of one that is gone."""
        return read_logs(Path(self.place.log(agent, 0)).parent, lines, follow=follow)


def build(context: Context, options: Options) -> ProcessDriver:
    """The process driver with options."""
    place = AgentDir(context.state_dir)
    roster = ReplicaRegistry(context.clock.now)
    kit = ProcessContext(
        instance=context.instance,
        clock=context.clock,
        place=place,
        table=ProcessTable(options.proc),
        roster=roster,
        memory=Memory(Groups(context.instance, options.groups), roster),
        logs=Logs(place, options.rotation),
    )
    environment = Environment(context.instance, place, options.environment)
    observer = ProcessObserver(kit)
    return ProcessDriver(
        observer=observer,
        applier=ProcessApplier(kit, observer, Starter(kit, environment)),
        watcher=ProcessWatcher(kit, observer, options.watch_every),
        runner=ProcessRunner(environment, roster),
        place=place,
    )
