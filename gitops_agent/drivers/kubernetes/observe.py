"""What is live in a cluster, from the cache of its watches: no request for what we applied.

What we compare is what the API server says is ours: the live object cut down to the fields that our manager owns
has the digest that it had after our last apply, or something of ours was changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import orjson

from gitops_agent.drivers.api import (
    RUNTIME,
    AgentKey,
    Base,
    Evidence,
    Fields,
    Health,
    HealthState,
    Observation,
    ObserveError,
    ObserveRequest,
    Owner,
    Resource,
    ResourceKey,
    not_looked_at,
)
from gitops_agent.drivers.kubernetes.cache import Entry
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.foreign import ForeignObjects
from gitops_agent.drivers.kubernetes.kinds import NAMESPACE, OWNED, POD, SECRET, WORKLOADS, ObjectKind
from gitops_agent.drivers.kubernetes.limits import effective_overwrite
from gitops_agent.drivers.kubernetes.marks import MANAGER, VALUES, WRITING
from gitops_agent.drivers.kubernetes.objects import (
    MARKS,
    Target,
    is_pod_of,
    lost_marks,
    notes_of,
    shown_fields,
    stands_for_resource,
    template_of,
)
from gitops_agent.drivers.kubernetes.ownership import Taken, missing, owned_digest, taken
from gitops_agent.drivers.kubernetes.pods import workloads_of
from gitops_agent.drivers.kubernetes.rollout_status import instances, judged, service_health
from gitops_agent.drivers.kubernetes.secrets import writing_of
from gitops_agent.drivers.kubernetes.warning_events import WarningEvents
from gitops_agent.model.fields import digest
from gitops_agent.model.health_spec import ON_SECRET_CHANGE, STOPPED

SOURCE = "Kubernetes API"
RESOURCES = tuple(dict.fromkeys(each.resource for each in OWNED))
LEFTOVER = "Leftover"
_WELL = (HealthState.HEALTHY, HealthState.STOPPED)
HEARTBEAT = b'"heartbeat":{'
_APPLIED = (MANAGER, "Apply")
NOT_OURS = "of another"
NOTHING_HIDDEN: Mapping[str, ObserveError] = MappingProxyType({})
MAX_TOLD = 3
"""Changed fields that a message names."""


@dataclass(frozen=True, slots=True)
class Sight:
    """How one object looks: the digest of what is ours in it. ``mark``: as long as it is the same, so is that."""

    resource_version: str
    owned: str
    mark: str

    def handle(self, entry: Entry) -> dict[str, str]:
        """What our record keeps of it."""
        return {"owned": self.owned, "uid": entry.uid, "mark": self.mark}


@dataclass(frozen=True, slots=True)
class Steady:
    """An agent of which nothing is to be said but what was said last time: it costs no look at its objects."""

    objects: tuple[Entry, ...]
    bases: tuple[Base | None, ...]
    observations: Sequence[Observation]


class Observing:
    """Observes the agents of one instance in one cluster."""

    def __init__(self, cluster: Cluster, foreign: ForeignObjects, warnings: WarningEvents) -> None:
        self._cluster = cluster
        self._warnings = warnings
        self._driver = cluster.driver
        self._cache = cluster.cache
        self._objects = cluster.objects
        self._foreign = foreign
        self._sights: dict[AgentKey | None, dict[tuple[str, str, str], Sight]] = {}
        self._steady: dict[AgentKey, Steady] = {}

    def observe(
        self, request: ObserveRequest, blind: Mapping[str, ObserveError] = NOTHING_HIDDEN
    ) -> Sequence[Observation]:
        """Every object of ours in scope, the absence of those on record, and what stands in the way of a claim.
        ``blind``: the namespaces of which what the watches say does not count, and why."""
        now = self._cluster.clock.now()
        agents = self._cache.agents() if request.scope is None else request.scope
        if request.scope is None:
            self._forget_all_but(agents)
        hidden = self._hidden(agents, request, blind, now) if blind else {}
        if hidden:
            request, agents = _without(request, hidden), agents - hidden.keys()
        seen: dict[ResourceKey, Observation] = {}
        for agent in agents:
            for each in self._of_agent(agent, request, now):
                seen[each.key] = each
        seen |= self._not_there(request, seen, now)
        return [*seen.values(), *(each for of_agent in hidden.values() for each in of_agent)]

    def _forget_all_but(self, agents: AbstractSet[AgentKey]) -> None:
        """Drop what was seen of agents that have no objects any more."""
        for gone in self._steady.keys() - agents:
            del self._steady[gone]
        for each in [each for each in tuple(self._sights) if each not in agents]:  # others may add meanwhile
            del self._sights[each]

    def _hidden(
        self,
        agents: AbstractSet[AgentKey],
        request: ObserveRequest,
        blind: Mapping[str, ObserveError],
        now: float,
    ) -> dict[AgentKey, list[Observation]]:
        """The agents with something in a namespace that cannot be looked at: nothing is said of any part of them
        but that."""
        legs: dict[ResourceKey, Base | Resource] = {**request.claims, **request.bases}
        places = [(key, self._objects.namespace(key.agent, leg.fields.value)) for key, leg in legs.items()]
        places += [
            (ResourceKey(agent, RUNTIME.name, self._driver), each.namespace)
            for agent in agents
            for each in self._cache.objects_of(agent)
        ]
        why = {key.agent: f"{each.message}; {each.hint}" for key, place in places if (each := blind.get(place))}
        found: dict[AgentKey, list[Observation]] = {agent: [] for agent in why}
        for key in {key for key, _ in places if key.agent in why}:
            found[key.agent].append(not_looked_at(key, self._driver, why[key.agent], now))
        return found

    def _not_there(
        self, request: ObserveRequest, seen: Mapping[ResourceKey, Observation], now: float
    ) -> dict[ResourceKey, Observation]:
        """What is on record or claimed and not among our objects: gone, or something else has its name."""
        legs: dict[ResourceKey, Base | Resource] = {**request.claims, **request.bases}
        targets = {
            key: self._objects.target(key.agent, leg.fields.value) for key, leg in legs.items() if key not in seen
        }
        watched = {key: each for key, each in targets.items() if self._objects.is_watched(each.namespace)}
        in_the_way = self._foreign.among(watched)
        found = {key: self._not_ours(key, mark, targets[key], now) for key, mark in in_the_way.items()}
        for key in targets.keys() & request.bases.keys() - found.keys():
            known = key in watched
            found[key] = self._absent(key, targets[key], now) if known else self._unknown(request.bases[key], now)
        return found

    def _of_agent(self, agent: AgentKey, request: ObserveRequest, now: float) -> Sequence[Observation]:
        """What there is of one agent: as last seen, if nothing of it and of our record has changed since."""
        found = self._cache.objects_of(agent)
        bases = tuple(request.bases.get(ResourceKey(agent, kind, self._driver)) for kind in RESOURCES)
        known = self._steady.get(agent)
        if known is not None and known.objects == found and known.bases == bases:
            return [replace(each, observed_at=now) for each in known.observations]
        pods = [each for each in found if each.kind is POD]
        made = _without_early_leftovers(
            [
                self._present(key, entries, pods, request, now)
                for key, entries in self._entries(agent, found, request).items()
            ]
        )
        self._steady.pop(agent, None)
        steady = all(_is_steady(each) and each.key in request.bases for each in made)
        if steady and agent not in self._warnings:  # what is asked may change it without an event of a watch
            self._steady[agent] = Steady(found, bases, made)
        return made

    def sight(self, entry: Entry, base: Base | None = None) -> Sight:
        """How an object looks. ``base``: our record of it, which knows it from before we were started."""
        where = (entry.kind.kind, entry.namespace, entry.name)
        sights = self._sights.setdefault(entry.agent, {})
        known = sights.get(where)
        if known is None or known.resource_version != entry.resource_version:
            mark, before = _mark_of(entry), known or _recorded(base)
            owned = before.owned if before is not None and before.mark == mark else _owned(entry)
            known = sights[where] = Sight(entry.resource_version, owned, mark)
        return known

    def takers(self, live: dict[str, Any], manifest: dict[str, Any]) -> tuple[Taken, ...]:
        """The fields of a manifest that another manager owns in a live object, with another value."""
        if manifest["kind"] == SECRET.kind:  # what it holds is not looked at: who owns it tells
            live = {**live, "data": manifest.get("data") or {}}
        return tuple(each for each in taken(live, manifest) if each.differs)

    def _entries(
        self, agent: AgentKey, found: Sequence[Entry], request: ObserveRequest
    ) -> dict[ResourceKey, list[Entry]]:
        """The objects of an agent by the resource that each stands for."""
        listed: dict[ResourceKey, list[Entry]] = {}
        for entry in found:
            key = ResourceKey(agent, entry.kind.resource, self._driver)
            if stands_for_resource(entry) and not self._is_copy(
                entry, request.bases.get(key) or request.claims.get(key)
            ):
                listed.setdefault(key, []).append(entry)
        return listed

    def _is_copy(self, entry: Entry, known: Base | Resource | None) -> bool:
        """Whether an object of an agent that is on record or in Git is neither there nor anywhere of its tenant: a
        copy, such as of a backup that was restored elsewhere. It is nothing that is left to remove."""
        if known is None or entry.agent is None or self._cache.is_of(entry.agent.tenant, entry.namespace):
            return False
        return target_of(entry) != self._objects.target(entry.agent, known.fields.value)

    def _present(
        self, key: ResourceKey, entries: list[Entry], pods: Sequence[Entry], request: ObserveRequest, now: float
    ) -> Observation:
        base, claim = request.bases.get(key), request.claims.get(key)
        known = _visible(base.fields) if base is not None else claim.fields if claim is not None else None
        entry = self._chosen(key.agent, entries, known)
        leftovers = [each for each in entries if each is not entry]
        live: dict[str, Any] | None = None
        reason, message = None, ""
        if known is None:  # an orphan: its marks are all that is known of it
            fields = Fields.of({"kind": entry.kind.kind, "namespace": entry.namespace})
        elif base is not None and self._is_as_applied(entry, base) and not _scaled_live(base):
            fields = known
        else:
            live = entry.object()
            fields = self._shown(key, entry, live, known, base)
            if _but_for_scale(fields) != _but_for_scale(known):
                reason, message = self._difference(live, key.agent, known, now)
        if reason is None and leftovers:
            named = ", ".join(str(target_of(each)) for each in leftovers)
            reason, message = LEFTOVER, f"also there: {named}"
        if reason is None and base is not None and entry.kind is SECRET:
            reason = self._rotated(key, entry, base)
        seen = Observation(
            key=key,
            driver=self._driver,
            owner=Owner.OURS,
            fields=fields,
            state="Present",
            observed_at=now,
            reason=reason,
            message=message,
            live={"namespace": entry.namespace, "object": f"{entry.kind.kind}/{entry.name}"},
            handle=Fields.of(self.sight(entry, base).handle(entry)),
            authoritative=True,
        )
        if b'"deletionTimestamp"' in entry.raw and entry.object()["metadata"].get("deletionTimestamp"):
            seen = replace(seen, reason="Ending", state="Ending", message="it is being deleted")
        if entry.kind in WORKLOADS:
            beats = known is not None and HEARTBEAT in known.raw
            return self._with_pods(seen, live or entry.object(), pods, now, beats=beats)
        if key.kind == "service":
            return replace(seen, health=_unless_healthy(service_health(live or entry.object())))
        return seen

    def _chosen(self, agent: AgentKey, entries: list[Entry], known: Fields | None) -> Entry:
        """The object that is where it belongs, or else any: the rest is left from before it moved."""
        if len(entries) == 1 or known is None:
            return entries[0]
        wanted = self._objects.target(agent, known.value)
        return next((each for each in entries if target_of(each) == wanted), entries[0])

    def _is_as_applied(self, entry: Entry, base: Base) -> bool:
        handle = base.handle.value
        if not handle.get("owned") or handle.get("uid") != entry.uid:
            return False
        return bool(handle["owned"] == self.sight(entry, base).owned)

    def _shown(
        self, key: ResourceKey, entry: Entry, live: dict[str, Any], known: Fields, base: Base | None
    ) -> Fields:
        if entry.kind is SECRET:  # what it holds is not looked at, only whether it is still what we wrote
            if base is None and not self._cluster.secrets.is_rotated(
                str(key), known.value["secrets"], _mark(live)
            ):
                return known
            return Fields.of({**known.value, "secrets": "changed in the cluster"})
        shown = shown_fields(live, known)
        lost = lost_marks(live, self._objects.manifest(key.agent, known)) if shown == known else []
        return Fields.of({**known.value, "lost": lost}) if lost else shown

    def _difference(self, live: dict[str, Any], agent: AgentKey, known: Fields, now: float) -> tuple[str, str]:
        """Why an object differs from what was applied, and by whom."""
        manifest = self._objects.manifest(agent, known)
        if "secrets" in known.value:
            manifest["data"] = {each["name"]: "" for each in known.value["secrets"]}
        takers = self.takers(live, manifest)
        if not takers:
            lost = missing(live, manifest)
            return "FieldsReverted", f"gone: {', '.join(lost[:MAX_TOLD])}" if lost else ""
        told = "; ".join(each.sentence(now) for each in takers[:MAX_TOLD])
        more = f"; and {len(takers) - MAX_TOLD} more" if len(takers) > MAX_TOLD else ""
        overwrite = effective_overwrite(self._cluster.settings, known.value)
        may = all(self._cluster.may_overwrite(each, overwrite) for each in takers)
        return ("EditedByHand" if may else "TakenOver"), told + more

    def values_mark(self, namespace: str, name: str) -> str:
        """The mark of the values that a Secret of ours was last given; "" when there is none."""
        entry = self._cache.get(SECRET, namespace, name)
        return _mark(entry.object()) if entry is not None else ""

    def _rotated(self, key: ResourceKey, entry: Entry, base: Base) -> str | None:
        """The reason when the agent was started with other values than its secrets have now."""
        fields, mark = base.fields.value, _mark(entry.object())
        rotated = self._cluster.secrets.is_rotated(str(key), fields.get("secrets", ()), mark)
        return "SecretRotated" if rotated or self.owes_restart(key.agent, fields, mark) else None

    def owes_restart(self, agent: AgentKey, secret: Mapping[str, Any], mark: str) -> bool:
        """Whether pods that follow their Secret still begin with an earlier writing of it, as their template says:
        we ended between writing and restarting, or the restart failed. ``secret``: the fields of the Secret."""
        writing = writing_of(mark)
        if secret.get(ON_SECRET_CHANGE) != "Restart" or not writing:
            return False
        for entry in workloads_of(self._cache, agent):
            if f'"{WRITING}":"{writing}"'.encode() in entry.raw:
                continue
            if notes_of(template_of(entry.object())).get(WRITING, writing) != writing:
                return True
        return False

    def _with_pods(
        self, seen: Observation, live: dict[str, Any], found: Sequence[Entry], now: float, *, beats: bool
    ) -> Observation:
        """The observation of a workload with how its pods do. ``beats``: by their heartbeats, which are core's to
        judge, of pods that the cluster finds ready; all else the cluster knows best."""
        pods = [pod for each in found if is_pod_of(live, pod := each.object())]
        copies = instances(pods, now, self._cluster.redactor, template_of(live))
        health = self._health(seen.key.agent, live, pods, now)
        run = digest(repr(sorted((copy.id, copy.started_at) for copy in copies)).encode())
        status = live.get("status") or {}
        wanted, ready = (live.get("spec") or {}).get("replicas"), status.get("readyReplicas", 0)
        said = f"{ready} of {wanted} pods are ready" if wanted is not None else "a schedule"
        return replace(
            seen,
            state=health.reason if health.state is not HealthState.HEALTHY else "Running",
            health=None if beats and health.state is HealthState.HEALTHY and copies else health,
            instances=copies,
            evidence=(Evidence(SOURCE, said, now),),
            live={
                **seen.live,
                "replicas": [{"index": copy.id, "pod": copy.id, "ready": copy.ready} for copy in copies],
            },
            handle=Fields.of({**seen.handle.value, "run": run}),
        )

    def _health(self, agent: AgentKey, live: dict[str, Any], pods: Sequence[dict[str, Any]], now: float) -> Health:
        """How a workload does, by its events too where nothing else says why."""
        health, about = judged(live, pods, now, self._cluster.redactor)
        if not about:
            self._warnings.forget(agent)
            return health
        told = self._warnings.about(agent, live["metadata"]["namespace"], about)
        return judged(live, pods, now, self._cluster.redactor, told).health if told else health

    def _unknown(self, base: Base, now: float) -> Observation:
        """An object in a namespace that we do not look at: nothing is concluded, and nothing done."""
        namespace = self._objects.target(base.key.agent, base.fields.value).namespace
        message = f"namespace {namespace} is not among drivers.kubernetes.namespaces, so it is not looked at"
        return Observation(
            key=base.key,
            driver=self._driver,
            owner=Owner.OURS,
            fields=_visible(base.fields),
            state="NotWatched",
            observed_at=now,
            message=message,
            handle=base.handle,
            health=Health(HealthState.UNKNOWN, "NotWatched", message),
        )

    def _absent(self, key: ResourceKey, target: Target, now: float) -> Observation:
        namespace = self._cache.get(NAMESPACE, "", target.namespace)
        gone = namespace is None
        reason = "NamespaceMissing" if gone else "ObjectMissing"
        message = f"namespace {target.namespace} is gone" if gone else f"{target} is gone"
        return Observation(
            key=key,
            driver=self._driver,
            owner=Owner.OURS,
            fields=None,
            state="Missing",
            observed_at=now,
            reason=reason,
            message=message,
            evidence=(Evidence(SOURCE, message, now),),
            authoritative=True,
        )

    def _not_ours(self, key: ResourceKey, other: str, target: Target, now: float) -> Observation:
        """An object that is in the way of a claim: it has the name, and not our marks."""
        return Observation(
            key=key,
            driver=self._driver,
            owner=Owner.OTHER if other else Owner.NONE,
            # Whatever it holds, it is not what we would apply: adopted, it is written and not only put on record.
            fields=Fields.of({"kind": target.kind.kind, "manifest": NOT_OURS}),
            state="Foreign",
            observed_at=now,
            message=f"{target} is there and {f'belongs to the instance {other}' if other else 'is not ours'}",
            evidence=(Evidence(SOURCE, f"{target} carries no mark of ours", now),),
            authoritative=True,
        )


def _without(request: ObserveRequest, hidden: Collection[AgentKey]) -> ObserveRequest:
    """The request without some agents."""
    return replace(
        request,
        bases={key: base for key, base in request.bases.items() if key.agent not in hidden},
        claims={key: claim for key, claim in request.claims.items() if key.agent not in hidden},
    )


def _without_early_leftovers(made: list[Observation]) -> list[Observation]:
    """The same, where what is left from before a move is no reason to act before the agent is well where it is
    now: it may have to go back. The workload goes first, then what it was made of."""
    runtime = next((each for each in made if each.key.kind == RUNTIME.name), None)
    # Without health it is well as far as the cluster knows, and judged by its heartbeats.
    well = runtime is not None and (runtime.health is None or runtime.health.state in _WELL)
    moved = well and runtime is not None and runtime.reason is None
    kept = [
        replace(each, reason=None, message="")
        if each.reason == LEFTOVER and not (well if each is runtime else moved)
        else each
        for each in made
    ]
    left = next((each.message for each in kept if each.reason == LEFTOVER), "")
    # It has moved when nothing is left behind: until then the commit that moved it has not converged.
    moving = Health(HealthState.STARTING, LEFTOVER, left)
    return [replace(each, health=moving) if left and each.key.kind == RUNTIME.name else each for each in kept]


def _is_steady(seen: Observation) -> bool:
    """Whether only an event can change what is seen: it is well, and no secret or heartbeat is behind it."""
    if seen.reason is not None or seen.key.kind == SECRET.resource:
        return False
    if seen.key.kind != RUNTIME.name:
        return seen.health is None
    return seen.health is not None and seen.health.state is HealthState.HEALTHY


def _recorded(base: Base | None) -> Sight | None:
    """How an object looked when our record of it was made."""
    handle = base.handle.value if base is not None else {}
    return Sight("", handle["owned"], handle["mark"]) if handle.get("owned") and handle.get("mark") else None


def _mark_of(entry: Entry) -> str:
    """A text that changes whenever what is ours in an object may have, at a tenth of the price of that digest:
    the generation counts the changes of a spec, and status is none of our business. What has no generation has no
    status that others keep writing, so there the version will do."""
    if not entry.generation:
        return f"{entry.uid} {entry.resource_version}"
    metadata = entry.object()["metadata"]
    ours = _applied(metadata)
    annotations = metadata.get("annotations") or {}
    steps = {step for each in ours for step in (each.get("f:metadata") or {}).get("f:annotations") or ()}
    kept = [(name, value) for name, value in annotations.items() if f"f:{name}" in steps and name not in MARKS]
    seen = [entry.uid, entry.generation, metadata.get("labels"), kept, ours]
    return digest(orjson.dumps(seen, option=orjson.OPT_SORT_KEYS))


def _applied(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the server says that our applies own."""
    entries = metadata.get("managedFields") or ()
    return [
        each.get("fieldsV1") or {} for each in entries if (each.get("manager"), each.get("operation")) == _APPLIED
    ]


def _owned(entry: Entry) -> str:
    live = entry.object()
    if entry.kind is not SECRET:
        return owned_digest(live, volatile=MARKS)
    # Of a Secret we see no values, but a value that was changed is no longer ours by name.
    ours = _applied(live["metadata"])
    return digest(orjson.dumps([ours, owned_digest(live, volatile=MARKS)], option=orjson.OPT_SORT_KEYS))


def _visible(fields: Fields) -> Fields:
    """The fields of a record without the mark that core puts on a stopped one: no object shows it."""
    if b'"stopped":true' not in fields.raw:
        return fields
    return Fields.of({name: value for name, value in fields.value.items() if name != STOPPED})


def _scaled_live(base: Base) -> bool:
    return b'"scaledBy":"live"' in base.fields.raw


def _but_for_scale(fields: Fields) -> Fields:
    """The fields without the number of replicas where live decides on it."""
    value = fields.value
    if value.get("scaledBy") != "live":
        return fields
    return Fields.of({name: each for name, each in value.items() if name != "replicas"})


def is_not_ours(live: Fields | None) -> bool:
    """Whether live fields are those of an object that is not ours (``Observing._not_ours``)."""
    return live is not None and live.value.get("manifest") == NOT_OURS


def _mark(secret: dict[str, Any]) -> str:
    """The mark of the values that a Secret was last given."""
    return str(notes_of(secret).get(VALUES, ""))


def target_of(entry: Entry) -> Target:
    """Where an object is."""
    return Target(entry.kind, entry.namespace, entry.name)


def _unless_healthy(health: Health) -> Health | None:
    return None if health.state is HealthState.HEALTHY else health


def kinds_of(resource: str) -> tuple[ObjectKind, ...]:
    """The kinds of objects that a kind of resource may be."""
    return tuple(each for each in OWNED if each.resource == resource)
