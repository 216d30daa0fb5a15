"""What the parts of the process driver share."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.log_files import Logs
from gitops_agent.drivers.local.memory_limit import Memory
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.process.registry import ReplicaRegistry
from gitops_agent.ports import Clock


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """One of each, made once per instance."""

    instance: str
    clock: Clock
    place: AgentDir
    table: ProcessTable
    roster: ReplicaRegistry
    memory: Memory
    logs: Logs
