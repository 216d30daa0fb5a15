"""The stage of the demo in a Kubernetes cluster: namespaces of its own, pods instead of processes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TextIO

from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.config import ClusterConfig
from gitops_agent.drivers.kubernetes.errors import ApiError, observe_error
from gitops_agent.drivers.kubernetes.kinds import DEPLOYMENT, NAMESPACE, ObjectKind
from gitops_agent.drivers.kubernetes.marks import CREATED_BY
from gitops_agent.errors import GitopsAgentError
from gitops_agent_demo.stage import INSTANCE, POLL_SECONDS, Stage

PREFIX = "gitops-agent-demo"
END_SECONDS = 60.0
"""How long namespaces may take to be gone."""

SETTINGS = "GITOPS_AGENT_DRIVERS__KUBERNETES__"
TYPO = ("pause:3.10", "pause:3.10-no-such-image")


def cluster_obstacles(kubeconfig: Path) -> list[str]:
    """One sentence with a way out for each thing that is in the way; nothing when the stage is free."""
    try:
        found = _namespaces(_client(kubeconfig))
    except GitopsAgentError as problem:
        return [f"{problem.message} ({problem.hint})" if problem.hint else problem.message]
    if found:
        listed = " ".join(found)
        return [f"an earlier demo is still in this cluster: kubectl delete namespace {listed}, then start again."]
    return []


def end_namespaces(client: Client, seconds: float = END_SECONDS) -> str:
    """What became of the namespaces of the demo: deleted, and gone when that took no longer than ``seconds``."""
    found = _namespaces(client)
    for name in found:
        client.delete(NAMESPACE.path(name=name))
    deadline = time.monotonic() + seconds
    while (left := _namespaces(client)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if left:
        return f"{len(found)} namespaces were ended; some are still being deleted: {' '.join(left)}"
    return f"{len(found)} namespaces with everything in them were ended; nothing is left running"


class ClusterStage(Stage):
    """Real git, a real daemon, a real cluster."""

    label, copies_word = "pod", "pods"

    def __init__(self, folder: Path, example: Path, out: TextIO, kubeconfig: Path) -> None:
        super().__init__(folder, example, out)
        self._client = _client(kubeconfig)
        self._env |= {
            f"{SETTINGS}KUBECONFIG": str(kubeconfig.absolute()),
            f"{SETTINGS}NAMESPACE": f"{PREFIX}-{{tenant}}",
        }
        kept = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTPS_PROXY", "NO_PROXY")
        self._env |= {name: os.environ[name] for name in kept if name in os.environ}

    def kill(self, agent: str) -> str:
        """Delete the Deployment of an agent behind gitops-agent's back."""
        old = self.copy_of(agent)
        tenant, _, name = agent.partition("/")
        self.say(f"$ kubectl delete deployment {name} -n {PREFIX}-{tenant}")
        self._client.delete(DEPLOYMENT.path(f"{PREFIX}-{tenant}", name))
        return old

    def misspell(self) -> None:
        """Misspell the tag of the image, for every agent of a tenant."""
        for name in ("crm-bot", "support-bot"):
            self.edit(f"agents/acme/{name}.yaml", lambda text: text.replace("comand:", "command:").replace(*TYPO))

    def end(self) -> str:
        """End the daemon, then delete the namespaces of the demo; what became of them, in words."""
        self._end_daemon()
        return end_namespaces(self._client)


def _client(kubeconfig: Path) -> Client:
    return Client(ClusterConfig(kubeconfig=str(kubeconfig)))


def _namespaces(client: Client) -> list[str]:
    listed = _listed(client, NAMESPACE, f"{CREATED_BY}={INSTANCE}")
    return sorted(name for name in listed if name.startswith(PREFIX))


def _listed(client: Client, kind: ObjectKind, selector: str) -> list[str]:
    try:
        found = client.get(kind.path(), labelSelector=selector).get("items") or ()
    except ApiError as problem:
        raise observe_error(problem, f"list {kind.plural}") from problem
    return [str(each["metadata"]["name"]) for each in found]
