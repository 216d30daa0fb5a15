"""Agents as local processes.

What belongs here: reading and changing the process table of this machine. ``spec`` says what a document asks;
``observe`` and ``assess`` turn a sweep of the table into observations; ``start``, ``stop`` and ``apply`` change
it; ``watch`` notices what is new in between; ``exec`` runs exec probes and hooks; ``driver`` puts them together.
What does not: deciding whether to act (``plan/``) and how often (``reconcile/``).

Agents outlive us: they are found again by the marks in their environment, or by the pid, start time and boot that
our handle recorded. ``registry`` is only a memory of this process.
"""

from __future__ import annotations

import os

from gitops_agent.drivers.api import RUNTIME, CheckResult, Class, Context, Driver, Plugin, Reason, Repair
from gitops_agent.drivers.process.spec import DRIVER, resources, run_as

_EXTERNAL, _STUCK = Class.MISSING_EXTERNAL, Class.STUCK_PROGRESS

REASONS = {
    "ProcessGone": Reason("The process ended or was killed.", _EXTERNAL),
    "HostRestarted": Reason("The host was restarted since it was last applied.", _EXTERNAL, explained=True),
    "SpecDiffers": Reason("It runs from another spec than applied.", repair=Repair.RESTART),
    "CommandDiffers": Reason("It runs another command than applied.", repair=Repair.RESTART),
    "EnvironmentDiffers": Reason("It runs with another environment.", repair=Repair.RESTART),
    "ExtraReplica": Reason("More replicas run than desired.", Class.MISSING_INTERNAL, about_fields=True),
    "ReplicaMissing": Reason("Fewer replicas run than desired.", _EXTERNAL, about_fields=True),
    "Suspended": Reason("The process was stopped by a signal.", _STUCK, cross_check=True),
    "Zombie": Reason("The process ended and was not collected by its parent.", _EXTERNAL),
    "MemoryLimit": Reason("It used more memory than its limit.", _STUCK, Repair.RESTART),
}


def connect(context: Context) -> Driver:
    """The process driver of one instance on this machine."""
    from gitops_agent.drivers.process.driver import Options, build

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
