"""Objects that have the name of one of ours and not our marks: they are in the way, and never touched unasked.

Our watches see only what carries our marks, so where they show nothing the server is asked before anything is
made: one by one, or for many the namespace at once, by names alone, and again only after a while or after a write.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any, NamedTuple

from gitops_agent.drivers.api import NotYet, ResourceKey
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.errors import ApiError, apply_error
from gitops_agent.drivers.kubernetes.kinds import ObjectKind
from gitops_agent.drivers.kubernetes.marks import INSTANCE
from gitops_agent.drivers.kubernetes.objects import Target, is_applied

LIST_METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
ONE_METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
KEPT_SECONDS = 30.0
MAX_SINGLE = 3
"""Up to so many names of one kind in a namespace are asked for one by one."""

Names = dict[str, str]
"""The instance that an object is marked by, "" for none, by its name."""


class _Said(NamedTuple):
    """An answer. ``mark``: the instance that marked what has a name, "" for none; None when the name is free."""

    asked_at: float
    mark: str | None = None
    sure: bool = True


class _Answers:
    """What the server said of one kind in one namespace, by name. Names that a list did not hold were free."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listed = _Said(-math.inf)
        self._said: dict[str, _Said] = {}

    def of(self, name: str, now: float) -> _Said | None:
        """What is known of a name; None when it is to be asked for."""
        said = self._said.get(name, self._listed)
        return said if said.sure and now - said.asked_at < KEPT_SECONDS else None

    def take_all(self, names: Names, asked_at: float) -> None:
        """Keep a list, but for names of which more has become known since it was asked for."""
        with self._lock:
            newer = {name: said for name, said in self._said.items() if said.asked_at > asked_at}
            self._said = {**{name: _Said(asked_at, mark) for name, mark in names.items()}, **newer}
            self._listed = _Said(asked_at)

    def take(self, name: str, said: _Said) -> None:
        """Keep an answer about one name, or doubt, unless there is a newer one."""
        with self._lock:
            if self._said.get(name, said).asked_at <= said.asked_at:
                self._said[name] = said

    def is_old(self, now: float) -> bool:
        """Whether none of it counts any more."""
        with self._lock:
            newest = max(said.asked_at for said in (self._listed, *self._said.values()))
        return now - newest >= KEPT_SECONDS


class ForeignObjects:
    """Finds what is in the way of names that our watches do not show. Remembers answers for half a minute."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client
        self._instance = cluster.instance
        self._clock = cluster.clock
        self._known: dict[tuple[ObjectKind, str], _Answers] = {}
        self._looked_at = cluster.clock.monotonic()

    def among(self, wanted: Mapping[ResourceKey, Target]) -> dict[ResourceKey, str]:
        """Those whose place is taken, each with the instance that marked what is there, or nothing. Where we are
        not told, nothing is known, and nothing is remembered: ``require_free`` asks again before a write."""
        grouped: defaultdict[tuple[ObjectKind, str], dict[str, ResourceKey]] = defaultdict(dict)
        for key, target in wanted.items():
            grouped[(target.kind, target.namespace)][target.name] = key
        found: dict[ResourceKey, str] = {}
        for (kind, namespace), names in grouped.items():
            try:
                there = self._names(kind, namespace, names)
            except ApiError:
                continue
            found |= {names[name]: mark for name, mark in there.items() if mark != self._instance}
        return found

    def require_free(self, target: Target) -> bool:
        """Whether something of ours has the name of an object; ApplyError when something else has, or when that
        cannot be told."""
        try:
            there = self._names(target.kind, target.namespace, (target.name,))
        except ApiError as problem:
            raise apply_error(problem, f"look whether there is a {target}") from problem
        if there.get(target.name, self._instance) != self._instance:
            raise NotYet(f"{target} is there and is not ours; it is planned again")
        return target.name in there

    def require_adoptable(self, target: Target) -> dict[str, str]:
        """The version of an object that is to be adopted, as the server has it now; NotYet when there is none, or
        one that is not free to take."""
        self.forget(target)  # whatever it is by now, the next plan sees it
        try:
            metadata = self._one(target.kind, target.namespace, target.name).get("metadata") or {}
        except ApiError as problem:
            if problem.status == 404:
                raise NotYet(f"{target} is gone, so there is nothing to adopt; it is planned again") from problem
            raise apply_error(problem, f"read {target}") from problem
        if self._mark({"metadata": metadata}):
            raise NotYet(f"{target} belongs to a gitops-agent by now; it is planned again")
        return {"uid": str(metadata["uid"]), "resourceVersion": str(metadata["resourceVersion"])}

    def forget(self, target: Target) -> None:
        """Ask again for what we wrote: it is ours now, or is not as we thought."""
        known = self._known.get((target.kind, target.namespace))
        if known is not None:
            known.take(target.name, _Said(self._clock.monotonic(), sure=False))

    def _names(self, kind: ObjectKind, namespace: str, wanted: Iterable[str]) -> Names:
        """Those of some names that are taken, and by whom."""
        now = self._clock.monotonic()
        self._drop_old(now)
        known = self._known.setdefault((kind, namespace), _Answers())
        unknown = [name for name in wanted if known.of(name, now) is None]
        if len(unknown) > MAX_SINGLE:
            known.take_all(self._all(kind, namespace), now)
        else:
            for name in unknown:
                known.take(name, _Said(now, self._single(kind, namespace, name)))
        said = {name: known.of(name, now) for name in wanted}
        return {name: each.mark for name, each in said.items() if each is not None and each.mark is not None}

    def _drop_old(self, now: float) -> None:
        """Forget what no longer counts, now and then: namespaces come and go."""
        if now - self._looked_at >= KEPT_SECONDS:
            self._looked_at = now
            self._known = {where: each for where, each in list(self._known.items()) if not each.is_old(now)}

    def _single(self, kind: ObjectKind, namespace: str, name: str) -> str | None:
        """Who marked what has a name; None when it is free."""
        try:
            return self._mark(self._one(kind, namespace, name))
        except ApiError as problem:
            if problem.status != 404:  # anything else is no answer
                raise
            return None

    def _one(self, kind: ObjectKind, namespace: str, name: str) -> dict[str, Any]:
        return self._client.request("GET", kind.path(namespace, name), headers=ONE_METADATA)

    def _all(self, kind: ObjectKind, namespace: str) -> Names:
        found: Names = {}
        query: dict[str, str | int | bool] = {"limit": 500}
        while True:
            page = self._client.request("GET", kind.path(namespace), query=query, headers=LIST_METADATA)
            found |= {str(each["metadata"]["name"]): self._mark(each) for each in page.get("items") or ()}
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            query["continue"] = following

    def _mark(self, found: Mapping[str, Any]) -> str:
        """The instance that an object is marked by. Ours is what we applied, also without its label: that alone is
        copied by anybody."""
        metadata = found.get("metadata") or {}
        label = str((metadata.get("labels") or {}).get(INSTANCE, ""))
        return label if label not in ("", self._instance) else self._instance if is_applied(metadata) else ""
