"""The manifests of docker/kubernetes on a real API server: accepted, complete, with the rights that are meant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from tests.kubernetes.install import (
    ACCOUNT,
    MANIFESTS,
    NAMESPACE,
    Installation,
    copied,
    installed,
    one,
)
from tests.servers.cluster import Cluster
from tests.servers.external import ExternalCluster

pytestmark = pytest.mark.servers

OVERLAYS = ("single", "ha", "tenants")
OPTIONS = ("exec", "fencing", "heartbeat", "monitoring", "namespace-deletion")
VOLUME_NAME = "gitops-agent-test"
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": VOLUME_NAME},
    "spec": {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": "/nonexistent"},
    },
}
"""There is no provisioner in the cluster of the tests, so the volume is made by hand."""


@pytest.fixture(scope="module", params=OVERLAYS)
def now(
    cluster: Cluster | ExternalCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Installation]:
    """Each overlay as it is, applied once for all tests of it."""
    overlay = copied(tmp_path_factory.mktemp("manifests"), request.param)
    with volume(own(cluster)), installed(own(cluster), overlay) as applied:
        yield applied


@pytest.fixture(scope="module")
def optional(
    cluster: Cluster | ExternalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """The overlay ``ha`` with all its options."""
    overlay = copied(tmp_path_factory.mktemp("manifests"), "ha", OPTIONS)
    with service_monitors(own(cluster)), installed(own(cluster), overlay) as applied:
        yield applied


def own(cluster: Cluster | ExternalCluster) -> Cluster:
    """The cluster, if it is ours: into that of a user nothing is installed under a name that may be taken."""
    if isinstance(cluster, ExternalCluster):
        pytest.skip("installs gitops-agent under its own name: only into a control plane of the tests")
    return cluster


def test_the_manifests_are_accepted_without_a_warning_and_the_rollout_completes(now: Installation) -> None:
    assert "arning" not in now.said  # of the Pod Security level restricted, say
    assert "rror" not in now.said
    assert now.said.count("serverside-applied") == len(now.objects)
    assert "successfully rolled out" in now.rollout()


def test_a_drain_takes_one_replica_at_a_time(now: Installation) -> None:
    replicas = one(now.objects, "Deployment")["spec"]["replicas"]
    budgets = [each for each in now.objects if each["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == replicas - 1  # one replica alone must not keep a node from being drained
    now.rollout()
    if budgets:
        wait = ("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/gitops-agent", "--timeout=30s")
        assert "condition met" in now.cluster.kubectl(*wait, "--namespace", NAMESPACE)
        pods = now.cluster.get("pods", namespace=NAMESPACE)["items"]
        assert len({pod["spec"]["nodeName"] for pod in pods}) == replicas


def test_the_pod_is_not_root_writes_nothing_but_its_volumes_and_may_do_nothing(now: Installation) -> None:
    pod = one(now.objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["enableServiceLinks"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} == set(container["resources"])
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)


def test_monitoring_is_an_option_that_opens_the_port_to_it(optional: Installation) -> None:
    assert "servicemonitor.monitoring.coreos.com/gitops-agent serverside-applied" in optional.said
    policy = optional.cluster.get("networkpolicy", ACCOUNT, namespace=NAMESPACE)
    assert len(policy["spec"]["ingress"]) == 1


# -- what the service account may, asked of the server (SelfSubjectAccessReview) and tried

Right = tuple[str, str, str]
"""A verb, a resource (``plural.group/subresource``) and a namespace, or none for the whole cluster."""

RBAC = "rbac.authorization.k8s.io"
LEASES = "leases.coordination.k8s.io"
NEVER: list[Right] = [
    ("create", f"clusterroles.{RBAC}", ""), ("patch", f"clusterrolebindings.{RBAC}", ""),
    ("create", f"rolebindings.{RBAC}", "acme"), ("escalate", f"clusterroles.{RBAC}", ""),
    ("bind", f"clusterroles.{RBAC}", ""), ("impersonate", "serviceaccounts", "acme"), ("impersonate", "users", ""),
    ("get", "nodes", ""), ("list", "nodes", ""), ("get", "nodes/proxy", ""), ("delete", "namespaces", "acme"),
    ("create", "pods", "acme"), ("patch", "pods", "acme"), ("create", "pods/exec", "acme"),
    ("get", "pods/exec", "acme"), ("create", "pods/attach", "acme"), ("create", "pods/portforward", "acme"),
    ("create", "pods/eviction", "acme"), ("patch", "pods/ephemeralcontainers", "acme"),
    ("create", "serviceaccounts/token", "gitops-agent"), ("create", "serviceaccounts", "acme"),
    ("create", "daemonsets.apps", "acme"), ("create", "jobs.batch", "acme"), ("create", "persistentvolumes", ""),
    ("create", "validatingwebhookconfigurations.admissionregistration.k8s.io", ""),
    ("create", "customresourcedefinitions.apiextensions.k8s.io", ""),
    ("create", LEASES, "kube-system"), ("create", LEASES, "acme"), ("delete", LEASES, "gitops-agent"),
    ("update", LEASES, "gitops-agent"),
    ("deletecollection", "secrets", "acme"), ("patch", "namespaces", "acme"), ("update", "namespaces", "acme"),
    ("list", "persistentvolumeclaims", "acme"), ("delete", "persistentvolumeclaims", "acme"),
    ("list", "daemonsets.apps", "acme"), ("list", "jobs.batch", "acme"),
    *((verb, "events", "acme") for verb in ("get", "watch", "patch", "update", "delete")),
    ("update", "deployments.apps", "acme"), ("patch", "deployments.apps/status", "acme"),
]  # fmt: skip
"""Refused in every overlay without options."""

ALWAYS: list[Right] = [
    ("create", "deployments.apps", "acme"), ("patch", "statefulsets.apps", "acme"),
    ("delete", "cronjobs.batch", "acme"), ("watch", "configmaps", "acme"), ("create", "secrets", "acme"),
    ("patch", "services", "acme"), ("delete", "pods", "acme"), ("get", "pods/log", "acme"),
    ("create", "events", "acme"), ("list", "events", "acme"), ("get", "namespaces", "acme"),
    ("get", LEASES, "gitops-agent"),
]  # fmt: skip

ELECTION: list[Right] = [(verb, LEASES, "gitops-agent") for verb in ("create", "patch")]
ANYWHERE: list[Right] = [
    ("get", "secrets", "kube-system"), ("create", "deployments.apps", "kube-system"), ("list", "secrets", ""),
    ("create", "namespaces", ""), ("list", "namespaces", ""), ("watch", "namespaces", ""),
]  # fmt: skip
"""What rights in the whole cluster bring, and rights by tenant do not."""


def may(now: Installation, verb: str, resource: str, namespace: str) -> bool:
    """What the server answers to a SelfSubjectAccessReview of the service account."""
    whole, _, subresource = resource.partition("/")
    plural, _, group = whole.partition(".")
    asked = {"verb": verb, "resource": plural, "group": group, "subresource": subresource, "namespace": namespace}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool(now.create(path, {**kind, "spec": {"resourceAttributes": asked}})["status"]["allowed"])


def test_what_is_asked_about_exists(control: Cluster) -> None:
    """A misspelled resource is refused as well, and would prove nothing."""
    named = {right[1] for right in (*NEVER, *ALWAYS, *ELECTION, *ANYWHERE) if right[0] != "impersonate"}
    assert {name for name in named if not serves(control, name)} == set()


def serves(cluster: Cluster, resource: str) -> bool:
    whole, _, subresource = resource.partition("/")
    plural, _, group = whole.partition(".")
    return f"{plural}/{subresource}".rstrip("/") in served(cluster, group)


@cache
def served(cluster: Cluster, group: str) -> set[str]:
    """The resources of a group that the server knows."""
    found = json.loads(cluster.kubectl("get", "--raw", f"/apis/{group}/v1" if group else "/api/v1"))
    return {each["name"] for each in found["resources"]}


def wrong(now: Installation, allowed: list[Right], refused: list[Right]) -> list[str]:
    """The answers that are not as they should be."""
    missing = [f"may not {' '.join(each)}" for each in allowed if not may(now, *each)]
    return missing + [f"may {' '.join(each)}" for each in refused if may(now, *each)]


def refusal(now: Installation, *args: str, stdin: str | None = None) -> bool:
    """Whether the server refuses a real request of the service account with 403."""
    return "forbidden: User" in now.cluster.kubectl(*args, stdin=stdin, user=ACCOUNT, check=False)


def overlay_of(now: Installation) -> str:
    """Which overlay is applied, by what tells them apart."""
    found = {(each["kind"], each["metadata"]["name"]) for each in now.objects}
    if ("Namespace", "acme") in found:
        return "tenants"
    return "ha" if ("PodDisruptionBudget", ACCOUNT) in found else "single"


RIGHTS: dict[str, tuple[list[Right], list[Right]]] = {
    "single": ([*ALWAYS, *ANYWHERE], [*NEVER, *ELECTION]),
    "ha": ([*ALWAYS, *ANYWHERE, *ELECTION], NEVER),
    "tenants": ([*ALWAYS, *ELECTION], [*NEVER, *ANYWHERE]),
}
"""What is allowed and what is refused."""


def test_the_rights_are_those_that_are_listed(now: Installation) -> None:
    assert wrong(now, *RIGHTS[overlay_of(now)]) == []


def test_real_requests_beyond_them_are_refused(now: Installation) -> None:
    now.kubeconfig()
    assert refusal(now, "delete", "namespace", "acme")
    assert refusal(now, "get", "nodes")
    assert refusal(now, "create", "clusterrole", "more", "--verb=get", "--resource=configmaps")
    assert refusal(now, "create", "clusterrolebinding", "more", "--clusterrole=cluster-admin", "--user=me")
    assert refusal(now, "create", "token", "default", "--namespace", "kube-system")
    assert refusal(now, "run", "more", "--image=any", "--namespace", "default")
    assert refusal(now, "get", "secrets", "--namespace", "kube-system") == (overlay_of(now) == "tenants")


def test_rights_by_tenant_end_at_their_namespaces(now: Installation) -> None:
    elsewhere = overlay_of(now) == "tenants"
    now.kubeconfig()
    assert refusal(now, "get", "secrets", "--all-namespaces") == elsewhere
    assert refusal(now, "get", "secrets", "--namespace", NAMESPACE) == elsewhere
    assert refusal(now, "get", "namespaces") == elsewhere
    assert refusal(now, "create", "namespace", "more", "--dry-run=server") == elsewhere
    assert refusal(now, "get", "deployments", "--namespace", "default") == elsewhere
    assert not refusal(now, "get", "secrets", "--namespace", "acme")


def test_options_add_their_rights_and_no_others(optional: Installation) -> None:
    added: list[Right] = [
        ("create", "pods/exec", "acme"), ("get", "pods/exec", "acme"), ("delete", "namespaces", "acme"),
        ("list", "persistentvolumeclaims", "acme"), ("list", "daemonsets.apps", "acme"),
        ("list", "jobs.batch", "acme"),
    ]  # fmt: skip
    refused = [right for right in NEVER if right not in added]  # to impersonate others, too
    assert wrong(optional, [*ALWAYS, *ANYWHERE, *ELECTION, *added], refused) == []


def test_every_component_is_used_or_offered_and_on_the_page() -> None:
    there = {each.name for each in (MANIFESTS / "components").iterdir()}
    page = (MANIFESTS.parents[1] / "docs" / "kubernetes-install.md").read_text()
    assert {each for each in there if f"| `{each}` |" not in page} == set()
    overlays = "".join((MANIFESTS / "overlays" / each / "kustomization.yaml").read_text() for each in OVERLAYS)
    assert {each for each in there if f"- ../../components/{each}\n" not in overlays} == set()
    assert set(OPTIONS) == there - {"cluster-wide", "high-availability", "postgres"}


@contextmanager
def volume(cluster: Cluster) -> Iterator[None]:
    """A volume that the claim of the overlay ``single`` binds."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(VOLUME))
    try:
        yield
    finally:
        cluster.kubectl("delete", "persistentvolume", VOLUME_NAME, "--ignore-not-found", "--wait=false")


@contextmanager
def service_monitors(cluster: Cluster) -> Iterator[None]:
    """The kind that the Prometheus operator brings, reduced to its name."""
    group, name = "monitoring.coreos.com", "servicemonitors.monitoring.coreos.com"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"kind": "ServiceMonitor", "plural": "servicemonitors"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**kind, "metadata": {"name": name}, "spec": spec}))
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}")
    try:
        yield
    finally:
        cluster.kubectl("delete", "crd", name, "--wait=false")
