"""An agent may write the heartbeat of its own pod, and nothing else of any pod."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path

import pytest

from gitops_agent import heartbeat as writer
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


def pod_of(fleet: KubeFleet, agent: str) -> Json:
    return next(
        each for each in fleet.objects("pod") if each["metadata"]["labels"]["gitops-agent.dev/agent"] == agent
    )


def bound_token(fleet: KubeFleet, pod: Json) -> str:
    """The token that a kubelet would give to a pod."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", name, "--bound-object-uid", uid)
    return fleet.kubectl("create", "token", "default", *bound).strip()


@pytest.fixture
def inside(agents: KubeFleet, control: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Json:
    """The pod of an agent; this process has the environment and the files that its container has."""
    pod = pod_of(agents, "a")
    fields = {"metadata.name": pod["metadata"]["name"], "metadata.namespace": agents.tenant}
    (container,) = pod["spec"]["containers"]
    for each in container["env"]:
        value = each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        monkeypatch.setenv(each["name"], value)
    server = urllib.parse.urlsplit(control.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "ca.crt").write_bytes(control.ca.read_bytes())
    (folder / "token").write_text(bound_token(agents, pod))
    monkeypatch.setattr(writer, "SERVICE_ACCOUNT", str(folder))
    monkeypatch.setattr(writer, "MIN_INTERVAL_SECONDS", 0.1)
    return pod


def test_the_writer_of_agents_beats_in_a_pod_and_is_heard(agents: KubeFleet, inside: Json) -> None:
    name = inside["metadata"]["name"]

    def noted() -> Json:
        found = agents.kubectl("get", "pod", name, "-o", "json")
        beat: Json = json.loads(json.loads(found)["metadata"].get("annotations", {}).get(ANNOTATION, "{}"))
        return beat

    heartbeat = writer.Heartbeat()

    def beaten() -> bool:
        heartbeat.beat(turn=17)  # again and again: rights that were just granted are not in force at once
        return noted().get("turn") == 17

    until(beaten, "the heartbeat is on the pod")
    (progress,) = agents.row(agents.once(), "a")["progress"]
    assert (progress["instance"], progress["turn"], progress["calls"]) == (name, 17, [])
    with heartbeat.tool_call("crm.lookup"):
        until(lambda: noted().get("pending") == ["crm.lookup"], "the call is on the pod")
        (progress,) = agents.row(agents.once(), "a")["progress"]
        assert [each["name"] for each in progress["calls"]] == ["crm.lookup"]
        assert "crm.lookup" in agents.call("explain", "a").out
    until(lambda: noted().get("pending") == [], "the call is over")
    assert noted()["version"] == 1


def test_an_agent_writes_the_heartbeat_of_its_own_pod_and_nothing_else(
    agents: KubeFleet, control: Cluster
) -> None:
    pod = pod_of(agents, "a")
    own, other = pod["metadata"]["name"], pod_of(agents, "b")["metadata"]["name"]
    token = bound_token(agents, pod)
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
    owner = pod["metadata"]["ownerReferences"][0]
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
