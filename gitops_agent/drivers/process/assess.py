"""What live processes say against what we last applied: fields to compare, one state, one reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitops_agent.drivers.local.process_tree import Replica
from gitops_agent.drivers.process.spec import Desired
from gitops_agent.model.fields import Fields

Faults = dict[int, str]  # pid of a replica to the reason why it must be replaced


@dataclass(frozen=True, slots=True)
class Sight:
    """The live replicas of one agent: those that count, extra ones, and which of them must be replaced."""

    replicas: tuple[Replica, ...]
    extra: tuple[Replica, ...]
    faults: Faults

    @property
    def all(self) -> tuple[Replica, ...]:
        """Every live replica."""
        return (*self.replicas, *self.extra)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an observation reads."""

    fields: Fields
    state: str
    reason: str | None
    message: str


def judge(sight: Sight, base: Desired | None) -> Verdict:
    """The verdict on an agent with at least one live replica."""
    reason, message = _reason(sight, base)
    state = _state(sight)
    visible = {"spec": _spec(sight, base), "replicas": len(sight.all), "state": _shown(state, sight)}
    if not message and state == "Traced":
        message = "held by a debugger: left alone"
    return Verdict(Fields.of(visible), state, reason, message)


def _reason(sight: Sight, base: Desired | None) -> tuple[str | None, str]:
    for reason in ("CommandDiffers", "EnvironmentDiffers", "MemoryLimit"):
        pids = [pid for pid, fault in sight.faults.items() if fault == reason]
        if pids:
            return reason, _FAULTS[reason].format(_pids(pids))
    if base is None:
        return ("ExtraReplica", _extra(sight.extra)) if sight.extra else _suspended(sight)
    strangers = [replica.proc.pid for replica in sight.all if replica.spec != base.spec]
    if strangers:
        return "SpecDiffers", f"{_pids(strangers)} runs another spec than the one last applied"
    surplus = (*sight.extra, *(replica for replica in sight.replicas if replica.number >= base.replicas))
    if surplus:
        return "ExtraReplica", _extra(surplus)
    missing = sorted(set(range(base.replicas)) - {replica.number for replica in sight.replicas})
    if missing:
        return "ReplicaMissing", f"replica {', '.join(map(str, missing))} of {base.replicas} is gone"
    return _suspended(sight)


_FAULTS = {
    "CommandDiffers": "{} carries our marks but does not run the declared command",
    "EnvironmentDiffers": "{} carries our marks but not the declared environment",
    "MemoryLimit": "{} uses more memory than the limit",
}


def _suspended(sight: Sight) -> tuple[str | None, str]:
    pids = [replica.proc.pid for replica in sight.all if replica.proc.suspended]
    return ("Suspended", f"{_pids(pids)} is suspended (SIGSTOP)") if pids else (None, "")


def _state(sight: Sight) -> str:
    if any(replica.proc.suspended for replica in sight.all):
        return "Suspended"
    if any(replica.proc.traced for replica in sight.all):
        return "Traced"
    return "Running"


def _shown(state: str, sight: Sight) -> str:
    """The state as a field to be compared: a debugger is somebody's business, everything else is drift."""
    if "MemoryLimit" in sight.faults.values():
        return "OverMemory"
    indices = {replica.number for replica in sight.replicas}
    if sight.extra or indices != set(range(len(indices))):
        return "Uneven"  # the right number of replicas may still be the wrong ones
    return "Running" if state == "Traced" else state


def _spec(sight: Sight, base: Desired | None) -> str:
    for fault in ("CommandDiffers", "EnvironmentDiffers"):
        if fault in sight.faults.values():
            return fault
    specs = sorted({replica.spec for replica in sight.all})
    strange = [spec for spec in specs if base is None or spec != base.spec]
    return (strange or specs)[0]


def _extra(replicas: Sequence[Replica]) -> str:
    return f"{_pids([replica.proc.pid for replica in replicas])} is one replica too many"


def _pids(pids: Sequence[int]) -> str:
    return "pid " + ", ".join(map(str, sorted(pids)))
