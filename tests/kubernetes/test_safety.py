"""What must not happen, whatever a cluster holds: nothing of others is taken, restarted, written or removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gitops_agent.drivers.api import Context, ObserveError, ObserveRequest
from gitops_agent.drivers.kubernetes.driver import KubernetesDriver, connect
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.support.clock import SystemClock
from tests.kubernetes.fleet import IMAGE, KubeFleet
from tests.kubernetes.test_drift import CALM, SECRET
from tests.kubernetes.test_orphans import deployment, marks
from tests.kubernetes.test_tenants import in_namespace
from tests.servers.cluster import Cluster
from tests.servers.faults import Fault, FaultProxy
from tests.support.fleet import Json, until

OURS = ("--server-side", "--field-manager=gitops-agent")
OTHER_INSTANCE = "gitops-agent.dev/instance=someone-else"
THEIRS = "registry.example/theirs:1"


@contextmanager
def connected(fleet: KubeFleet, place: str = "", term: int = 0, **settings: object) -> Iterator[KubernetesDriver]:
    """The driver itself, as administrator."""
    given = Settings.model_validate({"kubeconfig": str(fleet.cluster.kubeconfig), **settings})
    driver = connect(Context(fleet.instance, "/nowhere", SystemClock(), given, place=place, term=term))
    try:
        yield driver
    finally:
        driver.close()


@pytest.fixture
def proxied(fleet: KubeFleet, proxy: FaultProxy, control: Cluster, tmp_path: Path) -> KubeFleet:
    """A fleet that reaches the cluster through the proxy."""
    path = proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"] = str(path)
    return fleet


def meanwhile(proxy: FaultProxy, method: str, path: str, move: Callable[[], object]) -> None:
    """Do something in the world while our next request of this kind to a path is held back."""
    proxy.inject(Fault(lambda seen: seen.method == method and seen.path.endswith(path), meanwhile=move, times=1))


def copied(fleet: KubeFleet, kind: str, namespace: str) -> None:
    """Put an object of ours into another namespace as it is, its owners of fields included."""
    found = fleet.object(kind, "a")
    assert found is not None
    metadata = {"name": "a", **{key: found["metadata"][key] for key in ("labels", "annotations")}}
    copy = {**found, "metadata": metadata}
    copy.pop("status", None)
    fleet.cluster.kubectl("-n", namespace, "apply", *OURS, "-f", "-", stdin=json.dumps(copy))


def test_who_we_are_in_our_own_cluster_says_nothing_in_another(fleet: KubeFleet) -> None:
    """The account that ``fenceAs`` names has no rights here: where it is used, nothing can be seen."""
    context = fleet.cluster.kubectl("config", "current-context").strip()
    asked = {"fenceAs": "system:serviceaccount:nowhere:gitops-agent", "contexts": [context]}
    with connected(fleet, term=3, **asked) as driver, pytest.raises(ObserveError, match="may not list"):
        driver.observe(ObserveRequest())
    with connected(fleet, place=context, term=3, **asked) as driver:
        assert driver.observe(ObserveRequest()) == []


# -- what only looks like ours


@pytest.mark.parametrize("kind", ["configmap", "deployment"])
def test_what_carries_our_labels_and_was_never_applied_is_not_overwritten(fleet: KubeFleet, kind: str) -> None:
    fleet.commit(fleet.agents("first"))
    fleet.once()
    labels = marks(fleet, "a")
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": labels}}
    theirs = json.dumps({**made, "data": {"own": "theirs"}}) if kind == "configmap" else deployment("a", labels)
    fleet.kubectl("create", "-f", "-", stdin=theirs)
    before = fleet.object(kind, "a")
    fleet.commit(fleet.agents("a"))
    fleet.once("--timeout", "8s", code=5)
    found = fleet.object(kind, "a")
    assert "gitops-agent.dev/spec" not in found["metadata"].get("annotations", {})
    held = "data" if kind == "configmap" else "spec"
    assert found[held] == before[held], "as it was"
    assert "is not ours" in fleet.call("explain", "a").out
    if kind == "configmap":
        fleet.commit(fleet.agents("a", adopt=True))
        assert fleet.once()["phase"] == "Converged", "it is adopted like anything that is not ours"
        assert fleet.object(kind, "a")["data"].keys() == {"bundle.json", "own"}


def test_a_backup_that_was_restored_elsewhere_is_left_alone(fleet: KubeFleet, unique: str) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    fleet.cluster.kubectl("create", "namespace", unique)
    try:
        for kind in ("configmap", "deployment"):
            copied(fleet, kind, unique)
        assert fleet.once()["phase"] == "Converged"
        assert "Leftover" not in fleet.call("explain", "a").out
        fleet.kubectl("delete", "configmap", "a")
        fleet.once()
        assert fleet.object("configmap", "a") is not None, "the copy is not taken for it"
        fleet.commit({"a.yaml": None})
        assert fleet.once()["phase"] == "Converged"
        for kind in ("configmap", "deployment"):
            assert fleet.object(kind, "a") is None
            found = in_namespace(fleet, unique, kind, "a")
            assert found is not None
            assert "deletionTimestamp" not in found["metadata"]
        orphans = {(each["agent"], each["decision"]) for each in fleet.ask("drift")["drifts"]}
        assert orphans == {(fleet.key("a"), "quarantine")}
    finally:
        fleet.cluster.kubectl("delete", "namespace", unique, "--wait=false")


def test_a_restart_is_not_owed_for_ever_to_a_backup_that_was_restored_elsewhere(
    fleet: KubeFleet, unique: str
) -> None:
    """A copy never begins with the writing of our Secret: it is not restarted, and nothing is owed for it."""
    rotating(fleet)
    fleet.cluster.kubectl("create", "namespace", unique)
    try:
        for kind in ("secret", "configmap", "deployment"):
            copied(fleet, kind, unique)
        copy = in_namespace(fleet, unique, "deployment", "a")
        fleet.once(SOURCE="second")
        until(lambda: restarted(fleet.object("deployment", "a")), "it follows its secret")
        assert fleet.ask("drift", SOURCE="second")["drifts"] == []
        asked = fleet.object("deployment", "a")["spec"]["template"]
        assert fleet.once(SOURCE="second")["phase"] == "Converged"
        assert fleet.object("deployment", "a")["spec"]["template"] == asked, "restarted once"
        assert in_namespace(fleet, unique, "deployment", "a")["spec"] == copy["spec"], "the copy is left alone"
    finally:
        fleet.cluster.kubectl("delete", "namespace", unique, "--wait=false")


def test_an_agent_whose_namespace_is_no_longer_its_tenants_is_not_deleted(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    fleet.cluster.kubectl("label", "namespace", fleet.tenant, "gitops-agent.dev/tenant-")
    fleet.commit({"a.yaml": None})
    fleet.once("--timeout", "6s", code=5)
    assert fleet.object("deployment", "a") is not None
    assert "is not marked as one of this tenant" in fleet.call("explain", "a").out
    fleet.cluster.kubectl("label", "namespace", fleet.tenant, f"gitops-agent.dev/tenant={fleet.tenant}")
    fleet.call("retry", "a")
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("deployment", "a") is None


def test_a_pod_that_only_carries_our_labels_is_no_copy_of_an_agent(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    (real,) = (each["metadata"] for each in fleet.objects("pod"))
    labels = {name: text for name, text in real["labels"].items() if "gitops-agent" in name}
    other = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other-1", "uid": "none", "controller": True}
    spec = {"containers": [{"name": "agent", "image": "registry.example/never-ready:1"}]}
    for name, owners in (("bare", []), ("of-another", [other])):
        metadata = {"name": name, "labels": labels, "ownerReferences": owners}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        fleet.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    with connected(fleet) as driver:
        (runtime,) = (each for each in driver.observe(ObserveRequest()) if each.key.kind == "runtime")
    assert [each.id for each in runtime.instances] == [real["name"]]


# -- what moves on while it is written


def test_what_another_instance_marks_while_it_is_adopted_stays_theirs(
    proxied: KubeFleet, proxy: FaultProxy
) -> None:
    fleet = proxied
    fleet.commit(fleet.agents("first"))
    fleet.once()
    fleet.kubectl("create", "configmap", "a", "--from-literal=own=theirs")
    meanwhile(proxy, "PATCH", "/configmaps/a", lambda: fleet.kubectl("label", "configmap", "a", OTHER_INSTANCE))
    fleet.commit(fleet.agents("a", adopt=True))
    fleet.once("--timeout", "8s", code=5)
    found = fleet.object("configmap", "a")
    assert found["data"] == {"own": "theirs"}
    assert found["metadata"]["labels"] == dict([OTHER_INSTANCE.split("=")])
    assert "belongs to the instance someone-else" in fleet.call("explain", "a").out


def restarted(found: Json | None) -> bool:
    """Whether a rolling restart was asked for."""
    assert found is not None
    notes = found["spec"]["template"]["metadata"].get("annotations") or {}
    return "kubectl.kubernetes.io/restartedAt" in notes


def rotating(fleet: KubeFleet) -> None:
    """An agent that follows its secret, running with the first value of it."""
    follows = fleet.agent("a", runtime={"env": SECRET, "onSecretChange": "Restart"})
    fleet.commit({"policy.yaml": fleet.policy(**CALM), "a.yaml": follows})
    fleet.once(SOURCE="first")


def test_a_restart_is_for_what_we_applied_alone(fleet: KubeFleet) -> None:
    rotating(fleet)
    fleet.kubectl("create", "-f", "-", stdin=deployment("a-copy", marks(fleet, "a")))
    fleet.once(SOURCE="second")
    until(lambda: restarted(fleet.object("deployment", "a")), "it follows its secret")
    assert not restarted(fleet.object("deployment", "a-copy"))


def test_what_another_makes_anew_is_not_restarted(proxied: KubeFleet, proxy: FaultProxy) -> None:
    fleet = proxied
    rotating(fleet)

    def replaced() -> None:
        fleet.kubectl("delete", "deployment", "a")
        fleet.kubectl("create", "-f", "-", stdin=deployment("a"))

    meanwhile(proxy, "PATCH", "/deployments/a", replaced)
    fleet.call("once", "--timeout", "5s", SOURCE="second")
    assert fleet.image("a") == THEIRS
    assert not restarted(fleet.object("deployment", "a"))


def test_a_restart_follows_a_status_that_moves_on(proxied: KubeFleet, proxy: FaultProxy) -> None:
    fleet = proxied
    rotating(fleet)
    meanwhile(proxy, "PATCH", "/deployments/a", lambda: fleet.kubectl("label", "deployment", "a", "team=red"))
    fleet.once(SOURCE="second")
    assert restarted(fleet.object("deployment", "a"))


# -- what is not gone yet


def test_what_a_finalizer_holds_is_not_gone(fleet: KubeFleet) -> None:
    fleet.commit({**fleet.agents("a", kubernetes={"ports": [{"name": "http", "port": 80}]}), **fleet.agents("b")})
    fleet.once()
    held = ("patch", "service", "a", "--type=merge", "-p")
    fleet.kubectl(*held, json.dumps({"metadata": {"finalizers": ["example.com/hold"]}}))
    fleet.commit({"a.yaml": None})
    fleet.once("--timeout", "6s", code=5)
    found = fleet.object("service", "a")
    assert found is not None
    assert found["metadata"]["deletionTimestamp"]
    assert "held by example.com/hold" in fleet.call("explain", "a").out
    fleet.kubectl(*held, json.dumps({"metadata": {"finalizers": None}}))
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("service", "a") is None


# -- what a document must not reach


def test_a_service_takes_no_address_of_others(fleet: KubeFleet) -> None:
    patches = [{"op": "add", "path": "/spec/externalIPs", "value": ["10.0.0.1"], "kind": "Service"}]
    ports = [{"name": "http", "port": 80}]
    fleet.commit(fleet.agents("a", kubernetes={"ports": ports, "patches": patches}))
    fleet.once("--timeout", "8s", code=5)
    assert fleet.object("service", "a") is None
    assert "spec.externalIPs" in fleet.call("explain", "a").out
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__ALLOW_HOST_ACCESS"] = "true"
    fleet.call("retry", "a")
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("service", "a")["spec"]["externalIPs"] == ["10.0.0.1"]


def test_what_cannot_be_changed_says_how_it_is_made_anew(fleet: KubeFleet) -> None:
    def stateful(size: str) -> str:
        claim = {"name": "m", "mountPath": "/m", "size": size}
        return fleet.agent("a", kubernetes={"workload": "StatefulSet", "claims": [claim]})

    fleet.commit({"a.yaml": stateful("1Gi")})
    fleet.call("once", "--timeout", "6s")
    fleet.commit({"a.yaml": stateful("2Gi")}, "More room")
    fleet.call("once", "--timeout", "6s")
    explained = " ".join(fleet.call("explain", "a").out.split())
    way_out = f"kubectl -n {fleet.tenant} delete statefulset a --cascade=orphan"
    assert f"{way_out}; gitops-agent retry a makes it again" in explained
    fleet.cluster.kubectl(*way_out.split()[1:])
    fleet.call("retry", "a")
    fleet.call("once", "--timeout", "6s")
    asked = fleet.object("statefulset", "a")["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]
    assert asked == {"storage": "2Gi"}
    assert fleet.object("statefulset", "a")["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


# -- what is kept in memory


def test_what_is_gone_is_kept_nowhere(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    with connected(fleet) as driver:
        assert {each.key.agent.name for each in driver.observe(ObserveRequest())} == {"a", "b"}
        fleet.commit({"a.yaml": None})
        fleet.once()
        until(lambda: {each.key.agent.name for each in driver.observe(ObserveRequest())} == {"b"}, "a is gone")
        driver.observe(ObserveRequest())
        assert {agent.name for agent in driver._observing._sights if agent} == {"b"}
