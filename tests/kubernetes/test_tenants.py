"""A tenant's documents reach its own namespace, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.kubernetes.fleet import KubeFleet
from tests.kubernetes.install import MANIFESTS
from tests.servers.cluster import Cluster
from tests.servers.faults import FaultProxy, Seen
from tests.servers.kubeconfig import write_kubeconfig
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

    def refused() -> dict[str, str]:
        findings = fleet.once(code=3)["findings"]
        return {
            each["address"].partition(":")[0]: each["summary"] for each in findings if each["severity"] == "error"
        }

    assert refused().keys() == {"a.yaml", "b.yaml"}
    fleet.environment[KUBERNETES + "CONTEXTS"] = f"{fleet.tenant}=far"
    found = refused()
    assert found.keys() == {"b.yaml"}
    assert f"documents of {other} may not name the context far" in found["b.yaml"]
    assert "drivers.kubernetes.contexts: far, or TENANT=far" in found["b.yaml"]
    assert fleet.objects("deployment") == []
    assert in_namespace(fleet, other, "deployment", "b") is None

    fleet.commit({"b.yaml": None})
    assert fleet.once()["phase"] == "Converged"
    assert {each["metadata"]["name"] for each in fleet.objects("deployment")} == {"near", "a"}


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


def test_to_write_as_a_tenant_the_rights_of_the_page_are_enough(
    fleet: KubeFleet, control: Cluster, other: str, tmp_path: Path
) -> None:
    """We may read, write events, and act as the account of the tenant's namespace; it alone may write."""
    user = f"system:serviceaccount:{other}:{ACCOUNT}"
    with cluster_roles(control, other) as (reads, writes):
        control.kubectl("-n", other, "create", "serviceaccount", ACCOUNT)
        ours = f"--serviceaccount={other}:{ACCOUNT}"
        control.kubectl("create", "clusterrolebinding", reads, f"--clusterrole={reads}", ours)
        control.kubectl("-n", other, "create", "role", "election", "--verb=get", "--resource=leases")
        control.kubectl("-n", other, "create", "rolebinding", "election", "--role=election", ours)
        token = control.kubectl("-n", other, "create", "token", ACCOUNT).strip()
        path = write_kubeconfig(tmp_path / "ours", control.url, control.ca, ACCOUNT, token)
        fleet.environment[KUBERNETES + "KUBECONFIG"] = str(path)
        fleet.environment[KUBERNETES + "IMPERSONATE"] = "system:serviceaccount:{namespace}:" + ACCOUNT
        fleet.environment[KUBERNETES + "CREATE_NAMESPACES"] = "false"
        fleet.environment[KUBERNETES + "ELECTION_NAMESPACE"] = other
        control.kubectl("create", "namespace", fleet.tenant)
        control.kubectl("label", "namespace", fleet.tenant, f"gitops-agent.dev/tenant={fleet.tenant}")
        for words in commands_of_the_page(fleet.tenant, other, writes):
            control.kubectl(*words)

        began = control.mark()
        fleet.commit(fleet.agents("a", "b", "c", "d"))
        assert fleet.once()["phase"] == "Converged"
        fleet.commit({"a.yaml": fleet.agent("a", runtime={"image": "registry.example/bot:2"}), "b.yaml": None})
        assert fleet.once()["phase"] == "Converged"
        assert fleet.image("a") == "registry.example/bot:2"
        assert fleet.object("deployment", "b") is None
        fleet.kubectl("scale", "deployment/c", "--replicas=3")
        assert fleet.once()["phase"] == "Converged"
        assert fleet.call("logs", "a").out
        asked = control.requests(user, began)
        assert {each.verb for each in asked} >= {"patch", "delete"}
        assert [each for each in asked if each.code == 403] == []

        fleet.kubectl("delete", "rolebinding", "gitops-agent-impersonate")
        fleet.commit({"a.yaml": fleet.agent("a")})
        fleet.once("--timeout", "12s", code=5)
        assert fleet.image("a") == "registry.example/bot:2", "without the right nothing is written"


def commands_of_the_page(tenant: str, home: str, role: str) -> list[list[str]]:
    """What docs/kubernetes-install.md says for a tenant, with the names of the test."""
    page = (MANIFESTS.parents[1] / "docs" / "kubernetes-install.md").read_text(encoding="utf-8")
    lines = re.findall(r"^ +kubectl (-n acme create .*)$", page, re.MULTILINE)
    assert len(lines) == 4
    named = (
        ("gitops-agent:gitops-agent", f"{home}:{ACCOUNT}"),
        ("acme", tenant),
        ("--clusterrole=gitops-agent-agents", f"--clusterrole={role}"),
    )
    for old, new in named:
        lines = [line.replace(old, new) for line in lines]
    return [line.split() for line in lines]


@contextmanager
def cluster_roles(control: Cluster, name: str) -> Iterator[tuple[str, str]]:
    """The role of the manifests under a name of the test, and what we ourselves need of it: reads and events."""
    rules = YAML(typ="safe").load((MANIFESTS / "base" / "cluster-role.yaml").read_text())["rules"]
    reads = [{**rule, "verbs": [verb for verb in rule["verbs"] if may_ourselves(rule, verb)]} for rule in rules]
    reads.append({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]})
    roles = {f"{name}-reads": reads, f"{name}-writes": rules}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    for role, allowed in roles.items():
        control.kubectl(
            "create", "-f", "-", stdin=json.dumps({**kind, "metadata": {"name": role}, "rules": allowed})
        )
    try:
        yield f"{name}-reads", f"{name}-writes"
    finally:
        control.kubectl("delete", "clusterrolebinding", f"{name}-reads", "--ignore-not-found")
        control.kubectl("delete", "clusterrole", *roles)


def may_ourselves(rule: Json, verb: str) -> bool:
    return verb in ("get", "list", "watch") or rule["resources"] == ["events"]
