"""Which of several gitops-agents of one instance acts: a ``Lease`` of the cluster, ``gitops-agent-<instance>``.

``drivers.election`` has the rules; here is where the record is kept. Its fields are those that other clients of
the API know too: holder, duration, and as term the number of transitions. The times are for people only.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gitops_agent.drivers.api import Context
from gitops_agent.drivers.election import ASK, Kept, Lease, LeaseElection
from gitops_agent.drivers.kubernetes.client import MERGE_PATCH, Client
from gitops_agent.drivers.kubernetes.config import SERVICE_ACCOUNT_DIR, config_of
from gitops_agent.drivers.kubernetes.errors import ApiError, observe_error
from gitops_agent.drivers.kubernetes.marks import INSTANCE, MANAGED_BY, MANAGER
from gitops_agent.drivers.kubernetes.options import Settings

API = "coordination.k8s.io/v1"
NOT_FOUND, CONFLICT = 404, 409


class KubernetesStore:
    """The record in a Lease, changed under its resourceVersion. ``connect`` is called when it is first asked."""

    def __init__(self, connect: Callable[[], Client], namespace: str, instance: str) -> None:
        self._connect = connect
        self._client: Client | None = None
        self._all = f"/apis/{API}/namespaces/{namespace}/leases"
        self._instance = instance
        self._name = lease_name(instance)
        self._place = f"Lease {namespace}/{self._name}"
        self._acquired: tuple[int, str] = (0, "")

    def read(self) -> Kept | None:
        """The Lease; None when there is none."""
        try:
            return kept_of(self._request("GET", f"{self._all}/{self._name}"))
        except ApiError as problem:
            if problem.status == NOT_FOUND:
                return None
            raise observe_error(problem, f"get {self._place}") from problem

    def write(self, lease: Lease, over: Kept | None) -> Kept | None:
        """Create the Lease, or change it if it is still of that version."""
        try:
            return kept_of(self._create(lease) if over is None else self._change(lease, over.version))
        except ApiError as problem:
            if problem.status == CONFLICT or (over is not None and problem.status == NOT_FOUND):
                return None
            raise observe_error(problem, f"write {self._place}") from problem

    def _create(self, lease: Lease) -> dict[str, Any]:
        labels = {MANAGED_BY: MANAGER, INSTANCE: self._instance}
        made = {"apiVersion": API, "kind": "Lease", "metadata": {"name": self._name, "labels": labels}}
        return self._request("POST", self._all, {**made, "spec": self._spec(lease)})

    def _change(self, lease: Lease, version: str) -> dict[str, Any]:
        # A patch, so that what others put beside it stays; with the version in it, so that it is refused if stale.
        patch = {"metadata": {"resourceVersion": version}, "spec": self._spec(lease)}
        return self._request("PATCH", f"{self._all}/{self._name}", patch, MERGE_PATCH)

    def _spec(self, lease: Lease) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self._acquired[0] != lease.term:
            self._acquired = (lease.term, now)
        return {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": max(1, round(lease.seconds)),
            "leaseTransitions": lease.term,
            "acquireTime": self._acquired[1],
            "renewTime": now,
        }

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        if self._client is None:
            self._client = self._connect()
        return self._client.request(method, path, body=body, content_type=content_type)


def elect(context: Context, identity: str) -> LeaseElection:
    """A candidacy for the Lease of an instance, on connections of its own: no other request is in its way."""
    settings = context.settings if isinstance(context.settings, Settings) else Settings()
    config = config_of(settings)
    seconds = float(settings.election_seconds)
    store = KubernetesStore(
        lambda: Client(config, timeout=seconds * ASK), election_namespace(settings), context.instance
    )
    return LeaseElection(store, identity, seconds)


def lease_name(instance: str) -> str:
    """The name of the Lease of an instance."""
    return f"gitops-agent-{instance}"


def election_namespace(settings: Settings, account: Path = Path(SERVICE_ACCOUNT_DIR)) -> str:
    """Where the Lease is: as set, or in the namespace of our own pod, or in ``default``."""
    return own_namespace(settings, account) or "default"


def own_namespace(settings: Settings, account: Path = Path(SERVICE_ACCOUNT_DIR)) -> str:
    """Where the Lease is, if that is known: as set, or in the namespace of our own pod; "" otherwise."""
    if settings.election_namespace:
        return settings.election_namespace
    try:
        return (account / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def kept_of(found: dict[str, Any]) -> Kept:
    """The record that a Lease holds, whoever wrote it."""
    spec = found.get("spec") or {}
    lease = Lease(
        spec.get("holderIdentity") or "",
        spec.get("leaseTransitions") or 0,
        float(spec.get("leaseDurationSeconds") or 0),
    )
    return Kept(lease, found["metadata"]["resourceVersion"])
