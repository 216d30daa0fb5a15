"""Agents in tmux panes that people can attach to: one server per instance, one session per agent.

What belongs here: the tmux server (``server``) and starting a program in a pane (``launcher``). Everything else is
``drivers/local``: the program in a pane is a marked session leader like any other, the process table tells whether
it runs, and tmux is only asked for what people see. So the loss of the server, of its socket or of our state
directory never makes an agent run twice.
"""

from __future__ import annotations

from gitops_agent.drivers.local.driver import Options, build_context, build_driver
from gitops_agent.drivers.tmux.launcher import TmuxLauncher
from gitops_agent.drivers.tmux.server import TmuxServer
from gitops_agent.ports import Clock, Driver, DriverContext

__all__ = ["DRIVER", "build", "driver"]

DRIVER = "tmux"


def driver(workplace: DriverContext, clock: Clock) -> Driver:
    """The tmux driver of one instance on this machine."""
    return build(workplace, clock, Options())


def build(workplace: DriverContext, clock: Clock, options: Options) -> Driver:
    """The tmux driver with options."""
    context = build_context(DRIVER, workplace, clock, options)
    server = TmuxServer(f"gitops-agent-{workplace.instance}", context.environment.passed_on())
    return build_driver(context, TmuxLauncher(context, server), options)
