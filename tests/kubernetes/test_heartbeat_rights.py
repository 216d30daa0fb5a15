"""An agent may write the heartbeat of its own pod, and nothing else of any pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_agent.drivers.kubernetes.client import MERGE_PATCH, Client
from gitops_agent.drivers.kubernetes.config import ClusterConfig
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.kinds import POD
from tests.kubernetes.fleet import KubeFleet
from tests.servers.cluster import Cluster
from tests.support.fleet import Json, until

ROOT = Path(__file__).parents[2]
COMPONENT = ROOT / "docker" / "kubernetes" / "components" / "heartbeat"
ANNOTATION = "gitops-agent.dev/heartbeat"


def note(annotations: dict[str, str]) -> Json:
    return {"metadata": {"annotations": annotations}}


@pytest.fixture
def agents(control: Cluster, fleet: KubeFleet) -> KubeFleet:
    """Two agents, and the component as the page of the manifests says to install it."""
    for name in ("role.yaml", "policy.yaml"):
        control.kubectl("apply", "-f", str(COMPONENT / name))
    fleet.commit(fleet.agents("a", "b", heartbeat={"staleAfter": "1h"}))
    fleet.once()
    account = f"{fleet.tenant}:default"
    fleet.kubectl(
        "create",
        "rolebinding",
        "heartbeat",
        "--clusterrole",
        "gitops-agent-heartbeat",
        "--serviceaccount",
        account,
    )
    return fleet


def test_an_agent_writes_the_heartbeat_of_its_own_pod_and_nothing_else(
    agents: KubeFleet, control: Cluster
) -> None:
    pods = {
        each["metadata"]["labels"]["gitops-agent.dev/agent"]: each["metadata"] for each in agents.objects("pod")
    }
    own, other = pods["a"]["name"], pods["b"]["name"]
    token = agents.kubectl(
        "create", "token", "default", "--bound-object-kind", "Pod", "--bound-object-name", own,
        "--bound-object-uid", pods["a"]["uid"],
    ).strip()  # fmt: skip
    client = Client(ClusterConfig(kubeconfig=str(control.kubeconfig_for("agent-a", token=token))))

    def tries(pod: str, body: Json) -> str:
        try:  # as an agent does: a patch, without the right to read
            client.request("PATCH", POD.path(agents.tenant, pod), body=body, content_type=MERGE_PATCH)
        except ApiError as problem:
            return problem.message
        return "patched"

    # The policy is compiled in the background after it was made.
    until(lambda: "own pod only" in tries(other, note({ANNOTATION: "{}"})), "the policy is in force")
    assert tries(own, note({ANNOTATION: '{"at": 1}'})) == "patched"
    assert "nothing of its pod but" in tries(own, note({"other": "x"}))
    owner = pods["a"]["ownerReferences"][0]
    for harm in (
        {"finalizers": ["example.com/stay"]},  # it would never end
        {"ownerReferences": []},  # its controller would make another one beside it
        {"ownerReferences": [{**owner, "name": "other"}]},
        {"labels": {"gitops-agent.dev/agent": "b"}},
        {"labels": {"app": "other"}},
    ):
        body = {"metadata": {**harm, "annotations": {ANNOTATION: '{"at": 2}'}}}
        assert "nothing of its pod but" in tries(own, body), harm
    assert tries(own, note({ANNOTATION: '{"at": 3}'})) == "patched"
    image = {"spec": {"containers": [{"name": "agent", "image": "evil:1"}]}}
    assert tries(own, image) != "patched"
    assert "own pod only" in tries(other, note({ANNOTATION: "{}"}))
