"""Every option of ``runtime.kubernetes`` on the real server: it is stored as asked, and is no drift afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.fleet import KubeFleet
from tests.servers.cluster import Cluster
from tests.servers.faults import FaultProxy
from tests.support.fleet import Json

ON_LINUX = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
            ]
        }
    }
}
APART = {"labelSelector": {"matchLabels": {"team": "support"}}, "topologyKey": "kubernetes.io/hostname"}
AFFINITY = {
    **ON_LINUX,
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": APART}]
    },
}
TOLERATIONS = [
    {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "spare", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 30},
]
VOLUMES = [
    {"name": "scratch", "mountPath": "/scratch", "source": {"emptyDir": {"sizeLimit": "1024Mi"}}},
    {"name": "facts", "mountPath": "/facts", "readOnly": True, "source": {"configMap": {"name": "facts"}}},
]
PATCHES = [
    {"op": "add", "path": "/spec/template/spec/hostAliases", "value": [{"ip": "192.0.2.1", "hostnames": ["crm"]}]},
    {"op": "add", "path": "/spec/template/spec/containers/0/securityContext", "value": {"runAsNonRoot": True}},
    {"op": "replace", "path": "/spec/revisionHistoryLimit", "value": 5},
    {"kind": "Service", "op": "add", "path": "/spec/sessionAffinity", "value": "ClientIP"},
    {"kind": "Service", "op": "add", "path": "/metadata", "value": {"annotations": {"example.com/lb": "inner"}}},
    {"kind": "ConfigMap", "op": "add", "path": "/data/motd", "value": "hello"},
    {"kind": "Secret", "op": "add", "path": "/metadata", "value": {"labels": {"example.com/kept": "yes"}}},
]
OPTIONS: dict[str, Any] = {
    "imagePullSecrets": ["registry", "mirror"],
    "imagePullPolicy": "Always",
    "serviceAccount": "robot",
    "nodeSelector": {"kubernetes.io/hostname": "node-1"},
    "tolerations": TOLERATIONS,
    "affinity": AFFINITY,
    "volumes": VOLUMES,
    "podLabels": {"team": "support"},
    "podAnnotations": {"example.com/scrape": "true"},
    "ports": [
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "dns", "port": 53, "protocol": "UDP"},
    ],
    "secretEnv": [{"name": "CRM_KEY", "secret": "crm", "key": "token"}],
    "update": {"maxSurge": "50%", "maxUnavailable": 1},
    "patches": PATCHES,
}
RUNTIME: dict[str, Any] = {
    "replicas": 2,
    "minUptime": "1500ms",
    "stop": {"grace": "7s"},
    "workdir": "/srv",
    "resources": {"requests": {"cpu": "0.5", "memory": "0.5Gi"}, "limits": {"memory": "1024Mi"}},
    "env": [
        {"name": "MODE", "value": "calm"},
        {"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "SOURCE"}}},
    ],
}
PROBES = {
    "readiness": {"http": {"port": 8080, "path": "/readyz"}, "period": "5s", "failureThreshold": 4},
    "liveness": {"exec": {"command": ["./alive", "--quick"]}, "period": "20s", "timeout": "2500ms"},
}
KINDS = ("deployment", "configmap", "secret", "service")


@pytest.fixture
def optional(fleet: KubeFleet, control: Cluster, proxy: FaultProxy, tmp_path: Path) -> KubeFleet:
    """A fleet through the proxy, whose one agent has all options; what the options refer to is there."""
    fleet.environment |= {
        "GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG": str(
            proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))
        ),
        "SOURCE": "of the test",
    }
    fleet.cluster.kubectl("create", "namespace", fleet.tenant)
    fleet.cluster.kubectl("label", "namespace", fleet.tenant, f"gitops-agent.dev/tenant={fleet.tenant}")
    fleet.kubectl("create", "serviceaccount", "robot")
    spec = {"probes": PROBES, "rollout": {"healthTimeout": "90s"}}
    fleet.commit({"a.yaml": fleet.agent("a", "bot", "--fast", kubernetes=OPTIONS, runtime=RUNTIME, **spec)})
    assert fleet.once()["phase"] == "Converged"
    return fleet


def test_every_option_is_live_as_asked_and_the_next_pass_writes_nothing(
    optional: KubeFleet, proxy: FaultProxy
) -> None:
    found = {kind: optional.object(kind, "a") or {} for kind in KINDS}
    assert_workload(found["deployment"])
    assert_pod(found["deployment"]["spec"]["template"])
    service = found["service"]
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert service["metadata"]["annotations"]["example.com/lb"] == "inner"
    assert [(each["port"], each["targetPort"], each["protocol"]) for each in service["spec"]["ports"]] == [
        (80, 8080, "TCP"),
        (53, 53, "UDP"),
    ]
    assert found["configmap"]["data"]["motd"] == "hello"
    assert found["secret"]["metadata"]["labels"]["example.com/kept"] == "yes"
    assert {pod["spec"]["nodeName"] for pod in optional.objects("pod")} == {"node-1"}

    assert optional.ask("drift")["drifts"] == []
    before, pods = versions(optional), {each["metadata"]["uid"] for each in optional.objects("pod")}
    proxy.forget()
    assert optional.once()["phase"] == "Converged"
    assert [each for each in proxy.requests() if each.method != "GET"] == []
    assert proxy.requests(), "it was looked at, through the proxy"
    assert versions(optional) == before
    assert {each["metadata"]["uid"] for each in optional.objects("pod")} == pods


def assert_workload(deployment: Json) -> None:
    """What the document says about the rollout is in the Deployment."""
    spec = deployment["spec"]
    assert deployment["status"]["readyReplicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": "50%", "maxUnavailable": 1}
    assert (spec["minReadySeconds"], spec["progressDeadlineSeconds"], spec["revisionHistoryLimit"]) == (2, 90, 5)


def assert_pod(template: Json) -> None:
    """What the document says about its pods is in their template, beside what the server added."""
    pod, (container,) = template["spec"], template["spec"]["containers"]
    assert template["metadata"]["labels"]["team"] == "support"
    assert template["metadata"]["annotations"]["example.com/scrape"] == "true"
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
    assert (pod["serviceAccountName"], pod["nodeSelector"]) == ("robot", OPTIONS["nodeSelector"])
    assert (pod["tolerations"], pod["affinity"]) == (TOLERATIONS, AFFINITY)
    assert pod["terminationGracePeriodSeconds"] == 7
    assert pod["hostAliases"] == [{"ip": "192.0.2.1", "hostnames": ["crm"]}]
    assert {each["name"] for each in pod["volumes"]} == {"gitops-agent-bundle", "scratch", "facts"}
    mounts = {each["name"]: (each["mountPath"], each.get("readOnly", False)) for each in container["volumeMounts"]}
    assert (mounts["scratch"], mounts["facts"]) == (("/scratch", False), ("/facts", True))
    assert (container["command"], container["workingDir"]) == (["bot", "--fast"], "/srv")
    assert (container["imagePullPolicy"], container["securityContext"]) == ("Always", {"runAsNonRoot": True})
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi"}
    ports = {(each["name"], each["containerPort"], each["protocol"]) for each in container["ports"]}
    assert ports == {("http", 8080, "TCP"), ("dns", 53, "UDP")}
    env = {each["name"]: each for each in container["env"]}
    assert env["MODE"]["value"] == "calm"
    assert env["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "a", "key": "TOKEN"}}
    assert env["CRM_KEY"]["valueFrom"] == {"secretKeyRef": {"name": "crm", "key": "token"}}
    assert_probes(container)


def assert_probes(container: Json) -> None:
    readiness, liveness = container["readinessProbe"], container["livenessProbe"]
    assert (readiness["httpGet"]["port"], readiness["httpGet"]["path"]) == (8080, "/readyz")
    assert (readiness["periodSeconds"], readiness["failureThreshold"]) == (5, 4)
    assert liveness["exec"] == {"command": ["./alive", "--quick"]}
    assert (liveness["periodSeconds"], liveness["timeoutSeconds"]) == (20, 3)


def versions(fleet: KubeFleet) -> dict[str, tuple[int | None, str]]:
    """The generation and the version of each object of the agent."""
    found = {kind: (fleet.object(kind, "a") or {})["metadata"] for kind in KINDS}
    return {kind: (each.get("generation"), each["resourceVersion"]) for kind, each in found.items()}


@pytest.mark.parametrize(
    ("update", "fewest_ready", "most"), [({"maxUnavailable": 2, "maxSurge": 0}, 2, 4), ({}, 4, 5)]
)
def test_a_rolling_update_keeps_to_what_the_document_says(
    fleet: KubeFleet, control: Cluster, update: Json, fewest_ready: int, most: int
) -> None:
    slow = {"podAnnotations": {"stages.gitops-agent.dev/ready-after": "500ms"}, "update": update}
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=slow, runtime={"replicas": 4})})
    assert fleet.once()["phase"] == "Converged"
    began = json.loads(raw_pods(fleet))
    changed = {"replicas": 4, "image": "registry.example/bot:2"}
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=slow, runtime=changed)})
    assert fleet.once()["phase"] == "Converged"
    seen = list(counts(fleet, began))
    assert min(ready for ready, _ in seen) == fewest_ready
    assert max(there for _, there in seen) == most


def counts(fleet: KubeFleet, began: Json) -> Iterator[tuple[int, int]]:
    """How many pods were Ready and how many were there after each event since a list, as the server recorded it:
    nothing between two looks is missed."""
    there = {each["metadata"]["name"]: each for each in began["items"]}
    query = f"watch=true&timeoutSeconds=1&resourceVersion={began['metadata']['resourceVersion']}"
    for line in raw_pods(fleet, query).splitlines():
        event = json.loads(line)
        pod = event["object"]
        there[pod["metadata"]["name"]] = pod
        if event["type"] == "DELETED" or "deletionTimestamp" in pod["metadata"]:
            del there[pod["metadata"]["name"]]
        yield sum(map(is_ready, there.values())), len(there)


def raw_pods(fleet: KubeFleet, query: str = "") -> str:
    """What the server answers; kubectl by itself leaves the version of a list out."""
    return fleet.kubectl("get", "--raw", f"/api/v1/namespaces/{fleet.tenant}/pods?{query}")


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
