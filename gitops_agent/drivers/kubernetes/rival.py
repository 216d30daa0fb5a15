"""Whether another gitops-agent of the instance leads, for a process that stands in no election itself.

``once`` from a laptop, beside a pair that elects, would undo what the pair does. It holds no Lease, so nothing
else in the cluster keeps the two apart. As in the election only what this process saw counts: a Lease that changes
between two looks has a living holder, one that stays as it is for as long as it is good for has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gitops_agent.drivers.api import ApplyError, ObserveError
from gitops_agent.drivers.election import LEASE_SECONDS, RENEW, Kept, boot_seconds
from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.config import config_of
from gitops_agent.drivers.kubernetes.election import API, kept_of, lease_name, own_namespace
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.marks import INSTANCE
from gitops_agent.drivers.kubernetes.options import Settings

LOOK_SECONDS = 10.0
"""How long what was seen counts: while there is something to write, one request in that time."""


class Rival:
    """Looks for the Lease of the instance, by whomever it is held, before something is written."""

    def __init__(self, settings: Settings, instance: str, clock: Callable[[], float] = boot_seconds) -> None:
        self._settings = settings
        self._instance = instance
        self._clock = clock
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._look_at = 0.0
        self._seen: Kept | None = None
        self._silent = False  # what was seen last did not change for as long as it is good for
        self._leader = ""

    def require_none(self) -> None:
        """Return when nobody is known to lead; ApplyError names who does. A Lease that is seen held for the first
        time is watched until it changes or runs out, which takes as long as that at most."""
        with self._lock:  # all that is about to be written waits for the one look
            if self._clock() >= self._look_at:
                self._leader = self._living()
                self._look_at = self._clock() + LOOK_SECONDS
            if self._leader:
                raise ApplyError(
                    f"another gitops-agent of instance {self._instance} leads here (holder {self._leader}); "
                    "nothing was changed",
                    hint="let that one act, or end it first; with the setting election they take turns",
                )

    def close(self) -> None:
        """End a watch that is under way."""
        self._ended.set()

    def _living(self) -> str:
        """Who holds the Lease and renews it; "" when nobody does, or nothing can be known."""
        began, before = self._clock(), self._seen
        while True:
            found = self._read()
            self._silent = self._silent and before == found
            self._seen = found
            if found is None or not found.lease.holder or self._silent:
                return ""
            if before is not None and before.version != found.version:
                return found.lease.holder
            good_for = found.lease.seconds or LEASE_SECONDS
            if self._clock() >= began + good_for:
                self._silent = True
                return ""
            before = found
            if self._ended.wait(good_for * RENEW):
                return ""

    def _read(self) -> Kept | None:
        """The Lease, in the namespace that is known, else in any; None when there is none, or we may not look."""
        try:
            if self._client is None:
                self._client = Client(config_of(self._settings), timeout=min(5.0, self._settings.timeout))
            return self._found(self._client)
        except (ApiError, ObserveError):
            return None

    def _found(self, client: Client) -> Kept | None:
        name, namespace = lease_name(self._instance), own_namespace(self._settings)
        if namespace:
            return kept_of(client.get(f"/apis/{API}/namespaces/{namespace}/leases/{name}"))
        listed = client.get(f"/apis/{API}/leases", labelSelector=f"{INSTANCE}={self._instance}")["items"]
        ours: list[dict[str, Any]] = [each for each in listed if each["metadata"]["name"] == name]
        held = [each for each in ours if (each.get("spec") or {}).get("holderIdentity")]
        return kept_of(max(held, key=_renewed)) if held else None


def _renewed(lease: dict[str, Any]) -> str:
    return lease["spec"].get("renewTime") or ""
