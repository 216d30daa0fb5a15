"""Objects shared by the parts of a driver for local processes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gitops_agent.drivers.api import AgentKey, Context, NotYet, ResourceKey
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.environment import Environment
from gitops_agent.drivers.local.log_files import LogFiles, Rotation
from gitops_agent.drivers.local.marks import UNNAMED_DRIVER
from gitops_agent.drivers.local.memory_limit import MemoryLimits, delegated_parent
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.local.registry import ReplicaRegistry
from gitops_agent.drivers.local.rotated_secrets import RotatedSecrets
from gitops_agent.drivers.local.spec import runtime_key


@dataclass(frozen=True, slots=True)
class Options:
    """What a machine may have differently: log sizes, where ``/proc`` is, our environment, delegated groups."""

    rotation: Rotation = field(default_factory=Rotation)
    watch_every: float = 2.0  # seconds
    proc: str = "/proc"
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    groups: Path | None = field(default_factory=delegated_parent)


class ProcessContext:
    """One of each per driver and instance. ``driver`` is the name that documents, marks and keys use."""

    def __init__(self, driver: str, context: Context, options: Options) -> None:
        self.driver = driver
        self.instance = context.instance
        self.clock = context.clock
        self._leading = context.leading
        self.watch_every = options.watch_every
        # What an agent has of one driver is not that of another: when it moves, both run for a while.
        named = "" if driver == UNNAMED_DRIVER else driver
        self.dirs = AgentDir(context.state_dir, named)
        self.table = ProcessTable(options.proc)
        self.registry = ReplicaRegistry(context.clock.now)
        self.memory = MemoryLimits(context.instance, options.groups, named)
        self.logs = LogFiles(self.dirs, options.rotation)
        self.redactor = context.redactor
        self.environment = Environment(driver, context.instance, self.dirs, options.environment, context.redactor)
        self.rotated_secrets = RotatedSecrets(self.environment, self.table)

    def check_leading(self) -> None:
        """NotYet when another process leads the instance by now: asked before every step, as we may be paused
        between two of them for as long as anybody likes."""
        if not self._leading():
            raise NotYet("another gitops-agent leads by now; it goes on from here")

    def key(self, agent: AgentKey) -> ResourceKey:
        """The name of an agent's runtime."""
        return runtime_key(agent, self.driver)
