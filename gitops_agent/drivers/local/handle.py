"""The handle on our processes that the journal keeps for us between observations."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from gitops_agent.drivers.local.procfs import Host, Identity
from gitops_agent.model.fields import Fields


class ReplicaHandle(NamedTuple):
    """One replica we started or adopted. No secret, no time, no path. ``runner``: the pid of its parent of ours,
    0 when it has none (an earlier version started it, or its runner was killed)."""

    number: int
    pid: int
    start: int
    spec: str
    runner: int = 0

    @property
    def identity(self) -> Identity:
        """Which process it is."""
        return (self.pid, self.start)


class Handle(NamedTuple):
    """Where and as what our replicas ran when we last looked; ``foreign`` are processes in the way."""

    host: Host | None = None
    replicas: tuple[ReplicaHandle, ...] = ()
    foreign: tuple[ReplicaHandle, ...] = ()

    def here(self, host: Host) -> Handle:
        """This handle if it is of this boot of this machine; pids of another one mean nothing."""
        return self if self.host == host else Handle()


def encode(host: Host, replicas: Iterable[ReplicaHandle], foreign: Iterable[ReplicaHandle] = ()) -> Fields:
    """The handle as the journal keeps it."""
    return _encoded(host, tuple(sorted(replicas)), tuple(sorted(foreign)))


@lru_cache(1024)  # agents that do not run share theirs, and the others' stay the same between observations
def _encoded(host: Host, replicas: tuple[ReplicaHandle, ...], foreign: tuple[ReplicaHandle, ...]) -> Fields:
    return Fields.of(
        {
            "boot": host.boot,
            "pidNamespace": host.pid_namespace,
            "replicas": [_row(known) for known in replicas],
            "foreign": [_row(known) for known in foreign],
        }
    )


@lru_cache(1024)
def decode(fields: Fields | None) -> Handle:
    """The handle of the journal; an empty one when it is not in our form."""
    value = fields.value if fields is not None else {}
    try:
        return Handle(
            Host(str(value["boot"]), str(value["pidNamespace"])),
            tuple(_known(*item) for item in value["replicas"]),
            tuple(_known(*item) for item in value["foreign"]),
        )
    except (KeyError, TypeError, ValueError):
        return Handle()


def _row(known: ReplicaHandle) -> list[int | str]:
    return list(known if known.runner else known[:-1])


def _known(index: object, pid: object, start: object, spec: object, runner: object = 0) -> ReplicaHandle:
    numbers = (index, pid, start, runner)
    if not (all(isinstance(each, int) for each in numbers) and isinstance(spec, str)):
        raise TypeError("not a replica")
    return ReplicaHandle(index, pid, start, spec, runner)  # type: ignore[arg-type]
