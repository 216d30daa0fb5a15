"""Puts the parts of a driver for local processes together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.apply import ProcessApplier
from gitops_agent.drivers.local.cgroup import DelegatedGroup, MemoryGroups, delegated_parent
from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.environment import Environment
from gitops_agent.drivers.local.exec import ProcessRunner
from gitops_agent.drivers.local.launcher import Launcher
from gitops_agent.drivers.local.log_files import LogFiles, Rotation
from gitops_agent.drivers.local.memory_limit import MemoryLimits
from gitops_agent.drivers.local.observe import ProcessObserver
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.local.registry import ReplicaRegistry
from gitops_agent.drivers.local.spec import runtime_resources
from gitops_agent.drivers.local.start import Starter
from gitops_agent.drivers.local.watch import POLL_SECONDS, ProcessWatcher
from gitops_agent.model.agent import Resource
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.key import AgentKey
from gitops_agent.ports import Clock, Driver, DriverContext


@dataclass(frozen=True, slots=True)
class Options:
    """What a machine may have differently: log sizes, where ``/proc`` is, our environment, delegated groups."""

    rotation: Rotation = field(default_factory=Rotation)
    watch_every: float = POLL_SECONDS
    proc: str = "/proc"
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    groups: DelegatedGroup | None = field(default_factory=lambda: delegated_parent(Path("/proc/self")))


def build_context(driver: str, workplace: DriverContext, clock: Clock, options: Options) -> ProcessContext:
    """The objects that the parts of a driver share."""
    dirs = AgentDir(workplace.state_dir)
    registry = ReplicaRegistry(clock.now)
    return ProcessContext(
        driver=driver,
        instance=workplace.instance,
        clock=clock,
        dirs=dirs,
        table=ProcessTable(options.proc),
        registry=registry,
        memory=MemoryLimits(MemoryGroups(workplace.instance, options.groups), registry),
        logs=LogFiles(dirs, options.rotation),
        environment=Environment(driver, workplace.instance, dirs, options.environment),
    )


def build_driver(context: ProcessContext, launcher: Launcher, options: Options) -> Driver:
    """A driver that starts agents by this launcher."""
    observer = ProcessObserver(context, launcher)

    def resources(agent: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
        return runtime_resources(context.driver, agent, document)

    return Driver(
        name=context.driver,
        compile=resources,
        observer=observer,
        applier=ProcessApplier(context, observer, Starter(context, launcher), launcher),
        watcher=ProcessWatcher(context, observer, options.watch_every),
        runner=ProcessRunner(context.environment, context.registry),
    )
