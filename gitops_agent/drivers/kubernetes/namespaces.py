"""The namespaces of tenants: a tenant's own is made when missing, one that a document names never, and another
tenant's is never entered. Deleted only where we made them, may, and nothing is kept there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from gitops_agent.drivers.api import NotYet
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.errors import ApiError, Rejected, apply_error, missing_right
from gitops_agent.drivers.kubernetes.kinds import NAMESPACE
from gitops_agent.drivers.kubernetes.limits import require_context
from gitops_agent.drivers.kubernetes.marks import CREATED_BY, MANAGED_BY, MANAGER, TENANT
from gitops_agent.drivers.kubernetes.occupants import kept_in, occupancy_of
from gitops_agent.model.catalog import place_of

MAX_ASKING = 64
"""How many namespaces are made at the same time, at most."""

POD_SECURITY = "pod-security.kubernetes.io/enforce"


class Namespaces:
    """Makes sure that the namespace of a tenant is there and is that tenant's."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client
        self._cache = cluster.cache
        self._instance = cluster.instance
        self._settings = cluster.settings
        self._place = place_of(cluster.driver)
        self._asking = tuple(Lock() for _ in range(MAX_ASKING))
        self._occupancy = occupancy_of(cluster.client.host)
        self.entered = self._occupancy.entered

    def require(self, name: str, tenant: str) -> None:
        """Return when a tenant's documents may be carried out in a namespace of this cluster; ApplyError says
        why not."""
        require_context(self._settings, self._place, tenant)
        entry = self._cache.get(NAMESPACE, "", name)
        if entry is None:
            with self._asking[hash(name) % MAX_ASKING]:  # of the workers that need it, one makes it
                entry = self._cache.get(NAMESPACE, "", name)
                found = entry.object() if entry is not None else self._asked_for(name, tenant)
        else:
            found = entry.object()
        metadata = found.get("metadata") or {}
        labels = metadata.get("labels") or {}
        if labels.get(TENANT) != tenant:
            raise not_theirs(name, tenant, labels.get(TENANT, ""))
        if metadata.get("deletionTimestamp"):
            raise NotYet(f"namespace {name} is being deleted; it is made again when it is gone")

    def leave(self, names: Iterable[str], in_use: Callable[[str], bool]) -> list[str]:
        """What became of the namespaces that we made and that nothing of ours is left in: deleted where the
        settings say so, unless something is kept there."""
        if not self._settings.delete_namespaces:
            return []
        return [said for name in sorted(set(names)) if (said := self._left(name, in_use))]

    def _left(self, name: str, in_use: Callable[[str], bool]) -> str:
        with self._occupancy.left(name) as free:
            entry = self._cache.get(NAMESPACE, "", name)
            if entry is None or not free or in_use(name):
                return ""
            metadata = entry.object()["metadata"]
            made_by = (metadata.get("labels") or {}).get(CREATED_BY)
            if made_by != self._instance or metadata.get("deletionTimestamp"):
                return ""
            if why := self._reason_to_stay(name):
                return f"namespace {name} stays, {why}"
            try:
                answer = self._client.delete(NAMESPACE.path(name=name), uid=entry.uid)
            except ApiError as problem:
                if problem.status == 404:
                    return ""
                raise apply_error(problem, f"delete namespace {name}") from problem
            if answer.get("kind") == NAMESPACE.kind:  # so that nothing is put there while it ends
                self._cache.note_object(NAMESPACE, answer)
            return f"deleted namespace {name}"

    def _reason_to_stay(self, name: str) -> str:
        """Why a namespace is not deleted; "" when nothing is kept there. A missing right is such a reason and no
        failure: what was asked for, the end of an agent, is done."""
        try:
            kept = kept_in(self._client, name)
        except ApiError as problem:
            if problem.status != 403:
                raise apply_error(problem, f"look into namespace {name}") from problem
            right = missing_right(problem)
            needed = f"grant the right to {right}" if right else problem.message
            return f"because it cannot be known what is kept there: {needed}"
        return f"because of what is kept there: {', '.join(kept)}" if kept else ""

    def _asked_for(self, name: str, tenant: str) -> dict[str, Any]:
        """The namespace as the API server has it; the tenant's own is made when it is missing."""
        try:
            return self._client.get(NAMESPACE.path(name=name))
        except ApiError as problem:
            if problem.status != 404:  # one that we may not read may be anybody's
                raise apply_error(problem, f"read namespace {name}") from problem
        labelled = f"kubectl create namespace {name} && kubectl label namespace {name} {TENANT}={tenant}"
        if name != self._settings.namespace.format(tenant=tenant, instance=self._instance):
            raise Rejected(
                "NamespaceMissing",
                f"there is no namespace {name}, and only {tenant}'s own is made when missing",
                hint=f"leave runtime.kubernetes.namespace out, or: {labelled}",
            )
        if not self._settings.create_namespaces:
            raise Rejected(
                "NamespaceMissing",
                f"there is no namespace {name} for the tenant {tenant}",
                hint=f"set drivers.kubernetes.createNamespaces, or: {labelled}",
            )
        return self._made(name, tenant)

    def _made(self, name: str, tenant: str) -> dict[str, Any]:
        labels = {TENANT: tenant, MANAGED_BY: MANAGER, CREATED_BY: self._instance}
        if self._settings.pod_security:
            labels[POD_SECURITY] = self._settings.pod_security
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        try:
            made = self._client.request("POST", NAMESPACE.path(), body=body, query={"fieldManager": MANAGER})
        except ApiError as problem:
            if problem.reason != "AlreadyExists":
                raise apply_error(problem, f"create namespace {name}") from problem
            return self._asked_for_again(name)
        self._cache.note_object(NAMESPACE, made)
        return made

    def _asked_for_again(self, name: str) -> dict[str, Any]:
        """The namespace that another worker made in the same moment."""
        try:
            return self._client.get(NAMESPACE.path(name=name))
        except ApiError as problem:
            raise apply_error(problem, f"read namespace {name}") from problem


def not_theirs(name: str, tenant: str, owner: str = "") -> Rejected:
    """The refusal to touch a namespace that is not labelled as a tenant's. ``owner``: the tenant it is for."""
    whose = f"is for the tenant {owner}" if owner else "is not marked as one of this tenant"
    return Rejected(
        "NamespaceNotTheirs",
        f"namespace {name} {whose}; agents of {tenant} may not run there",
        hint=f"name another one, or: kubectl label namespace {name} {TENANT}={tenant}",
    )
