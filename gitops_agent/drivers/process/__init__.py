"""Agents as child processes that outlive us.

What belongs here: starting a program (``start``) and what documents call the driver (``spec``). Everything else is
``drivers/local``: a process is found, assessed, replaced, watched and ended in the same way whichever driver
started it.
"""

from __future__ import annotations

from gitops_agent.drivers.local.driver import Options, build_context, build_driver
from gitops_agent.drivers.process.spec import DRIVER
from gitops_agent.drivers.process.start import ChildLauncher
from gitops_agent.ports import Clock, Driver, DriverContext

__all__ = ["Options", "build", "driver"]


def driver(workplace: DriverContext, clock: Clock) -> Driver:
    """The process driver of one instance on this machine."""
    return build(workplace, clock, Options())


def build(workplace: DriverContext, clock: Clock, options: Options) -> Driver:
    """The process driver with options."""
    context = build_context(DRIVER, workplace, clock, options)
    return build_driver(context, ChildLauncher(context.registry), options)
