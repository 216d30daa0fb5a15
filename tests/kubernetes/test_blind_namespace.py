"""A namespace without rights: its agents are those that could not be looked at, and all others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.fleet import KubeFleet
from tests.kubernetes.install import MANIFESTS
from tests.kubernetes.test_tenants import document, in_namespace
from tests.servers.cluster import Cluster
from tests.servers.faults import FaultProxy
from tests.support.fleet import until

USER = "bob"
SETTINGS = "GITOPS_AGENT_DRIVERS__KUBERNETES__"


@pytest.fixture
def other(control: Cluster, unique: str) -> Iterator[str]:
    """The namespace of another tenant."""
    control.kubectl("create", "namespace", unique)
    yield unique
    control.kubectl("delete", "namespace", unique, "--wait=false")


@pytest.fixture
def limited(fleet: KubeFleet, control: Cluster, other: str) -> Iterator[KubeFleet]:
    """The fleet with rights in the namespaces of two tenants, as overlays/tenants gives them."""
    role, both = f"agents-{other}", (fleet.tenant, other)
    rules = (MANIFESTS / "base/cluster-role.yaml").read_text().replace("gitops-agent-agents", role)
    control.kubectl("apply", "-f", "-", stdin=rules)
    named = [f"--resource-name={each}" for each in both]
    control.kubectl(
        "create", "clusterrole", f"names-{other}", "--verb=get,list,watch", "--resource=namespaces", *named
    )
    control.kubectl(
        "create", "clusterrolebinding", f"names-{other}", f"--clusterrole=names-{other}", f"--user={USER}"
    )
    control.kubectl("create", "namespace", fleet.tenant)
    for each in both:
        control.kubectl("label", "namespace", each, f"gitops-agent.dev/tenant={each}")
        control.kubectl("-n", each, "create", "rolebinding", "ours", f"--clusterrole={role}", f"--user={USER}")
    fleet.environment |= {
        SETTINGS + "KUBECONFIG": str(control.kubeconfig_for(USER)),
        SETTINGS + "NAMESPACES": ",".join(both),
        SETTINGS + "CREATE_NAMESPACES": "false",
    }
    yield fleet
    control.kubectl("delete", "clusterrole", role, f"names-{other}")
    control.kubectl("delete", "clusterrolebinding", f"names-{other}")


def take_rights(control: Cluster, namespace: str) -> None:
    """Take our rights in a namespace away."""
    control.kubectl("-n", namespace, "delete", "rolebinding", "ours")
    asked = ("-n", namespace, "auth", "can-i", "list", "pods", f"--as={USER}")
    until(lambda: control.kubectl(*asked, check=False) != "yes\n")


def test_an_exclusive_agent_does_not_end_for_a_namespace_that_cannot_be_looked_at(
    fleet: KubeFleet, control: Cluster, proxy: FaultProxy, other: str, tmp_path: Path
) -> None:
    """We may write there, and see no pods: neither is it ended here, nor is it begun there."""
    fleet.environment |= {
        SETTINGS + "KUBECONFIG": str(proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))),
        SETTINGS + "NAMESPACES": f"{fleet.tenant},{other}",
    }
    exclusive = {"runtime": {"exclusive": True}}
    fleet.commit({"a.yaml": fleet.agent("a", **exclusive)})
    assert fleet.once()["phase"] == "Converged"
    kept = fleet.object("deployment", "a")
    control.kubectl("label", "namespace", other, f"gitops-agent.dev/tenant={fleet.tenant}")
    proxy.fail(403, lambda seen: seen.path == f"/api/v1/namespaces/{other}/pods")
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes={"namespace": other}, **exclusive)}, "It moves there")
    fleet.once("--timeout", "10s", code=5)
    there = fleet.object("deployment", "a")
    assert there is not None
    assert there["metadata"]["uid"] == kept["metadata"]["uid"]
    assert "deletionTimestamp" not in there["metadata"]
    assert in_namespace(fleet, other, "configmap", "a") is None
    explained = " ".join(fleet.call("explain", "a").out.split())
    assert f"namespace {other} cannot be looked at: list pods in namespace {other}" in explained
    proxy.heal()
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("deployment", "a") is None
    assert in_namespace(fleet, other, "deployment", "a")


def test_a_namespace_without_rights_stops_no_other(limited: KubeFleet, control: Cluster, other: str) -> None:
    fleet = limited
    fleet.commit({"a.yaml": fleet.agent("a"), "b.yaml": document(fleet, "b", other)})
    assert fleet.once()["phase"] == "Converged"
    kept = in_namespace(fleet, other, "deployment", "b")
    assert kept is not None

    take_rights(control, other)
    fleet.kubectl("delete", "deployment", "a")
    fleet.once("--timeout", "30s", code=5)
    assert fleet.object("deployment", "a"), "the other tenant is repaired"

    why = f"{USER} may not list "
    status = fleet.status()
    (ready,) = [
        each
        for row in status["agents"]
        if row["agent"] == f"{other}/b"
        for each in row["conditions"]
        if each["type"] == "Ready"
    ]
    assert (ready["status"], ready["reason"]) == (False, "ObserveFailed")
    assert why in ready["message"]
    assert "grant it by a Role" in ready["message"]
    assert fleet.condition(status, "a")["status"]
    explained = " ".join(fleet.call("explain", f"{other}/b").out.split())
    assert why in explained
    assert "Missing" not in explained
    plan = fleet.call("plan")
    assert plan.code == 5
    assert f"Agents: {other}/b." in " ".join(plan.out.split())
    assert f"{other}/b: list " in fleet.call("drift").out
    logs = fleet.call("logs", f"{other}/b")
    assert logs.code != 0
    assert why in " ".join(logs.err.split())

    fleet.commit({"b.yaml": None}, "b leaves Git while it cannot be looked at")
    fleet.once("--timeout", "10s", code=5)
    assert in_namespace(fleet, other, "deployment", "b")["metadata"]["uid"] == kept["metadata"]["uid"]
    control.kubectl(
        "-n", other, "create", "rolebinding", "ours", f"--clusterrole=agents-{other}", f"--user={USER}"
    )
    assert fleet.once()["phase"] == "Converged"
    assert in_namespace(fleet, other, "deployment", "b") is None
