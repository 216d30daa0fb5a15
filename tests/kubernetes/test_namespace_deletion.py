"""deleteNamespaces: a namespace that we made goes with its last agent, and never with anything else in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_agent.drivers.kubernetes.occupants import Occupancy, occupancy_of
from tests.kubernetes.fleet import KubeFleet
from tests.kubernetes.install import MANIFESTS
from tests.kubernetes.test_tenants import document
from tests.servers.cluster import Cluster
from tests.support.fleet import Json, until

SETTING = "GITOPS_AGENT_DRIVERS__KUBERNETES__"
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "diary"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


@pytest.fixture
def other(fleet: KubeFleet, unique: str) -> Iterator[str]:
    """Another tenant."""
    yield unique
    fleet.cluster.kubectl("delete", "namespace", unique, "--wait=false", "--ignore-not-found")


@pytest.fixture
def deleting(fleet: KubeFleet, other: str) -> KubeFleet:
    fleet.environment[SETTING + "DELETE_NAMESPACES"] = "true"
    with_another(fleet, other)
    return fleet


def with_another(fleet: KubeFleet, tenant: str) -> None:
    """One agent of the tenant of the fleet and one of another, so that Git is never empty."""
    fleet.commit({"a.yaml": fleet.agent("a"), "stays.yaml": document(fleet, "stays", tenant)})
    assert fleet.once()["phase"] == "Converged"


def namespace(fleet: KubeFleet) -> Json | None:
    found = fleet.cluster.kubectl("get", "namespace", fleet.tenant, "-o", "json", "--ignore-not-found")
    return json.loads(found) if found.strip() else None


def told(fleet: KubeFleet, name: str) -> str:
    """What ``explain`` says of an agent that is gone, as one line."""
    return " ".join(fleet.call("explain", fleet.key(name)).out.split())


def test_a_namespace_that_nothing_is_left_in_goes(deleting: KubeFleet) -> None:
    deleting.commit({"a.yaml": None}, "a goes")
    assert deleting.once()["phase"] == "Converged"
    until(lambda: namespace(deleting) is None, "the namespace is gone")
    deleting.commit(deleting.agents("a"), "a comes back")
    assert deleting.once()["phase"] == "Converged"
    assert deleting.object("deployment", "a")


def test_a_namespace_that_others_made_is_never_deleted(fleet: KubeFleet, other: str) -> None:
    fleet.environment[SETTING + "DELETE_NAMESPACES"] = "true"
    fleet.cluster.kubectl("create", "namespace", fleet.tenant)
    fleet.cluster.kubectl("label", "namespace", fleet.tenant, f"gitops-agent.dev/tenant={fleet.tenant}")
    with_another(fleet, other)
    before = namespace(fleet)
    fleet.commit({"a.yaml": None}, "a goes")
    assert fleet.once()["phase"] == "Converged"
    assert (fleet.objects("deployment"), fleet.objects("configmap")) == ([], [])
    assert namespace(fleet) == before, "neither deleted nor changed"


def test_without_the_setting_a_namespace_that_we_made_stays(fleet: KubeFleet, other: str) -> None:
    with_another(fleet, other)
    fleet.commit({"a.yaml": None}, "a goes")
    assert fleet.once()["phase"] == "Converged"
    assert (fleet.objects("deployment"), fleet.objects("configmap")) == ([], [])
    there = namespace(fleet)
    assert there is not None
    assert "deletionTimestamp" not in there["metadata"]
    assert there["metadata"]["labels"]["gitops-agent.dev/created-by"] == fleet.instance, "we made it"


def test_pods_in_a_namespace_that_we_make_are_kept_from_the_host(fleet: KubeFleet) -> None:
    """The namespace says so to the API server itself, which then also refuses pods of others."""
    fleet.commit(fleet.agents("a"))
    fleet.once()
    labels = (namespace(fleet) or {})["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    pod = json.dumps({"apiVersion": "v1", "spec": {"hostNetwork": True}})
    refused = fleet.kubectl(
        "run", "theirs", "--image=registry.example/theirs:1", f"--overrides={pod}", check=False
    )
    assert 'violates PodSecurity "baseline' in refused


def test_where_namespaces_are_not_made_it_is_said_what_to_do(fleet: KubeFleet) -> None:
    fleet.environment[SETTING + "CREATE_NAMESPACES"] = "false"
    fleet.commit(fleet.agents("a"))
    fleet.once("--timeout", "10s", code=5)
    assert namespace(fleet) is None
    said = told(fleet, "a")
    assert f"there is no namespace {fleet.tenant} for the tenant {fleet.tenant}" in said, said
    create = f"kubectl create namespace {fleet.tenant}"
    label = f"kubectl label namespace {fleet.tenant} gitops-agent.dev/tenant={fleet.tenant}"
    assert f"set drivers.kubernetes.createNamespaces, or: {create} && {label}" in said
    for way_out in (create, label):
        fleet.cluster.kubectl(*way_out.split()[1:])
    fleet.commit(fleet.agents("a", description="Again"))  # tried at once, not when its turn comes
    assert fleet.once()["phase"] == "Converged"


@pytest.mark.parametrize("kind", ["claim", "secret", "configmap", "service", "deployment"])
def test_what_others_keep_there_keeps_the_namespace(deleting: KubeFleet, kind: str) -> None:
    fleet = deleting
    if kind == "claim":
        fleet.kubectl("create", "-f", "-", stdin=json.dumps(CLAIM))
    elif kind == "secret":
        fleet.kubectl("create", "secret", "generic", "diary")
    elif kind == "service":
        fleet.kubectl("create", "service", "clusterip", "diary", "--tcp=80")
    elif kind == "deployment":
        fleet.kubectl("create", "deployment", "diary", "--image=registry.example/theirs:1", "--replicas=0")
    else:
        fleet.kubectl("create", "configmap", "diary")
    fleet.commit({"a.yaml": None}, "a goes")
    assert fleet.once()["phase"] == "Converged"
    there = namespace(fleet)
    assert there is not None
    assert "deletionTimestamp" not in there["metadata"]
    assert fleet.objects("configmap") == []
    assert f"namespace {fleet.tenant} stays, because of what is kept there: " in told(fleet, "a")
    assert " diary" in told(fleet, "a")


def test_an_agent_under_another_name_of_the_cluster_keeps_the_namespace(
    deleting: KubeFleet, control: Cluster, tmp_path: Path
) -> None:
    fleet, far = deleting, {"kubernetes": {"context": "far"}}
    first = json.loads(control.kubeconfig.read_text())
    second = json.loads(control.kubeconfig_for("admin", "far").read_text())
    path = tmp_path / "both"
    path.touch(mode=0o600)
    path.write_text(
        json.dumps({**first, **{each: first[each] + second[each] for each in ("clusters", "contexts")}})
    )
    fleet.environment |= {SETTING + "KUBECONFIG": str(path), SETTING + "CONTEXTS": f"{fleet.tenant}=far"}
    fleet.commit({"b.yaml": fleet.agent("b", **far)}, "b, by the other name")
    assert fleet.once()["phase"] == "Converged"
    kept = fleet.object("deployment", "b")
    fleet.commit({"a.yaml": None}, "a goes")
    assert fleet.once()["phase"] == "Converged"
    there = fleet.object("deployment", "b")
    assert there["metadata"]["uid"] == kept["metadata"]["uid"]
    assert "deletionTimestamp" not in (namespace(fleet) or {})["metadata"]
    assert "because of what is kept there: Deployment b" in told(fleet, "a")
    fleet.commit({"b.yaml": None}, "b goes too")
    assert fleet.once()["phase"] == "Converged"
    until(lambda: namespace(fleet) is None, "the namespace goes with the last one, by whichever name")


def test_two_last_agents_that_go_at_once_take_the_namespace_with_them(deleting: KubeFleet) -> None:
    deleting.commit(deleting.agents("b"), "Another one")
    assert deleting.once()["phase"] == "Converged"
    deleting.commit({"a.yaml": None, "b.yaml": None}, "Both go")
    assert deleting.once()["phase"] == "Converged"
    until(lambda: namespace(deleting) is None, "the namespace is gone")


@pytest.fixture
def rights(control: Cluster, unique: str) -> Iterator[Path]:
    """The kubeconfig of a user with the rights that we had before a namespace was looked into."""
    rules = (MANIFESTS / "base/cluster-role.yaml").read_text().replace("gitops-agent-agents", unique)
    control.kubectl("apply", "-f", "-", stdin=rules)
    more = f"{unique}-namespaces"
    control.kubectl("create", "clusterrole", more, "--verb=*", "--resource=namespaces")
    for each in (unique, more):
        control.kubectl("create", "clusterrolebinding", each, f"--clusterrole={each}", "--user=bob")
    yield control.kubeconfig_for("bob")
    for each in (unique, more):
        control.kubectl("delete", f"clusterrole/{each}", f"clusterrolebinding/{each}")


def test_without_the_right_to_look_the_namespace_stays_and_the_agent_goes(
    deleting: KubeFleet, rights: Path
) -> None:
    fleet = deleting
    fleet.environment[SETTING + "KUBECONFIG"] = str(rights)
    fleet.commit({"a.yaml": None}, "a goes")
    assert fleet.once()["phase"] == "Converged"
    assert fleet.objects("configmap") == []
    assert "deletionTimestamp" not in (namespace(fleet) or {})["metadata"]
    stays = f"namespace {fleet.tenant} stays, because it cannot be known what is kept there: "
    needed = f"grant the right to list persistentvolumeclaims in namespace {fleet.tenant}"
    assert stays + needed in told(fleet, "a")


def test_nothing_is_put_into_a_namespace_that_is_being_deleted() -> None:
    occupancy, order = Occupancy(), list[str]()

    def enter() -> None:
        with occupancy.entered("a"):
            order.append("entered")

    with occupancy.left("a") as free:
        assert free
        with occupancy.entered("b"):
            order.append("another one")
        waiting = threading.Thread(target=enter)
        waiting.start()
        waiting.join(0.2)
        order.append("deleted")
    waiting.join(5)
    assert order == ["another one", "deleted", "entered"]


def test_of_two_that_leave_at_once_the_second_looks_again() -> None:
    occupancy, there = Occupancy(), {"a", "b"}
    seen: list[set[str]] = []

    def leave() -> None:
        with occupancy.left("acme") as free:
            assert free
            seen.append(set(there))

    there.discard("a")
    with occupancy.left("acme") as free:
        assert free
        seen.append(set(there))
        there.discard("b")
        second = threading.Thread(target=leave)
        second.start()
        second.join(0.2)
        assert seen == [{"b"}], "it waits"
    second.join(5)
    assert seen == [{"b"}, set()]


def test_two_names_of_one_api_server_wait_for_each_other() -> None:
    assert occupancy_of("https://127.0.0.1:1") is occupancy_of("https://127.0.0.1:1")
    assert occupancy_of("https://127.0.0.1:1") is not occupancy_of("https://127.0.0.1:2")


def test_a_namespace_that_something_is_put_into_is_not_deleted() -> None:
    occupancy = Occupancy()
    with occupancy.entered("a"), occupancy.entered("a"), occupancy.left("a") as free:
        assert not free
    with occupancy.left("a") as free:
        assert free
