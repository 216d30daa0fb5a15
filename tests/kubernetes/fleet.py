"""A fleet whose agents run in a real cluster: ``tests.support.fleet.Fleet`` with what is live there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers.cluster import Cluster
from tests.servers.external import ExternalCluster
from tests.support.fleet import Fleet, Json, until

IMAGE = "registry.example/bot:1"
"""There is no such registry: only simulated nodes run it."""

PAUSE, NEXT_PAUSE = "registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.9"
"""Two versions of a program that waits, which any cluster can pull."""


class KubeFleet(Fleet):
    """One repository and one instance; its tenant's namespace is made by gitops-agent, and ours to remove."""

    first_image = IMAGE

    def __init__(self, folder: Path, cluster: Cluster | ExternalCluster, kubeconfig: Path | None = None) -> None:
        path = str(kubeconfig or cluster.kubeconfig)
        super().__init__(folder, GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG=path)
        self.cluster = cluster

    def agent(self, name: str, *command: str, **spec: Any) -> str:
        """An agent document for the cluster; ``runtime`` and ``kubernetes`` are merged with quick defaults."""
        kubernetes = spec.pop("kubernetes", {})
        runtime = {"driver": "kubernetes", "image": self.first_image, **spec.pop("runtime", {})}
        if kubernetes:
            runtime["kubernetes"] = kubernetes
        runtime.setdefault("stop", {"grace": "0s"})
        return super().agent(name, *command, runtime=runtime, **spec)

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """``kubectl`` in the namespace of the tenant, as an administrator."""
        return self.cluster.kubectl("-n", self.tenant, *words, stdin=stdin, check=check)

    def object(self, kind: str, name: str) -> Json | None:
        """One object of the tenant's namespace; None when there is none."""
        found = self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found", check=False)
        value: Json | None = json.loads(found) if found.strip() else None
        return value

    def objects(self, kind: str) -> list[Json]:
        """All objects of a kind in the tenant's namespace that carry our instance."""
        label = f"gitops-agent.dev/instance={self.instance}"
        items: list[Json] = json.loads(self.kubectl("get", kind, "-l", label, "-o", "json"))["items"]
        return items

    def image(self, name: str) -> str | None:
        """The image that a Deployment asks for."""
        found = self.object("deployment", name)
        return found["spec"]["template"]["spec"]["containers"][0]["image"] if found else None

    def until_ready(self, *names: str) -> None:
        """Wait until all of these are Ready in ``status``."""

        def ready() -> bool:
            status = self.status()
            listed = {each["agent"] for each in status["agents"]}
            return all(
                self.key(name) in listed and (self.condition(status, name) or {}).get("status") for name in names
            )

        until(ready, f"{names} ready")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Poll until a condition holds."""
        return until(condition, what)

    def remove(self) -> None:
        """Delete the namespace, without waiting for its end."""
        self.cluster.kubectl("delete", "namespace", self.tenant, "--wait=false", "--ignore-not-found", check=False)


class PortableFleet(KubeFleet):
    """A fleet whose agents any cluster can run."""

    first_image = PAUSE

    def agent(self, name: str, *command: str, **spec: Any) -> str:
        """An agent that waits."""
        return super().agent(name, *(command or ("/pause",)), **spec)
