"""What the parts of the process driver share."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_agent.drivers.place import Place
from gitops_agent.drivers.process.logs import Logs
from gitops_agent.drivers.process.memory import Memory
from gitops_agent.drivers.process.roster import Roster
from gitops_agent.drivers.process.table import ProcessTable
from gitops_agent.ports import Clock


@dataclass(frozen=True, slots=True)
class Kit:
    """One of each, made once per instance."""

    instance: str
    clock: Clock
    place: Place
    table: ProcessTable
    roster: Roster
    memory: Memory
    logs: Logs
