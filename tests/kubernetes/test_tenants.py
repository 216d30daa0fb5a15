"""A tenant's documents reach its own namespace, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kubernetes.fleet import KubeFleet
from tests.servers.cluster import Cluster
from tests.servers.faults import FaultProxy, Seen
from tests.support.fleet import Json

ACCOUNT = "gitops-agent"
KUBERNETES = "GITOPS_AGENT_DRIVERS__KUBERNETES__"


def document(fleet: KubeFleet, name: str, tenant: str, **spec: object) -> str:
    return fleet.agent(name, metadata={"tenant": tenant}, **spec)


def in_namespace(fleet: KubeFleet, namespace: str, kind: str, name: str) -> Json | None:
    found = fleet.cluster.kubectl("-n", namespace, "get", kind, name, "-o", "json", "--ignore-not-found")
    return json.loads(found) if found.strip() else None


@pytest.fixture
def other(fleet: KubeFleet, unique: str) -> object:
    """A namespace that is there already, and nobody's."""
    fleet.cluster.kubectl("create", "namespace", unique)
    yield unique
    fleet.cluster.kubectl("delete", "namespace", unique, "--wait=false")


def test_the_namespace_of_another_is_refused_with_a_way_out(fleet: KubeFleet, other: str) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes={"namespace": other}), **fleet.agents("b")})
    fleet.once("--timeout", "12s", code=5)
    assert in_namespace(fleet, other, "deployment", "a") is None
    explained = fleet.call("explain", "a").out
    assert f"namespace {other} is not marked as one of this tenant" in explained
    way_out = f"kubectl label namespace {other} gitops-agent.dev/tenant={fleet.tenant}"
    assert way_out in " ".join(explained.split())

    fleet.cluster.kubectl("label", "namespace", other, "gitops-agent.dev/tenant=somebody")
    moved = fleet.agent("a", kubernetes={"namespace": other}, description="Once more")
    fleet.commit({"a.yaml": moved})
    fleet.once("--timeout", "12s", code=5)
    assert in_namespace(fleet, other, "deployment", "a") is None, "it is another tenant's now"

    fleet.cluster.kubectl(*way_out.split()[1:], "--overwrite")
    # One that failed so often waits for longer and longer; a new commit is tried at once.
    fleet.commit({"a.yaml": moved.replace("Once more", "At last")})
    assert fleet.once()["phase"] == "Converged"
    assert in_namespace(fleet, other, "deployment", "a")
    assert fleet.object("deployment", "a") is None

    fleet.commit(fleet.agents("a"), "Back to the namespace of the tenant")
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("deployment", "a")
    for kind in ("deployment", "configmap"):
        assert in_namespace(fleet, other, kind, "a") is None, "what it left behind is gone"
    assert fleet.cluster.kubectl("get", "namespace", other, "-o", "name"), "a namespace is never deleted"


def test_a_namespace_that_a_document_names_is_never_made(fleet: KubeFleet, unique: str) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes={"namespace": unique}), **fleet.agents("b")})
    fleet.once("--timeout", "12s", code=5)
    assert fleet.object("deployment", "b"), "the namespace of the tenant is"
    assert not fleet.cluster.kubectl("get", "namespace", unique, "--ignore-not-found").strip()
    explained = " ".join(fleet.call("explain", "a").out.split())
    assert f"there is no namespace {unique}" in explained
    assert f"kubectl label namespace {unique} gitops-agent.dev/tenant={fleet.tenant}" in explained


def test_a_namespace_that_may_not_be_read_is_not_made(
    fleet: KubeFleet, proxy: FaultProxy, control: Cluster, tmp_path: Path
) -> None:
    path = proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))
    fleet.environment[KUBERNETES + "KUBECONFIG"] = str(path)
    made: list[str] = []

    def read(seen: Seen) -> bool:
        if seen.method == "POST" and seen.path.endswith("/namespaces"):
            made.append(seen.path)
        return seen.method == "GET" and seen.path.endswith(f"/namespaces/{fleet.tenant}")

    proxy.fail(403, read)
    fleet.commit(fleet.agents("a"))
    fleet.once("--timeout", "12s", code=5)
    assert made == []
    assert f"read namespace {fleet.tenant}" in fleet.call("explain", "a").out


def test_a_context_is_for_those_that_the_operator_lets_name_it(
    fleet: KubeFleet, other: str, tmp_path: Path
) -> None:
    known = json.loads(fleet.cluster.kubectl("config", "view", "--raw", "-o", "json"))
    again = [{**known["contexts"][0], "name": "far"}]
    (tmp_path / "both").touch(mode=0o600)
    (tmp_path / "both").write_text(json.dumps({**known, "contexts": known["contexts"] + again}))
    fleet.environment[KUBERNETES + "KUBECONFIG"] = str(tmp_path / "both")
    fleet.cluster.kubectl("label", "namespace", other, f"gitops-agent.dev/tenant={other}")
    far = {"kubernetes": {"context": "far"}}
    fleet.commit(
        {"a.yaml": fleet.agent("a", **far), "b.yaml": document(fleet, "b", other, **far), **fleet.agents("near")}
    )
    fleet.call("once", "--timeout", "12s")
    assert {each["metadata"]["name"] for each in fleet.objects("deployment")} == {"near"}
    explained = " ".join(fleet.call("explain", "a").out.split())
    assert "no document may name the context far" in explained

    fleet.environment[KUBERNETES + "CONTEXTS"] = f"{fleet.tenant}=far"
    fleet.once("--timeout", "12s", code=5)
    assert {each["metadata"]["name"] for each in fleet.objects("deployment")} == {"near", "a"}
    assert in_namespace(fleet, other, "deployment", "b") is None
    explained = " ".join(fleet.call("explain", f"{other}/b").out.split())
    assert f"documents of {other} may not name the context far" in explained
    assert "drivers.kubernetes.contexts: far, or TENANT=far" in explained


def test_pods_stay_off_their_host(fleet: KubeFleet) -> None:
    volume = {"name": "root", "mountPath": "/root", "source": {"hostPath": {"path": "/"}}}
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes={"volumes": [volume]}), **fleet.agents("b")})
    fleet.once("--timeout", "12s", code=5)
    assert {each["metadata"]["name"] for each in fleet.objects("deployment")} == {"b"}
    explained = " ".join(fleet.call("explain", "a").out.split())
    assert "its pods would reach the host they run on: spec.volumes root: hostPath" in explained
    assert "drivers.kubernetes.allowHostAccess" in explained


def test_a_tenant_without_rights_fails_alone(fleet: KubeFleet, other: str) -> None:
    fleet.environment[KUBERNETES + "IMPERSONATE"] = "system:serviceaccount:{namespace}:" + ACCOUNT
    fleet.cluster.kubectl("label", "namespace", other, f"gitops-agent.dev/tenant={other}")
    fleet.cluster.kubectl("create", "namespace", fleet.tenant)
    fleet.cluster.kubectl("label", "namespace", fleet.tenant, f"gitops-agent.dev/tenant={fleet.tenant}")
    fleet.kubectl("create", "serviceaccount", ACCOUNT)
    account = f"--serviceaccount={fleet.tenant}:{ACCOUNT}"
    fleet.kubectl("create", "rolebinding", "writes", "--clusterrole=admin", account)
    fleet.commit({"a.yaml": fleet.agent("a"), "b.yaml": document(fleet, "b", other)})
    fleet.once("--timeout", "12s", code=5)
    assert fleet.object("deployment", "a")
    assert in_namespace(fleet, other, "deployment", "b") is None
    explained = " ".join(fleet.call("explain", f"{other}/b").out.split())
    assert f"system:serviceaccount:{other}:{ACCOUNT} may not patch configmaps in namespace {other}" in explained
    assert "grant it by a Role" in explained
