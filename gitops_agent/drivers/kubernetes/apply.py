"""Making live equal to desired: server-side apply under our own manager, guarded by the version that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_agent.drivers.api import (
    Action,
    AgentKey,
    Applied,
    ApplyError,
    Class,
    Fields,
    NotYet,
    ResourceKey,
    Verb,
)
from gitops_agent.drivers.kubernetes.cache import Entry
from gitops_agent.drivers.kubernetes.client import MERGE_PATCH, Client
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.errors import ApiError, Rejected, apply_error
from gitops_agent.drivers.kubernetes.foreign import ForeignObjects
from gitops_agent.drivers.kubernetes.kinds import OWNED, POD, SECRET, SERVICE, WORKLOADS
from gitops_agent.drivers.kubernetes.limits import effective_overwrite, require_confined
from gitops_agent.drivers.kubernetes.manifests import TEMPLATE_PATHS
from gitops_agent.drivers.kubernetes.marks import (
    MANAGER,
    RESTART_MANAGER,
    RESTARTED_AT,
    SPEC,
    VALUES,
    WRITING,
)
from gitops_agent.drivers.kubernetes.namespaces import Namespaces, not_theirs
from gitops_agent.drivers.kubernetes.objects import (
    Target,
    notes_of,
    stands_for_resource,
    template_of,
    was_applied,
)
from gitops_agent.drivers.kubernetes.observe import LEFTOVER, Observing, is_not_ours, kinds_of, target_of
from gitops_agent.drivers.kubernetes.ownership import owned
from gitops_agent.drivers.kubernetes.pods import pods_of, workloads_of
from gitops_agent.drivers.kubernetes.secrets import encoded, fits, marked, writing_of
from gitops_agent.drivers.kubernetes.store import as_served, keep_raw

MAX_TRIES = 4
"""How often an object is read again because its status moved on between our look and our write."""

ROTATED = "SecretRotated"


class Applying:
    """Carries out actions in one cluster."""

    def __init__(
        self, cluster: Cluster, observing: Observing, namespaces: Namespaces, foreign: ForeignObjects
    ) -> None:
        self._cluster = cluster
        self._cache = cluster.cache
        self._objects = cluster.objects
        self._observing = observing
        self._namespaces = namespaces
        self._foreign = foreign

    def apply(self, action: Action, key: str) -> Applied:
        """Carry out one action; ApplyError says what the API server had against it."""
        if action.verb is Verb.DELETE or action.desired is None:
            return self._delete(action)
        if action.verb is Verb.RESTART and action.drift_class is Class.STUCK_PROGRESS:
            return self._restart(action, key)
        applied = self._put(action)
        if action.reason == ROTATED or self._owes_restart(action):
            self._roll(action.key, key)
        return applied

    def _owes_restart(self, action: Action) -> bool:
        """Whether a Secret that was repaired has other values than its pods began with. What a commit changes is
        left to its template, and looked at again after that."""
        if action.desired is None or action.base != action.desired or action.key.kind != SECRET.resource:
            return False
        target = self._objects.target(action.key.agent, action.desired.value)
        mark = self._observing.values_mark(target.namespace, target.name)
        return self._observing.owes_restart(action.key.agent, action.desired.value, mark)

    # -- put

    def _put(self, action: Action) -> Applied:
        assert action.desired is not None
        agent = action.key.agent
        target = self._objects.target(agent, action.desired.value)
        self._require_watched(target.namespace)
        self._require_seen(target.namespace)
        with self._namespaces.entered(target.namespace):
            self._namespaces.require(target.namespace, agent.tenant)
            return self._put_into(action, target)

    def _put_into(self, action: Action, target: Target) -> Applied:
        assert action.desired is not None
        agent = action.key.agent
        manifest = self._objects.manifest(agent, action.desired)
        require_confined(self._cluster.settings, manifest)
        if target.kind is SECRET:
            self._fill(manifest, str(action.key), action.desired, target)
        elif target.kind in WORKLOADS:
            self._note_writing(manifest, target)
        exclusive = action.desired.value.get("exclusive")
        standing = self._standing(action.key, action.base if exclusive else None)
        # It moved, or is of another kind.
        leftovers = [each for each in standing if target_of(each) != target]
        if leftovers and exclusive:
            self._end_first(leftovers, agent)
        entry = self._store(action, target, manifest, adopting=is_not_ours(action.live))
        if action.reason == LEFTOVER:
            for left in leftovers:
                self._remove(left, agent)
        handle = Fields.of(self._observing.sight(entry).handle(entry))
        return Applied(f"applied {target}", handle)

    def _store(self, action: Action, target: Target, manifest: dict[str, Any], *, adopting: bool) -> Entry:
        assert action.desired is not None
        agent, client = action.key.agent, self._cluster.writer(target.namespace, action.key.agent)
        for _ in range(MAX_TRIES):
            seen, force = None if adopting else self._seen(client, target), adopting
            body = manifest if adopting else _with_scale(manifest, action.desired, seen)
            # The guard: what was looked at is what is written to, or nothing is written.
            if adopting:
                body = _guarded(body, self._foreign.require_adoptable(target))
            elif seen is not None:
                self._require_unchanged(action, seen)
                force = self._may_take(action, seen, body)
                if _must_be_made_anew(seen, body):
                    self._end_at_once(seen, agent)
                    continue
                body = _guarded(body, {"resourceVersion": seen.resource_version, "uid": seen.uid})
            try:
                created, stored = client.put(target.path, body, manager=MANAGER, force=force)
            except ApiError as problem:
                # Also where others hold fields now: if that is news, it is for the next plan to judge.
                if problem.status == 409 and not (adopting or seen):
                    raise self._made_by_another(target) from problem
                moved = problem.status == 409 and (adopting or (seen and self._moved_on(client, target, seen)))
                if not moved:
                    raise self._meaning(problem, f"apply {target}") from problem
                continue
            if adopting or seen is None:
                self._foreign.forget(target)
            if not (adopting or seen or created):
                self._let_go(client, target)
            return self._cache.note_object(target.kind, stored)
        raise NotYet(f"{target} of {agent} changes too quickly; it is tried again")

    def _seen(self, client: Client, target: Target) -> Entry | None:
        """What we applied under a name: as our watches show it, or, where it has lost its label, as the server has
        it now; None when the name is free."""
        seen = self._cache.get(target.kind, target.namespace, target.name)
        if seen is None and self._foreign.require_free(target):
            found = self._read(client, target)
            seen = keep_raw(target.kind, as_served(target.kind, found)) if found is not None else None
        if seen is not None and not was_applied(seen):
            self._foreign.forget(target)
            raise NotYet(f"{target} carries our labels and is not ours; it is planned again")
        return seen

    def _let_go(self, client: Client, target: Target) -> None:
        """Give up the fields that our apply merged into an object that others made in the same moment."""
        bare = {"apiVersion": target.kind.api_version, "kind": target.kind.kind}
        metadata = {"name": target.name, "namespace": target.namespace}
        try:
            client.apply(target.path, {**bare, "metadata": metadata}, manager=MANAGER, force=False)
        except ApiError as problem:
            if problem.status != 422:  # it would be incomplete without what we set: then it is theirs as it is
                raise self._meaning(problem, f"let go of {target}") from problem
        raise self._made_by_another(target)

    def _made_by_another(self, target: Target) -> NotYet:
        """What to raise when somebody was quicker than our first apply; the next plan looks who."""
        self._foreign.forget(target)
        return NotYet(f"{target} was made by another in the same moment; it is planned again")

    def _require_unchanged(self, action: Action, seen: Entry) -> None:
        """NotYet when what is ours in the object is no longer as the plan saw it."""
        planned = action.handle.value.get("owned") if action.handle is not None else None
        if planned and action.live is not None and planned != self._observing.sight(seen).owned:
            raise NotYet(f"{target_of(seen)} was changed since the plan was made; it is planned again")

    def _may_take(self, action: Action, seen: Entry, manifest: dict[str, Any]) -> bool:
        """Whether fields of ours are taken back from managers that hold them; Rejected when some may not be."""
        assert action.desired is not None
        live, overwrite = seen.object(), effective_overwrite(self._cluster.settings, action.desired.value)
        takers = self._observing.takers(live, manifest)
        lent = _is_lent(action.base) and not _is_lent(action.desired)
        kept = [
            each
            for each in takers
            if not (self._cluster.may_overwrite(each, overwrite) or (lent and each.path == "spec.replicas"))
        ]
        if kept:
            told = "; ".join(each.sentence() for each in kept[:3])
            raise Rejected(
                "Conflicting",
                f"{target_of(seen)}: another manager owns fields that Git sets: {told}",
                hint="take the field out of the document (authority: live for replicas), end the other manager's "
                "claim, or set runtime.kubernetes.overwrite: All, where drivers.kubernetes.maxOverwrite allows it",
                conflicts=tuple((each.path, each.manager) for each in kept),
            )
        # What Git stopped it starts, also where another has set the same zero beside us.
        return bool(takers) or (_replicas(live) == 0 and bool(_replicas(manifest)))

    def _moved_on(self, client: Client, target: Target, seen: Entry) -> bool:
        """Whether the object is another version than the one seen, read again; NotYet when it is gone or new."""
        found = self._read(client, target)
        if found is None:
            raise NotYet(f"{target} was deleted since the plan was made; it is planned again")
        # Of what is not noted here a watch would never say that it is gone.
        if found["metadata"]["uid"] != seen.uid:
            raise NotYet(f"{target} was replaced since the plan was made; it is planned again")
        if self._objects.is_ours(target.kind, found):
            self._cache.note_object(target.kind, found)
        return bool(found["metadata"]["resourceVersion"] != seen.resource_version)

    def _read(self, client: Client, target: Target) -> dict[str, Any] | None:
        """An object as the server has it now; None when there is none."""
        try:
            return client.get(target.path)
        except ApiError as problem:
            if problem.status == 404:
                return None
            raise self._meaning(problem, f"read {target}") from problem

    def _fill(self, manifest: dict[str, Any], owner: str, desired: Fields, target: Target) -> None:
        values = self._cluster.secrets.resolve(owner, desired.value["secrets"])
        manifest["data"] = {**(manifest.get("data") or {}), **encoded(values)}
        known = self._observing.values_mark(target.namespace, target.name)
        # The same values are the same writing: pods that began with it need no restart.
        manifest["metadata"]["annotations"][VALUES] = known if fits(known, values) else marked(values)

    def _note_writing(self, manifest: dict[str, Any], target: Target) -> None:
        """Note in the template which writing of the Secret its pods begin with. A template that stays as it is
        keeps what it says: to note another one would replace its pods."""
        seen = self._cache.get(target.kind, target.namespace, target.name)
        wanted, live = notes_of(template_of(manifest)), notes_of(template_of(seen.object() if seen else {}))
        if live.get(SPEC) == wanted.get(SPEC):
            writing = live.get(WRITING)
        else:
            writing = writing_of(self._observing.values_mark(target.namespace, target.name))
        if writing:
            wanted[WRITING] = writing

    def _standing(self, key: ResourceKey, record: Fields | None) -> list[Entry]:
        """The objects that a resource of an agent stands for, in namespaces of its tenant; Rejected when that on
        record is in none. What else is elsewhere is a copy, as of a backup, and for people to judge."""
        found = (each for kind in kinds_of(key.kind) for each in self._cache.of_agent(key.agent, kind))
        standing = [each for each in found if stands_for_resource(each)]
        theirs = [each for each in standing if self._cache.is_of(key.agent.tenant, each.namespace)]
        known = None if record is None else self._objects.target(key.agent, record.value)
        for entry in standing:
            if entry not in theirs and target_of(entry) == known:
                raise not_theirs(entry.namespace, key.agent.tenant)
        return theirs

    def _require_watched(self, namespace: str) -> None:
        if not self._objects.is_watched(namespace):
            raise Rejected(
                "NamespaceNotWatched",
                f"namespace {namespace} is not among drivers.kubernetes.namespaces, so nothing is done there",
                hint="add it there, or leave the setting out",
            )

    def _require_seen(self, namespace: str) -> None:
        """NotYet when a namespace cannot be looked at: what an agent would leave for it is not ended for that."""
        why = self._cache.doubt(namespace, self._cluster.settings.stale_after)
        if why is not None:
            raise NotYet(f"namespace {namespace} cannot be looked at: {why.message}", hint=why.hint)

    def _end_first(self, leftovers: list[Entry], agent: AgentKey) -> None:
        """Delete what an exclusive agent ran as until now; NotYet until its pods are gone, for two never run."""
        for entry in leftovers:
            self._remove(entry, agent)
        raise NotYet(f"{agent} is exclusive: {', '.join(str(target_of(each)) for each in leftovers)} ends first")

    def _end_at_once(self, entry: Entry, agent: AgentKey) -> None:
        """Delete what another is to take the place of; NotYet while it is held."""
        if held := self._remove(entry, agent):
            raise NotYet(held)
        self._foreign.forget(target_of(entry))

    # -- restart

    def _restart(self, action: Action, key: str) -> Applied:
        """Restart the copies that are not well, or, when none is named, all of them one after the other."""
        if not action.instances:
            self._roll(action.key, key)
            return Applied("asked for a rolling restart", action.handle or Fields.of({}))
        pods = {each.name: each for each in pods_of(self._cache, action.key.agent)}
        for name in action.instances:
            if name in pods:
                self._remove(pods[name], action.key.agent)
        return Applied(f"deleted {', '.join(action.instances)}", action.handle or Fields.of({}))

    def _roll(self, key: ResourceKey, intent: str) -> None:
        for entry in workloads_of(self._cache, key.agent):
            path = ("spec", *TEMPLATE_PATHS.get(entry.kind.kind, ("template",)), "metadata", "annotations")
            # The same intent asks for the same restart: tried again after a crash, it changes nothing.
            body: dict[str, Any] = {RESTARTED_AT: intent}
            if writing := writing_of(self._observing.values_mark(entry.namespace, entry.name)):
                body[WRITING] = writing
            for step in reversed(path):
                body = {step: body}
            self._patch(entry, body, key.agent)

    def _patch(self, entry: Entry, body: dict[str, Any], agent: AgentKey) -> None:
        """Patch this very object, as it was seen; one that is gone or no longer ours is left alone."""
        target = target_of(entry)
        client = self._cluster.writer(target.namespace, agent)
        query = {"fieldManager": RESTART_MANAGER}
        seen: Entry | None = entry
        for _ in range(MAX_TRIES):
            if seen is None:
                return
            body["metadata"] = {"uid": seen.uid, "resourceVersion": seen.resource_version}
            try:
                stored = client.request("PATCH", target.path, body=body, content_type=MERGE_PATCH, query=query)
            except ApiError as problem:
                if problem.status == 404:
                    return
                if problem.status != 409:
                    raise self._meaning(problem, f"restart {target}") from problem
                seen = self._as_it_is(client, entry)
                continue
            self._cache.note_object(entry.kind, stored)
            return
        raise NotYet(f"{target} of {agent} changes too quickly; it is tried again")

    # -- delete

    def _delete(self, action: Action) -> Applied:
        """Delete the objects of a resource; a workload is gone when its pods are."""
        agent, entries = action.key.agent, self._standing(action.key, action.base)
        places = {each.namespace for each in entries}
        if action.base is not None:
            place = self._objects.target(agent, action.base.value).namespace
            self._require_watched(place)
            places.add(place)
        ending = [said for entry in entries if (said := self._remove(entry, agent))]
        if ending:
            raise NotYet("; ".join(ending))
        gone = "deleted " + (", ".join(str(target_of(each)) for each in entries) or "nothing: it was gone")
        return Applied("; ".join([gone, *self._namespaces.leave(places, self._left_in)]))

    def _remove(self, entry: Entry, agent: AgentKey) -> str:
        """Delete this very object, as it was seen: one that was marked anew by another since then is not ours to
        delete. What it is waited for, if it is not gone at once. A workload goes last, so that its pods are gone
        when it is."""
        target, ends_last = target_of(entry), entry.kind in WORKLOADS
        client = self._cluster.writer(target.namespace, agent)
        propagation = "Foreground" if ends_last else "Background"
        seen: Entry | None = entry
        answer: dict[str, Any] = {}
        for _ in range(MAX_TRIES):
            if seen is None:
                break
            try:
                answer = client.delete(
                    target.path, uid=seen.uid, resource_version=seen.resource_version, propagation=propagation
                )
                break
            except ApiError as problem:
                if problem.status == 404:
                    break
                if problem.status != 409:
                    raise self._meaning(problem, f"delete {target}") from problem
            seen = self._as_it_is(client, entry)
        else:
            raise NotYet(f"{target} of {agent} changes too quickly; it is tried again")
        if ends_last:
            return f"{target}: deleted, its pods are ending"
        metadata = answer.get("metadata") or {}
        if metadata.get("deletionTimestamp"):
            self._cache.note_object(entry.kind, answer)
            held_by = ", ".join(metadata.get("finalizers") or ()) or "its grace period"
            return f"{target}: deleted, and held by {held_by}"
        if entry.kind is not POD:
            self._cache.note_gone(entry)
        return ""

    def _as_it_is(self, client: Client, entry: Entry) -> Entry | None:
        """The object as the server has it now; None when it is gone, another, or no longer ours."""
        found = self._read(client, target_of(entry))
        if found is None or found["metadata"]["uid"] != entry.uid or not self._objects.is_ours(entry.kind, found):
            return None
        return entry._replace(resource_version=found["metadata"]["resourceVersion"])

    def _left_in(self, namespace: str) -> bool:
        """Whether something of ours is still in a namespace."""
        return any(each.namespace == namespace for kind in OWNED for each in self._cache.all(kind))

    def _meaning(self, problem: ApiError, doing: str) -> ApplyError:
        return apply_error(problem, doing)


def _guarded(manifest: dict[str, Any], version: Mapping[str, str]) -> dict[str, Any]:
    """A manifest that is for one version of one object alone."""
    return {**manifest, "metadata": {**manifest["metadata"], **version}}


def _must_be_made_anew(seen: Entry, manifest: dict[str, Any]) -> bool:
    """Whether a Service is to get an address of the cluster or to lose it, which the API lets none do."""
    return seen.kind is SERVICE and _is_headless(seen.object()) != _is_headless(manifest)


def _is_headless(service: Mapping[str, Any]) -> bool:
    return (service.get("spec") or {}).get("clusterIP") == "None"


# -- the number of replicas where live decides it


def _is_lent(fields: Fields | None) -> bool:
    """Whether Git leaves the number of replicas to live."""
    return fields is not None and fields.value.get("scaledBy") == "live"


def _with_scale(manifest: dict[str, Any], desired: Fields, seen: Entry | None) -> dict[str, Any]:
    """The manifest, with the number of replicas where that is live's to decide and nobody but us has set it yet:
    as it is, for a field that its only owner leaves out falls back to 1. What is new, or was stopped, begins with
    as many as Git says."""
    if not _is_lent(desired):
        return manifest
    wanted = desired.value["replicas"]
    if seen is None:
        number = wanted if wanted > 1 else None  # one by default, and nobody's
    else:
        own = _replicas(owned(seen.object()) or {})
        number = wanted if own == 0 else own
    return manifest if number is None else {**manifest, "spec": {**manifest["spec"], "replicas": number}}


def _replicas(workload: Mapping[str, Any]) -> int | None:
    number: int | None = (workload.get("spec") or {}).get("replicas")
    return number
