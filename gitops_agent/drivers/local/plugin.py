"""What the plugins of drivers for processes of this host have in common. Importing it needs no live system."""

from collections.abc import Callable, Mapping
from functools import partial

from gitops_agent.drivers.api import RUNTIME, CheckResult, Class, Context, Driver, Plugin, Reason, Repair
from gitops_agent.drivers.local.spec import run_as, runtime_resources

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


def local_plugin(
    name: str,
    connect: Callable[[Context], Driver],
    check: Callable[[Context], CheckResult],
    reasons: Mapping[str, Reason] | None = None,
) -> Plugin:
    """The plugin of a driver whose agents are processes of this host. ``reasons``: what it adds to the codes."""
    return Plugin(
        name,
        (RUNTIME,),
        partial(runtime_resources, name),
        connect,
        reasons={**REASONS, **(reasons or {})},
        checks=(check,),
        run_as=run_as,
        local=True,
        bundle_file=True,
    )
