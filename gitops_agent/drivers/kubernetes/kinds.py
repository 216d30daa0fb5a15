"""The kinds of objects an agent is made of, and where the API serves them."""

from __future__ import annotations

from typing import NamedTuple


class ObjectKind(NamedTuple):
    """One kind of object. ``resource``: our kind of resource it stands for; "" when it stands for none.
    ``metadata_only``: what it holds is none of the cache's business."""

    kind: str
    api_version: str
    plural: str
    resource: str = ""
    namespaced: bool = True
    metadata_only: bool = False

    def path(self, namespace: str | None = None, name: str = "") -> str:
        """The path of all objects, of those in a namespace, or of one."""
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        inside = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "")


DEPLOYMENT = ObjectKind("Deployment", "apps/v1", "deployments", "runtime")
STATEFUL_SET = ObjectKind("StatefulSet", "apps/v1", "statefulsets", "runtime")
CRON_JOB = ObjectKind("CronJob", "batch/v1", "cronjobs", "runtime")
CONFIG_MAP = ObjectKind("ConfigMap", "v1", "configmaps", "config")
SECRET = ObjectKind("Secret", "v1", "secrets", "credential", metadata_only=True)
SERVICE = ObjectKind("Service", "v1", "services", "service")
POD = ObjectKind("Pod", "v1", "pods")
NAMESPACE = ObjectKind("Namespace", "v1", "namespaces", namespaced=False)
EVENT = ObjectKind("Event", "v1", "events")

WORKLOADS = (DEPLOYMENT, STATEFUL_SET, CRON_JOB)
OWNED = (*WORKLOADS, CONFIG_MAP, SECRET, SERVICE)
"""Everything we apply for an agent."""

WATCHED = (*OWNED, POD, NAMESPACE)
BY_KIND = {each.kind: each for each in (*WATCHED, EVENT)}
