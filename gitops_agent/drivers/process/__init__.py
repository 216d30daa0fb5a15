"""Agents as local processes.

What belongs here: reading and changing the process table of this machine. ``spec`` says what a document asks;
``table`` sweeps ``/proc``, ``census`` sorts the sweep, ``look`` finds lookalikes in it, ``judge`` turns it into a
verdict, ``observe`` puts them together; ``start``, ``stop`` and ``apply`` change it; ``watch`` notices what is
new in between; ``run`` runs exec probes and ``mask`` hides secrets in what they say. What does not: deciding
whether to act (``plan/``) and how often (``reconcile/``).

Agents outlive us: they are found again by the marks in their environment, or by the pid, start time and boot that
our facts recorded. ``roster`` is only a memory of this process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.cgroup import Groups, Parent, delegated_parent
from gitops_agent.drivers.local.environment import Environment
from gitops_agent.drivers.local.log_files import Logs, Rotation
from gitops_agent.drivers.local.memory_limit import Memory
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.process.apply import ProcessApplier
from gitops_agent.drivers.process.context import ProcessContext
from gitops_agent.drivers.process.exec import ProcessRunner
from gitops_agent.drivers.process.observe import ProcessObserver
from gitops_agent.drivers.process.registry import ReplicaRegistry
from gitops_agent.drivers.process.spec import DRIVER, resources
from gitops_agent.drivers.process.start import Starter
from gitops_agent.drivers.process.watch import EVERY, ProcessWatcher
from gitops_agent.ports import Clock, Driver, DriverContext

__all__ = ["Options", "build", "driver"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a machine may have differently: log sizes, where ``/proc`` is, our environment, delegated groups."""

    rotation: Rotation = field(default_factory=Rotation)
    watch_every: float = EVERY
    proc: str = "/proc"
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    groups: Parent | None = field(default_factory=lambda: delegated_parent(Path("/proc/self")))


def driver(workplace: DriverContext, clock: Clock) -> Driver:
    """The process driver of one instance on this machine."""
    return build(workplace, clock, Options())


def build(workplace: DriverContext, clock: Clock, options: Options) -> Driver:
    """The process driver with options."""
    place = AgentDir(workplace.state_dir)
    roster = ReplicaRegistry(clock.now)
    kit = ProcessContext(
        instance=workplace.instance,
        clock=clock,
        place=place,
        table=ProcessTable(options.proc),
        roster=roster,
        memory=Memory(Groups(workplace.instance, options.groups), roster),
        logs=Logs(place, options.rotation),
    )
    environment = Environment(workplace.instance, place, options.environment)
    observer = ProcessObserver(kit)
    return Driver(
        name=DRIVER,
        compile=resources,
        observer=observer,
        applier=ProcessApplier(kit, observer, Starter(kit, environment)),
        watcher=ProcessWatcher(kit, observer, options.watch_every),
        runner=ProcessRunner(environment, roster),
    )
