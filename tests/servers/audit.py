"""Which requests the API server got, read from its audit log.

A request is logged when it arrives, before it is answered: so when a client has its answer the request is there,
and counts are exact without waiting.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["ResponseStarted"],
    "rules": [
        {"level": "None", "userGroups": ["tests:components"]},
        {"level": "Request", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        {"level": "Metadata"},
    ],
}
"""Everybody is counted but the components of the control plane themselves. Of a Lease also what is written to it,
so that the log says who led when."""


@dataclass(frozen=True)
class Request:
    """A request as the server saw it; the code is None while it is not answered, as a watch is."""

    user: str
    verb: str
    """get, list, watch, create, patch, update, delete, deletecollection."""
    uri: str
    agent: str
    code: int | None


def read_requests(log: Path, user: str, since: int) -> list[Request]:
    """Return the requests of a user that arrived behind the position in the log, in their order."""
    with log.open("rb") as file:
        file.seek(since)
        events = [json.loads(line) for line in file if line.endswith(b"\n")]
    codes = {one["auditID"]: one["responseStatus"]["code"] for one in events if one.get("responseStatus")}
    return [
        Request(user, one["verb"], one["requestURI"], one.get("userAgent", ""), codes.get(one["auditID"]))
        for one in events
        if one["stage"] == "RequestReceived" and one["user"]["username"] == user
    ]
