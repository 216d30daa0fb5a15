"""The reason codes of drivers for local processes, and what they mean to the plan."""

from gitops_agent.drivers.api import Class, Reason, Repair

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
