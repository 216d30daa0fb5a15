"""Agents as child processes that outlive us: the driver of ``drivers/local`` as it is."""

import os

from gitops_agent.drivers.api import CheckResult, Context, Driver
from gitops_agent.drivers.local.spec import local_plugin

DRIVER = "process"


def connect(context: Context) -> Driver:
    """The process driver of one instance on this machine."""
    from gitops_agent.drivers.local.driver import LocalDriver

    return LocalDriver(DRIVER, context)


def _check_proc(_context: Context) -> CheckResult:
    readable = os.access("/proc/self/environ", os.R_OK)
    message = "readable" if readable else "not readable"
    return CheckResult("process table", readable, message, "the process driver needs /proc (Linux)")


PLUGIN = local_plugin(DRIVER, connect, _check_proc)
