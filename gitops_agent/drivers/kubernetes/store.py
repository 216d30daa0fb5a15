"""What is known of the cluster, in memory: each object at the newest version that a watch or our own write showed.

Two sources speak of one object, and neither waits for the other. Within one watch, events come in the order of the
versions, and ``position`` is how far it has come: whatever happened up to there is known. So the answer to a write
counts only if it is newer than the position, and an event only if it is newer than what a write put here. No order
of the two ends anywhere but at the newest state. Versions that are no numbers are taken in the order in which they
come.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from gitops_agent.drivers.api import AgentKey
from gitops_agent.drivers.kubernetes.kinds import POD, ObjectKind
from gitops_agent.drivers.kubernetes.marks import HEARTBEAT, agent_of

_HEARTBEAT = f"f:{HEARTBEAT}"
_BEAT = f'"{HEARTBEAT}":'.encode()
_OF_CONTAINERS = frozenset({"args", "command", "env", "envFrom", "ports", "volumeMounts", "securityContext"})
"""What is not looked at of the containers of a pod."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Entry(NamedTuple):
    """One object. ``raw``: it as JSON, kept as bytes because thousands of parsed ones would take ten times the
    memory."""

    kind: ObjectKind
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    agent: AgentKey | None
    raw: bytes

    def object(self) -> dict[str, Any]:
        """The object, parsed anew: the caller may change it."""
        parsed: dict[str, Any] = orjson.loads(self.raw)
        return parsed


class Scope(NamedTuple):
    """What one watch is about: a kind, in one namespace or ("") in all."""

    kind: ObjectKind
    namespace: str = ""

    def __str__(self) -> str:
        return self.kind.plural + (f" in namespace {self.namespace}" if self.namespace else "")


class Change(NamedTuple):
    """Something that happened to an object of an agent (None: of none), in words for people."""

    agent: AgentKey | None
    word: str


def keep_raw(kind: ObjectKind, found: dict[str, Any]) -> Entry:
    """The entry of an object, with all that it is given of it as JSON."""
    meta = found["metadata"]
    return Entry(
        kind=kind,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        generation=meta.get("generation", 0),
        agent=agent_of(meta.get("labels") or {}),
        raw=bytes(memoryview(orjson.dumps(found))),  # a copy: what orjson gives keeps a whole buffer alive
    )


def as_served(kind: ObjectKind, found: Mapping[str, Any]) -> dict[str, Any]:
    """The object as a watch would send it: with its kind, which lists leave out, and without what is never looked
    at, for it is kept in memory. Of kinds that are none of our business that is all but the metadata, without the
    copy of the rest that kubectl puts there."""
    named = {"apiVersion": kind.api_version, "kind": kind.kind}
    if not kind.metadata_only:
        # Named first in any case, so that the same object is the same bytes.
        return {**named, **(_slim_pod(found) if kind is POD else _slim(found)), **named}
    meta = dict(found["metadata"])
    if _LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {key: text for key, text in meta["annotations"].items() if key != _LAST_APPLIED}
    return {**named, "metadata": meta}


def _slim(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without who owns the status: controllers do, and of a Deployment that is a fifth."""
    meta = found["metadata"]
    owners = [each for each in meta.get("managedFields") or () if each.get("subresource") != "status"]
    return {**found, "metadata": {**meta, "managedFields": owners}}


def _slim_pod(found: Mapping[str, Any]) -> dict[str, Any]:
    """What tells how a pod is: half of it and less. Of who owns what, only when its heartbeat was written."""
    meta, spec = found["metadata"], found.get("spec") or {}
    owners = [each for each in meta.get("managedFields") or () if _HEARTBEAT in _annotations_of(each)]
    kept = {name: spec[name] for name in ("readinessGates",) if name in spec}
    for name in ("containers", "initContainers"):
        kept[name] = [
            {key: value for key, value in each.items() if key not in _OF_CONTAINERS}
            for each in spec.get(name) or ()
        ]
    return {**found, "metadata": {**meta, "managedFields": owners}, "spec": kept}


def _annotations_of(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    owned = (owner.get("fieldsV1") or {}).get("f:metadata") or {}
    return owned.get("f:annotations") or {}


def _only_beats(old: Entry, new: Entry) -> bool:
    """Whether a pod differs only by another heartbeat: no news, for core looks again before one can be stale."""
    if new.kind is not POD or _BEAT not in old.raw or _BEAT not in new.raw:
        return False
    return _but_for_heartbeat(old) == _but_for_heartbeat(new)


def _but_for_heartbeat(pod: Entry) -> dict[str, Any]:
    found = pod.object()
    beat, meta = (found["metadata"].get("annotations") or {}).pop(HEARTBEAT, None), found["metadata"]
    for name in ("managedFields", "resourceVersion"):
        meta.pop(name, None)
    return {"object": found, "beats": beat is not None}


_Name = tuple[str, str]  # namespace and name


class Store:
    """The objects, by name and by agent. Safe for any number of threads."""

    def __init__(self, scopes: Collection[Scope]) -> None:
        self._lock = threading.Lock()
        self._scopes = frozenset(scopes)
        self._position: dict[Scope, str] = {}
        self._objects: dict[str, dict[_Name, Entry]] = defaultdict(dict)
        self._of_agent: dict[AgentKey, dict[tuple[str, str, str], Entry]] = {}
        self._gone: dict[tuple[str, _Name], Entry] = {}  # what we deleted, until the watch has come that far

    # -- reading

    def get(self, kind: ObjectKind, namespace: str, name: str) -> Entry | None:
        """One object, if it is there."""
        with self._lock:
            return self._objects[kind.kind].get((namespace, name))

    def of_agent(self, agent: AgentKey, kind: ObjectKind) -> tuple[Entry, ...]:
        """The objects of an agent of one kind, by name."""
        with self._lock:
            found = [each for each in self._of_agent.get(agent, {}).values() if each.kind == kind]
        return tuple(sorted(found, key=lambda each: (each.namespace, each.name)))

    def objects_of(self, agent: AgentKey) -> tuple[Entry, ...]:
        """All objects of an agent, pods included."""
        with self._lock:
            return tuple(self._of_agent.get(agent, {}).values())

    def all(self, kind: ObjectKind) -> tuple[Entry, ...]:
        """All objects of one kind."""
        with self._lock:
            return tuple(self._objects[kind.kind].values())

    def agents(self) -> frozenset[AgentKey]:
        """The agents that have any object."""
        with self._lock:
            return frozenset(self._of_agent)

    # -- what a watch says

    def listed(self, scope: Scope, entries: Iterable[Entry], version: str) -> list[Change]:
        """Take a whole list; what it does not hold is gone, unless it was written after the list was made."""
        with self._lock:
            # A version that went back: the cluster was restored from a backup, and what we know is of no use.
            restored = _newer(self._position.get(scope, ""), version)
            changes: list[Change] = []
            present, uids = set(), set()
            for entry in entries:
                present.add((entry.namespace, entry.name))
                uids.add(entry.uid)
                changes += self._put(entry, anyway=restored)
            for old in self._in(scope):
                if (old.namespace, old.name) not in present and (
                    restored or not _newer(old.resource_version, version)
                ):
                    changes += self._drop(old)
            self._gone = {
                where: old
                for where, old in self._gone.items()
                if self._scope_of(old.kind, old.namespace, old.name) != scope or (old.uid in uids and not restored)
            }
            self._position[scope] = version
            return changes

    def changed(self, scope: Scope, entry: Entry) -> list[Change]:
        """Take an event about an object that is there."""
        with self._lock:
            self._position[scope] = entry.resource_version
            return self._put(entry)

    def deleted(self, scope: Scope, entry: Entry) -> list[Change]:
        """Take an event about an object that is gone."""
        with self._lock:
            self._position[scope] = entry.resource_version
            where = (entry.namespace, entry.name)
            tomb = self._gone.get((entry.kind.kind, where))
            if tomb is not None and tomb.uid == entry.uid:
                del self._gone[entry.kind.kind, where]
            old = self._objects[entry.kind.kind].get(where)
            if old is None or _newer(old.resource_version, entry.resource_version):
                return []
            return self._drop(old)

    def reached(self, scope: Scope, version: str) -> None:
        """Take a bookmark: everything up to this version is known."""
        with self._lock:
            self._position[scope] = version

    # -- what our own writes say

    def note(self, entry: Entry) -> None:
        """Take the answer to a write of ours, unless the watch has come further already."""
        scope = self._scope_of(entry.kind, entry.namespace, entry.name)
        with self._lock:
            position = "" if scope is None else self._position.get(scope, "")
            if scope is not None and not _known(entry.resource_version, position):
                self._put(entry)

    def gone(self, entry: Entry) -> None:
        """Take it that this very object is gone, as the answer to our delete said."""
        scope = self._scope_of(entry.kind, entry.namespace, entry.name)
        with self._lock:
            old = self._objects[entry.kind.kind].get((entry.namespace, entry.name))
            # If it is not here any more, the watch was quicker, and there is no event to wait for.
            if scope is not None and old is not None and old.uid == entry.uid:
                self._drop(old)
                self._gone[old.kind.kind, (old.namespace, old.name)] = old

    # -- under the lock

    def _put(self, entry: Entry, *, anyway: bool = False) -> list[Change]:
        where = (entry.namespace, entry.name)
        old = self._objects[entry.kind.kind].get(where)
        tomb = self._gone.get((entry.kind.kind, where))
        late = tomb is not None and (
            entry.uid == tomb.uid or _known(entry.resource_version, tomb.resource_version)
        )
        known = old is not None and _known(entry.resource_version, old.resource_version)
        if (late or known) and not anyway:
            return []
        self._gone.pop((entry.kind.kind, where), None)
        changes = [] if old is None else self._forget_agent(old, entry)
        self._objects[entry.kind.kind][where] = entry
        if entry.agent is not None:
            self._of_agent.setdefault(entry.agent, {})[(entry.kind.kind, *where)] = entry
        if old is not None and _only_beats(old, entry):
            return changes
        word = "added" if old is None else "replaced" if old.uid != entry.uid else "changed"
        return [*changes, Change(entry.agent, f"{entry.kind.kind} {word}")]

    def _drop(self, old: Entry) -> list[Change]:
        del self._objects[old.kind.kind][(old.namespace, old.name)]
        self._forget_agent(old, None)
        return [Change(old.agent, f"{old.kind.kind} deleted")]

    def _forget_agent(self, old: Entry, new: Entry | None) -> list[Change]:
        """Take an object from its agent; the change to say, if it is of another agent from now on."""
        if old.agent is None or (new is not None and new.agent == old.agent):
            return []
        of_agent = self._of_agent[old.agent]
        del of_agent[(old.kind.kind, old.namespace, old.name)]
        if not of_agent:
            del self._of_agent[old.agent]
        return [Change(old.agent, f"{old.kind.kind} relabelled")]

    def _in(self, scope: Scope) -> list[Entry]:
        objects = self._objects[scope.kind.kind].values()
        return [each for each in objects if self._scope_of(each.kind, each.namespace, each.name) == scope]

    def _scope_of(self, kind: ObjectKind, namespace: str, name: str) -> Scope | None:
        """The watch that tells of an object; a namespace is told of by the watch of that name."""
        whole, own = Scope(kind), Scope(kind, namespace if kind.namespaced else name)
        return whole if whole in self._scopes else own if own in self._scopes else None


def _newer(version: str, than: str) -> bool:
    """Whether a version is surely newer than another."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def _known(version: str, position: str) -> bool:
    """Whether a version is surely no newer than a position."""
    return version.isdecimal() and position.isdecimal() and int(version) <= int(position)
