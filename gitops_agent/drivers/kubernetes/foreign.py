"""Objects that have the name of one of ours and not our marks: they are in the way, and never touched unasked.

Our watches see only what carries our marks, so where they show nothing the server is asked before anything is
made: one by one, or for many the namespace at once, by names alone, and again only after a while or after a write.
Of many namespaces one list says which there are: a first commit does not look into each that is still to be made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, NamedTuple

from gitops_agent.drivers.api import NotYet, ResourceKey
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.errors import ApiError, apply_error
from gitops_agent.drivers.kubernetes.kinds import NAMESPACE, ObjectKind
from gitops_agent.drivers.kubernetes.marks import INSTANCE
from gitops_agent.drivers.kubernetes.objects import Target, is_applied

LIST_METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
ONE_METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
KEPT_SECONDS, TAKEN_SECONDS = 30.0, 5.0
"""For how long it is known that a name is free, or taken: people who clear the way wait for us to see it."""

FAILED_SECONDS = 5.0
"""For how long a look does not ask again where it got no answer, unless the server says how long."""

MAX_SINGLE = 3
"""Up to so many names of one kind in a namespace are asked for one by one."""

ASKED_AT_ONCE = 8
"""So many places are asked for side by side: one after the other could take longer than answers are kept."""

Names = dict[str, str]
"""The instance that an object is marked by, "" for none, by its name."""

Place = tuple[ObjectKind, str]
"""One kind in one namespace."""

_NAMESPACES: Place = (NAMESPACE, "")


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
        self.silent_until = -math.inf  # a look that got no answer does not ask before

    def unknown(self, names: Iterable[str], now: float) -> list[str]:
        """Those of some names that are to be asked for."""
        return [name for name in names if self.of(name, now) is None]

    def taken(self, names: Iterable[str], now: float) -> Names:
        """Those of some names that are known to be taken, and by whom."""
        said = {name: self.of(name, now) for name in names}
        return {name: each.mark for name, each in said.items() if each is not None and each.mark is not None}

    def of(self, name: str, now: float) -> _Said | None:
        """What is known of a name; None when it is to be asked for."""
        said = self._said.get(name, self._listed)
        kept = KEPT_SECONDS if said.mark is None else TAKEN_SECONDS
        return said if said.sure and now - said.asked_at < kept else None

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
        return now - newest >= KEPT_SECONDS and now >= self.silent_until


class ForeignObjects:
    """Finds what is in the way of names that our watches do not show. Remembers answers for a while."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client
        self._cache = cluster.cache
        self._may_list_namespaces = not cluster.settings.namespaces
        self._instance = cluster.instance
        self._clock = cluster.clock
        self._known: dict[Place, _Answers] = {}
        self._silent_until = -math.inf
        self._looked_at = cluster.clock.monotonic()

    def among(self, wanted: Mapping[ResourceKey, Target]) -> dict[ResourceKey, str]:
        """Those whose place is taken, each with the instance that marked what is there, or nothing. Where we are
        not told, nothing is known: ``require_free`` asks again before a write."""
        grouped: defaultdict[Place, dict[str, ResourceKey]] = defaultdict(dict)
        for key, target in wanted.items():
            grouped[(target.kind, target.namespace)][target.name] = key
        now = self._clock.monotonic()
        self._drop_old(now)
        due = [place for place, names in grouped.items() if self._answers(place).unknown(names, now)]
        self._note_missing(due, now)
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            list(pool.map(lambda place: self._try_to_ask(place, grouped[place]), due))
        found: dict[ResourceKey, str] = {}
        for place, names in grouped.items():
            there = self._answers(place).taken(names, now)
            found |= {names[name]: mark for name, mark in there.items() if mark != self._instance}
        return found

    def require_free(self, target: Target) -> bool:
        """Whether something of ours has the name of an object; ApplyError when something else has, or when that
        cannot be told."""
        place, now = (target.kind, target.namespace), self._clock.monotonic()
        self._drop_old(now)
        try:
            self._ask(place, (target.name,))
        except ApiError as problem:
            raise apply_error(problem, f"look whether there is a {target}") from problem
        there = self._answers(place).taken((target.name,), now)
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

    def _answers(self, place: Place) -> _Answers:
        return self._known.setdefault(place, _Answers())

    def _note_missing(self, due: Iterable[Place], now: float) -> None:
        """Take it that a namespace that is not there holds nothing. Those that our watches show are there; for
        many others one list is asked for."""
        unseen = {namespace for _, namespace in due if self._cache.get(NAMESPACE, "", namespace) is None}
        if len(unseen) <= MAX_SINGLE or not self._may_list_namespaces:
            return
        self._try_to_ask(_NAMESPACES, unseen)
        namespaces = self._answers(_NAMESPACES)
        for kind, namespace in due:
            said = namespaces.of(namespace, now) if namespace in unseen else None
            if said is not None and said.mark is None:
                self._answers((kind, namespace)).take_all({}, said.asked_at)

    def _try_to_ask(self, place: Place, names: Collection[str]) -> None:
        """Ask as a look does: an error leaves things unknown, and nothing is asked for some time after it. Where
        it is no answer, or asks for patience, that is so for all places."""
        known = self._answers(place)
        if self._clock.monotonic() < max(known.silent_until, self._silent_until):
            return
        try:
            self._ask(place, names)
        except ApiError as problem:
            until = self._clock.monotonic() + (problem.retry_after or FAILED_SECONDS)
            if problem.answered and problem.status != 429:
                known.silent_until = until
            else:
                self._silent_until = until

    def _ask(self, place: Place, names: Collection[str]) -> None:
        """Ask for those of some names of which nothing is known."""
        known, now = self._answers(place), self._clock.monotonic()
        unknown = known.unknown(names, now)
        if len(unknown) > MAX_SINGLE:
            known.take_all(self._all(*place), now)
        else:
            for name in unknown:
                known.take(name, _Said(now, self._single(*place, name)))

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
