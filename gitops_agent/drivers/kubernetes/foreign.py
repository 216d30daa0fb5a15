"""Objects that have the name of one of ours and not our marks: they are in the way, and never touched unasked.

Our watches see only what carries our marks, so where they show nothing the server is asked before anything is
made: one by one, or for many the namespace at once, by names alone, and again only after a while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

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


class ForeignObjects:
    """Finds what is in the way of names that our watches do not show. Remembers answers for half a minute."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client
        self._instance = cluster.instance
        self._clock = cluster.clock
        self._known: dict[tuple[ObjectKind, str], tuple[float, Names]] = {}

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
            taken = (name for name in names.keys() & there.keys() if there[name] != self._instance)
            found |= {names[name]: there[name] for name in taken}
        return found

    def require_free(self, target: Target) -> bool:
        """Whether something of ours has the name of an object; ApplyError when something else has, or when that
        cannot be told."""
        try:
            there = self._names(target.kind, target.namespace, {target.name: None})
        except ApiError as problem:
            raise apply_error(problem, f"look whether there is a {target}") from problem
        if there.get(target.name, self._instance) != self._instance:
            raise NotYet(f"{target} is there and is not ours; it is planned again")
        return target.name in there

    def forget(self, target: Target) -> None:
        """Ask again: something there became ours, or is not as we thought."""
        self._known.pop((target.kind, target.namespace), None)

    def _names(self, kind: ObjectKind, namespace: str, wanted: Mapping[str, object]) -> Names:
        """The names that are taken, and by whom: all of a namespace, or some of them."""
        now = self._clock.monotonic()
        known = self._known.get((kind, namespace))
        if known is not None and now - known[0] < KEPT_SECONDS:
            return known[1]
        if len(wanted) <= MAX_SINGLE:
            return self._single(kind, namespace, wanted)
        names = self._all(kind, namespace)
        self._known[(kind, namespace)] = (now, names)
        return names

    def _single(self, kind: ObjectKind, namespace: str, wanted: Mapping[str, object]) -> Names:
        found: Names = {}
        for name in wanted:
            try:
                answer = self._client.request("GET", kind.path(namespace, name), headers=ONE_METADATA)
            except ApiError as problem:
                if problem.status != 404:  # anything else is no answer
                    raise
                continue
            found[name] = self._mark(answer)
        return found

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
        """The instance that an object is marked by. What we applied and lost its label is ours as well."""
        metadata = found.get("metadata") or {}
        label = str((metadata.get("labels") or {}).get(INSTANCE, ""))
        return label or (self._instance if is_applied(metadata) else "")
