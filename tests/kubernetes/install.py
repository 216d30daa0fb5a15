"""Installs gitops-agent into the cluster of the tests as a user would: an overlay of docker/kubernetes, edited."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.servers.cluster import Cluster
from tests.servers.kubeconfig import write_kubeconfig
from tests.support.fleet import until

MANIFESTS = Path(__file__).parents[2] / "docker" / "kubernetes"
NAMESPACE = ACCOUNT = "gitops-agent"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
TENANTS = ("acme", "globex", "initech")

Object = dict[str, Any]


def copied(folder: Path, overlay: str, components: Sequence[str] = (), settings: str | None = None) -> Path:
    """Write a copy of all manifests below the folder, the overlay edited; return the overlay."""
    shutil.copytree(MANIFESTS, folder / "kubernetes")
    edited = folder / "kubernetes" / "overlays" / overlay
    kustomization = edited / "kustomization.yaml"
    text = kustomization.read_text()
    for component in components:
        line = f"  # - ../../components/{component}\n"
        assert line in text, f"the overlay {overlay} does not offer {component}"
        text = text.replace(line, line.replace("# ", "", 1))
    kustomization.write_text(text)
    if settings is not None:
        (edited / "settings.yaml").write_text(settings)
    return edited


def rendered(cluster: Cluster, overlay: Path) -> list[Object]:
    """Return the objects that the overlay is made of."""
    text = cluster.kubectl("kustomize", str(overlay))
    shown = cluster.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", stdin=text)
    found = _documents(shown)
    return [one for each in found for one in (each["items"] if each["kind"] == "List" else [each])]


def _documents(text: str) -> Iterator[Object]:
    """The JSON documents that stand one behind the other in a text."""
    decoder, position = json.JSONDecoder(), 0
    while (rest := text[position:].lstrip()) != "":
        found, length = decoder.raw_decode(rest)
        position = len(text) - len(rest) + length
        yield found


def one(objects: Sequence[Object], kind: str, name: str = ACCOUNT) -> Object:
    """Return the only object of that kind whose name begins so."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].startswith(name)]
    return found


@dataclass
class Installation:
    """What is applied now. ``said``: what the server answered to it."""

    cluster: Cluster
    objects: list[Object]
    said: str

    def create(self, path: str, body: Object) -> Object:
        """Return what the server answers to the service account that creates this."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.cluster.url + path, json.dumps(body).encode(), headers)
        context = ssl.create_default_context(cafile=str(self.cluster.ca))
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            created: Object = json.load(answer)
            return created

    @cached_property
    def _token(self) -> str:
        return self.token()

    def token(self) -> str:
        """Return a token of the service account, from the API as a pod gets it."""
        return self.cluster.kubectl("create", "token", ACCOUNT, "--namespace", NAMESPACE).strip()

    def kubeconfig(self) -> Path:
        """Write a kubeconfig of the service account; ``kubectl(…, user=ACCOUNT)`` uses it."""
        path = self.cluster.folder / f"{ACCOUNT}.kubeconfig"
        return write_kubeconfig(path, self.cluster.url, self.cluster.ca, ACCOUNT, self.token())

    def rollout(self) -> str:
        """Return what ``kubectl rollout status`` says once the Deployment is complete."""
        wait = ("rollout", "status", f"deployment/{ACCOUNT}", "--timeout=60s")
        return self.cluster.kubectl(*wait, "--namespace", NAMESPACE)


@contextlib.contextmanager
def installed(cluster: Cluster, overlay: Path) -> Iterator[Installation]:
    """Apply the overlay while the block runs; afterwards it is gone, with its namespaces."""
    objects = rendered(cluster, overlay)
    try:
        said = cluster.kubectl("apply", "--server-side", "-k", str(overlay), check=False)
        yield Installation(cluster, objects, said)
    finally:
        gone = ("--ignore-not-found", "--wait=true", "--timeout=100s")
        # The fence first: while it stands it refuses the clean-up too, and for a moment after that.
        fences = ("validatingadmissionpolicybinding,validatingadmissionpolicy", "gitops-agent-fencing")
        cluster.kubectl("delete", *fences, "--ignore-not-found")
        until(lambda: "rror" not in cluster.kubectl("delete", "-k", str(overlay), *gone, check=False), "removed")
        cluster.kubectl("delete", "namespace", *TENANTS, *gone)
