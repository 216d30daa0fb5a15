"""Agents in tmux panes that people can attach to: one server per instance, one session per agent.

What belongs here: the tmux server (``server``) and starting a program in a pane (``launcher``). Everything else is
``drivers/local``: the process of a pane is a runner like any other, the process table tells whether
it runs, and tmux is only asked for what people see. So the loss of the server, of its socket or of our state
directory never makes an agent run twice.
"""

import shutil

from gitops_agent.drivers.api import CheckResult, Context, Driver, Reason, Repair
from gitops_agent.drivers.local.spec import local_plugin

DRIVER = "tmux"


def connect(context: Context) -> Driver:
    """The tmux driver of one instance on this machine."""
    from gitops_agent.drivers.local.driver import LocalDriver
    from gitops_agent.drivers.tmux.launcher import TmuxLauncher

    return LocalDriver(DRIVER, context, launcher=TmuxLauncher)


def _check_tmux(_context: Context) -> CheckResult:
    found = shutil.which("tmux")
    # Not wrong where no agent asks for it.
    return CheckResult("tmux", True, found or "not installed, which only agents with driver: tmux need")


LOST = Reason("It runs outside of its tmux pane.", repair=Repair.RESTART)
PLUGIN = local_plugin(DRIVER, connect, _check_tmux, {"SupervisorLost": LOST})
