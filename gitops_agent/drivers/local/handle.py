"""Handle: the private handle on our processes that the journal keeps for us between observations."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from gitops_agent.drivers.local.procfs import Host
from gitops_agent.model.fields import Fields


class Known(NamedTuple):
    """One replica we started or adopted. No secret, no time, no path."""

    number: int
    pid: int
    start: int
    spec: str


class Handle(NamedTuple):
    """Where and as what our replicas ran when we last looked; ``foreign`` are processes in the way."""

    host: Host | None = None
    replicas: tuple[Known, ...] = ()
    foreign: tuple[Known, ...] = ()

    def here(self, host: Host) -> Handle:
        """These facts if they speak of this life of this machine; pids of another one mean nothing."""
        return self if self.host == host else Handle()


def encode(host: Host, replicas: Iterable[Known], foreign: Iterable[Known] = ()) -> Fields:
    """Handle for the journal."""
    return _encoded(host, tuple(sorted(replicas)), tuple(sorted(foreign)))


@lru_cache(1024)  # agents that do not run share theirs, and the others' stay the same from look to look
def _encoded(host: Host, replicas: tuple[Known, ...], foreign: tuple[Known, ...]) -> Fields:
    return Fields.of(
        {
            "boot": host.boot,
            "pidNamespace": host.pid_namespace,
            "replicas": [list(known) for known in replicas],
            "foreign": [list(known) for known in foreign],
        }
    )


@lru_cache(1024)
def decode(fields: Fields | None) -> Handle:
    """Handle from the journal; what is not in our form says nothing."""
    value = fields.value if fields is not None else {}
    try:
        return Handle(
            Host(str(value["boot"]), str(value["pidNamespace"])),
            tuple(_known(*item) for item in value["replicas"]),
            tuple(_known(*item) for item in value["foreign"]),
        )
    except (KeyError, TypeError, ValueError):
        return Handle()


def _known(index: object, pid: object, start: object, spec: object) -> Known:
    if not (isinstance(index, int) and isinstance(pid, int) and isinstance(start, int) and isinstance(spec, str)):
        raise TypeError("not a replica")
    return Known(index, pid, start, spec)
