"""Agents in tmux panes that people can attach to: one server per instance, one session per agent.

What belongs here: the tmux server (``server``) and starting a program in a pane (``launcher``). Everything else is
``drivers/local``: the program in a pane is a marked session leader like any other, the process table tells whether
it runs, and tmux is only asked for what people see. So the loss of the server, of its socket or of our state
directory never makes an agent run twice.
"""

import shutil

from gitops_agent.drivers.api import (
    RUNTIME,
    CheckResult,
    Compilation,
    Context,
    Driver,
    Plugin,
    Reason,
    Repair,
    Resource,
)
from gitops_agent.drivers.local.reasons import REASONS
from gitops_agent.drivers.local.spec import run_as, runtime_resources

DRIVER = "tmux"


def resources(asked: Compilation) -> tuple[Resource, ...]:
    """The panes of an agent; Refused in one sentence when the document cannot be run this way."""
    return runtime_resources(DRIVER, asked)


def connect(context: Context) -> Driver:
    """The tmux driver of one instance on this machine."""
    from gitops_agent.drivers.local.driver import Options
    from gitops_agent.drivers.tmux.launcher import build

    return build(context, Options())


def _check_tmux(_context: Context) -> CheckResult:
    found = shutil.which("tmux")
    # Not wrong where no agent asks for it.
    return CheckResult("tmux", True, found or "not installed, which only agents with driver: tmux need")


PLUGIN = Plugin(
    DRIVER,
    (RUNTIME,),
    resources,
    connect,
    reasons={**REASONS, "SupervisorLost": Reason("It runs outside of its tmux pane.", repair=Repair.RESTART)},
    checks=(_check_tmux,),
    run_as=run_as,
    local=True,
    bundle_file=True,
)
