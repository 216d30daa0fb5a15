"""Live replicas against what we last applied: fields to compare, one state, one reason. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gitops_agent.drivers.local.process_tree import Ended, Replica
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.model.fields import Fields


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """The live replicas of one agent: those that count, extra ones, and why some (by pid) must be replaced.
    ``rotated``: the variables whose secret has changed since a replica (by pid) was started.
    ``left``: those whose own process has ended, and what still runs of them."""

    replicas: tuple[Replica, ...]
    extra: tuple[Replica, ...]
    faults: Mapping[int, str]
    rotated: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    left: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def is_behind(self, replica: Replica, base: Desired | None) -> bool:
        """Whether a replica is to be replaced by one that is as applied."""
        if replica.proc.pid in self.faults:
            return True
        restarts = base is not None and base.follows_secrets and replica.proc.pid in self.rotated
        return restarts or (base is not None and replica.spec != base.spec)

    @property
    def all(self) -> tuple[Replica, ...]:
        """Every live replica, and what is left of others."""
        return (*self.replicas, *self.extra)

    @property
    def running(self) -> tuple[Replica, ...]:
        """Those whose own process runs."""
        found = self.all
        # As almost always, and asked several times with every observation.
        return tuple(each for each in found if each.ended is None) if self.left else found


FAULTS = {
    "CommandDiffers": "{} carries our marks but does not run the declared command",
    "EnvironmentDiffers": "{} carries our marks but not the declared environment",
    "SupervisorLost": "{} runs outside of what it was started in",
    "MemoryLimit": "{} uses more memory than the limit",
}
"""Why a replica must be replaced, the worst first."""

FOREGROUND = "run it in the foreground, without an option such as --daemon"
STATUSES = ("Suspended", "Traced", "Running")
"""What replicas do; of several the first counts."""


def assess_replicas(replica_set: ReplicaSet, base: Desired | None) -> tuple[Fields, str, str | None, str]:
    """How the observation of an agent with at least one live replica reads: fields, state, reason, message."""
    reason, message = _reason(replica_set, base)
    running = replica_set.running
    seen = {replica.proc.status for replica in running}
    state = next((status for status in STATUSES if status in seen), "Missing")
    visible = {
        "spec": _spec(replica_set, base),
        "replicas": len(running),
        "state": _compared(state, replica_set),
    }
    if not message and state == "Traced":
        message = "held by a debugger: left alone"
    return Fields.of(visible), state, reason, message


def fault_of(ended: Ended, left: Sequence[int]) -> str:
    """Why a replica whose own process has ended is to be replaced."""
    return "Daemonized" if ended.status == 0 and left else "ProcessGone"


def how_it_ended(status: int) -> str:
    """An exit status in words."""
    return f"exited with code {status}" if status >= 0 else f"was killed by signal {-status}"


def _what_is_left(replica_set: ReplicaSet) -> tuple[str, str] | None:
    """The reason and the sentence for the first replica whose own process has ended."""
    if not replica_set.left:
        return None
    replica = next((each for each in replica_set.all if each.ended is not None), None)
    if replica is None or replica.ended is None:
        return None
    pid, status = replica.ended
    left = replica_set.left.get(replica.proc.pid, ())
    how = "no longer runs" if status is None else how_it_ended(status)
    reason = replica_set.faults.get(replica.proc.pid, "ProcessGone")
    if reason == "Daemonized":
        return reason, f"pid {pid} {how} and left {_pids(left)} running: {FOREGROUND}"
    rest = f"; {_pids(left)} of it still runs, and is ended before the next start" if left else ""
    return reason, f"pid {pid} {how}{rest}"


def surplus(replica_set: ReplicaSet, base: Desired | None) -> list[Replica]:
    """The replicas beyond those that were applied."""
    beyond = [each for each in replica_set.replicas if each.number >= base.replicas] if base is not None else []
    return [*replica_set.extra, *beyond]


def _reason(replica_set: ReplicaSet, base: Desired | None) -> tuple[str | None, str]:
    if (over := _what_is_left(replica_set)) is not None:
        return over
    for reason, text in FAULTS.items():
        if pids := [pid for pid, fault in replica_set.faults.items() if fault == reason]:
            return reason, text.format(_pids(pids))
    if base is not None and (strangers := [each for each in replica_set.all if each.spec != base.spec]):
        listed = _pids([replica.proc.pid for replica in strangers])
        if all(replica.known for replica in strangers):  # we left them for later: they follow one by one
            return "ReplicasFollow", f"{listed} still runs the spec before the one applied"
        return "SpecDiffers", f"{listed} runs another spec than the one last applied"
    if extra := surplus(replica_set, base):
        return "ExtraReplica", f"{_pids([replica.proc.pid for replica in extra])} is one replica too many"
    there = {replica.number for replica in replica_set.replicas}
    if base is not None and (missing := sorted(set(range(base.replicas)) - there)):
        return "ReplicaMissing", f"replica {', '.join(map(str, missing))} of {base.replicas} is gone"
    if pids := [replica.proc.pid for replica in replica_set.all if replica.proc.status == "Suspended"]:
        return "Suspended", f"{_pids(pids)} is suspended (SIGSTOP)"
    return _rotated(replica_set, base)


def _rotated(replica_set: ReplicaSet, base: Desired | None) -> tuple[str | None, str]:
    """Secrets that were rotated; where replicas are restarted for it and some were already, the others follow."""
    if not replica_set.rotated:
        return None, ""
    names = sorted({name for each in replica_set.rotated.values() for name in each})
    message = f"the secret of {', '.join(names)} has changed since {_pids([*replica_set.rotated])} was started"
    begun = len(replica_set.rotated) < len(replica_set.replicas)
    restarts = base is not None and base.follows_secrets
    return "ReplicasFollow" if begun and restarts else "SecretRotated", message


def _compared(state: str, replica_set: ReplicaSet) -> str:
    """The state as a field to be compared: a debugger was attached by a person, everything else is drift."""
    if "MemoryLimit" in replica_set.faults.values():
        return "OverMemory"
    if "SupervisorLost" in replica_set.faults.values():
        return "Unsupervised"
    if replica_set.left:
        return "Ended"
    indices = {replica.number for replica in replica_set.replicas}
    if replica_set.extra or indices != set(range(len(indices))):
        return "Uneven"  # the right number of replicas may still be the wrong ones
    return "Running" if state == "Traced" else state


def _spec(replica_set: ReplicaSet, base: Desired | None) -> str:
    for fault in ("CommandDiffers", "EnvironmentDiffers"):
        if fault in replica_set.faults.values():
            return fault
    specs = sorted({replica.spec for replica in replica_set.all})
    strange = [spec for spec in specs if base is None or spec != base.spec]
    return (strange or specs)[0]


def _pids(pids: Sequence[int]) -> str:
    return "pid " + ", ".join(map(str, sorted(pids)))
