"""Who is in a namespace: what is kept there, and what we are about to put there. Neither may go with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.foreign import LIST_METADATA
from gitops_agent.drivers.kubernetes.kinds import CONFIG_MAP, POD, SECRET, SERVICE, WORKLOADS, ObjectKind

CLAIM = ObjectKind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
DAEMON_SET = ObjectKind("DaemonSet", "apps/v1", "daemonsets")
JOB = ObjectKind("Job", "batch/v1", "jobs")
LOOKED_FOR = (CLAIM, *WORKLOADS, DAEMON_SET, JOB, POD, SERVICE, SECRET, CONFIG_MAP)
"""What is looked for before a namespace goes, what would be missed most first."""

MADE_BY_THE_CLUSTER = {
    SECRET: "type!=kubernetes.io/service-account-token",
    CONFIG_MAP: "metadata.name!=kube-root-ca.crt",
}
"""The field selectors that leave out what every namespace has."""

MAX_NAMED = 3


def kept_in(client: Client, namespace: str) -> tuple[str, ...]:
    """The first few objects in a namespace, as in ``Pod web``; ApiError when that cannot be known. Whose they are
    is no matter: when all that we know as ours is gone, what is left may run under another name of this cluster,
    or be data of an agent (a claim), which nothing brings back."""
    found: list[str] = []
    for kind in LOOKED_FOR:
        query: dict[str, str | int] = {"limit": MAX_NAMED}
        if kind in MADE_BY_THE_CLUSTER:
            query["fieldSelector"] = MADE_BY_THE_CLUSTER[kind]
        page = client.request("GET", kind.path(namespace), query=query, headers=LIST_METADATA)
        found += [f"{kind.kind} {each['metadata']['name']}" for each in page.get("items") or ()]
        if len(found) >= MAX_NAMED:
            break
    return tuple(found[:MAX_NAMED])


class Occupancy:
    """Which namespaces are entered and left at this moment: none is deleted while something is put there, and
    nothing is put there while it is being deleted. Safe for any number of threads."""

    def __init__(self) -> None:
        self._moved = Condition()
        self._inside: Counter[str] = Counter()
        self._leaving: set[str] = set()

    @contextmanager
    def entered(self, namespace: str) -> Iterator[None]:
        """Inside, the namespace is not deleted by us. Waits while it is being deleted."""
        with self._moved:
            self._moved.wait_for(lambda: namespace not in self._leaving)
            self._inside[namespace] += 1
        try:
            yield
        finally:
            with self._moved:
                self._inside[namespace] -= 1

    @contextmanager
    def left(self, namespace: str) -> Iterator[bool]:
        """Whether nothing is being put there; then nothing will be before the end of the block. Waits while
        another leaves it: that one may have seen what we have taken away since."""
        with self._moved:
            self._moved.wait_for(lambda: namespace not in self._leaving)
            free = self._inside[namespace] == 0
            if free:
                self._leaving.add(namespace)
        try:
            yield free
        finally:
            if free:
                with self._moved:
                    self._leaving.discard(namespace)
                    self._moved.notify_all()


_OF_SERVERS: dict[str, Occupancy] = {}


def occupancy_of(address: str) -> Occupancy:
    """The one of an API server: drivers with different names may be in one cluster, and share it."""
    return _OF_SERVERS.setdefault(address, Occupancy())
