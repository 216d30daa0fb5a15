"""Objects shared by the parts of a driver for local processes."""

from dataclasses import dataclass

from gitops_agent.drivers.api import Clock
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.environment import Environment
from gitops_agent.drivers.local.log_files import LogFiles
from gitops_agent.drivers.local.memory_limit import MemoryLimits
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.local.registry import ReplicaRegistry
from gitops_agent.drivers.local.spec import runtime_key
from gitops_agent.model.key import AgentKey, ResourceKey


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """One of each per driver and instance. ``driver`` is the name that documents, marks and keys use."""

    driver: str
    instance: str
    clock: Clock
    dirs: AgentDir
    table: ProcessTable
    registry: ReplicaRegistry
    memory: MemoryLimits
    logs: LogFiles
    environment: Environment

    def key(self, agent: AgentKey) -> ResourceKey:
        """The name of an agent's runtime."""
        return runtime_key(agent, self.driver)
