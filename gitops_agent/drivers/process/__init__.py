"""Agents as child processes that outlive us.

What belongs here: starting a program (``start``). Everything else is ``drivers/local``: a process is found,
assessed, replaced, watched and ended in the same way whichever driver started it.
"""

import os

from gitops_agent.drivers.api import RUNTIME, CheckResult, Compilation, Context, Driver, Plugin, Resource
from gitops_agent.drivers.local.reasons import REASONS
from gitops_agent.drivers.local.spec import run_as, runtime_resources

DRIVER = "process"


def resources(asked: Compilation) -> tuple[Resource, ...]:
    """The processes of an agent; Refused in one sentence when the document cannot be run this way."""
    return runtime_resources(DRIVER, asked)


def connect(context: Context) -> Driver:
    """The process driver of one instance on this machine."""
    from gitops_agent.drivers.local.driver import Options
    from gitops_agent.drivers.process.start import build

    return build(context, Options())


def _check_proc(_context: Context) -> CheckResult:
    readable = os.access("/proc/self/environ", os.R_OK)
    message = "readable" if readable else "not readable"
    return CheckResult("process table", readable, message, "the process driver needs /proc (Linux)")


PLUGIN = Plugin(
    DRIVER,
    (RUNTIME,),
    resources,
    connect,
    reasons=REASONS,
    checks=(_check_proc,),
    run_as=run_as,
    local=True,
    bundle_file=True,
)
