"""From a document to the objects of an agent: what each option becomes, and what is refused where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gitops_agent.drivers.api import AgentDocument, AgentKey, Compilation, Refused
from gitops_agent.drivers.kubernetes import PLUGIN
from gitops_agent.drivers.kubernetes.objects import Objects
from gitops_agent.drivers.kubernetes.options import KubernetesOptions, Settings
from tests.drivers.conftest import agent_document

BOT = AgentKey("acme", "bot")
PORT = {"name": "http", "port": 80, "targetPort": 8080}
SECRET = {"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "SOURCE"}}}
Json = dict[str, Any]


def compiled(options: Json | None = None, spec: Json | None = None, agent: AgentKey = BOT, **runtime: Any) -> Json:
    """The fields of each resource of an agent, by kind."""
    document, chosen = documented(options, spec, agent, **runtime)
    return {each.key.kind: each for each in PLUGIN.compile(Compilation(agent, document, chosen))}


def documented(
    options: Json | None = None, spec: Json | None = None, agent: AgentKey = BOT, **runtime: Any
) -> tuple[AgentDocument, KubernetesOptions]:
    """A document for a cluster, and what it says of the cluster."""
    runtime = {"driver": "kubernetes", "image": "registry.example/bot:1", "command": (), **runtime}
    chosen = KubernetesOptions.model_validate_json(json.dumps(options or {}))
    return agent_document(agent, spec=spec, **runtime), chosen


def manifest(kind: str = "runtime", **asked: Any) -> Json:
    """The whole object that is applied."""
    found = compiled(**asked)[kind]
    return Objects("prod", Settings()).manifest(BOT, found.fields)


def pod(**asked: Any) -> Json:
    found: Json = manifest(**asked)["spec"]["template"]["spec"]
    return found


def refused(**asked: Any) -> list[tuple[str, tuple[str | int, ...]]]:
    with pytest.raises(Refused) as caught:
        compiled(**asked)
    return [(str(each), each.at) for each in (caught.value, *caught.value.more)]


def test_an_agent_is_a_workload_and_a_bundle_and_what_it_asks_for() -> None:
    assert compiled().keys() == {"config", "runtime"}
    assert compiled(env=[SECRET]).keys() == {"config", "runtime", "credential"}
    assert compiled({"ports": [PORT]}).keys() == {"config", "runtime", "service"}
    assert compiled({"workload": "StatefulSet"}).keys() == {"config", "runtime", "service"}
    assert compiled(spec={"lifecycle": "Retired"}) == {}
    assert {each.driver for each in compiled({"context": "far"}).values()} == {"kubernetes@far"}


def test_every_object_says_whose_it_is() -> None:
    wanted = {
        "app.kubernetes.io/managed-by": "gitops-agent",
        "gitops-agent.dev/instance": "prod",
        "gitops-agent.dev/tenant": "acme",
        "gitops-agent.dev/agent": "bot",
    }
    asked: Json = {"options": {"ports": [PORT]}, "env": [SECRET]}
    for kind in ("config", "runtime", "credential", "service"):
        found = manifest(kind, **asked)["metadata"]
        assert (found["name"], found["namespace"], found["labels"]) == ("bot", "acme", wanted)
        assert found["annotations"]["gitops-agent.dev/spec"]
    assert wanted.items() <= manifest(**asked)["spec"]["template"]["metadata"]["labels"].items()
    assert manifest(options={"namespace": "own"})["metadata"]["namespace"] == "own"


def test_options_become_what_the_api_calls_them() -> None:
    options = {
        "imagePullPolicy": "Always",
        "imagePullSecrets": ["registry"],
        "serviceAccount": "robot",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "volumes": [{"name": "data", "mountPath": "/data", "readOnly": True, "source": {"emptyDir": {}}}],
        "secretEnv": [{"name": "KEY", "secret": "kept", "key": "k"}],
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
        "update": {"maxSurge": "25%", "maxUnavailable": 2},
        "ports": [PORT],
    }
    found = manifest(options=options)
    spec, inside = found["spec"], found["spec"]["template"]["spec"]
    (container,) = inside["containers"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": 2}
    assert inside["imagePullSecrets"] == [{"name": "registry"}]
    assert (inside["serviceAccountName"], inside["automountServiceAccountToken"]) == ("robot", True)
    assert (inside["nodeSelector"], inside["affinity"]) == (options["nodeSelector"], options["affinity"])
    assert inside["tolerations"] == options["tolerations"]
    assert {"name": "data", "emptyDir": {}} in inside["volumes"]
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
    key = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "kept", "key": "k"}}}
    assert key in container["env"]
    assert container["imagePullPolicy"] == "Always"
    assert container["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    labels, annotations = (spec["template"]["metadata"][each] for each in ("labels", "annotations"))
    assert (labels["team"], annotations["note"]) == ("a", "b")
    served = manifest("service", options=options)["spec"]
    assert served["ports"] == [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
    assert served["selector"].items() <= labels.items()


def test_two_ports_of_the_service_may_lead_to_one_of_the_container() -> None:
    options = {"ports": [PORT, {"name": "old", "port": 8000, "targetPort": 8080}]}
    (container,) = pod(options=options)["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    assert [each["port"] for each in manifest("service", options=options)["spec"]["ports"]] == [80, 8000]


def test_what_the_document_says_is_in_the_pod() -> None:
    probe = {"exec": {"command": ["true"]}, "period": "500ms", "failureThreshold": 2}
    spec = {"probes": {"readiness": {"http": {"port": 80, "path": "/up"}}, "liveness": probe}}
    runtime: Json = {"resources": {"limits": {"memory": "1Gi"}}, "stop": {"grace": "90s"}, "workdir": "/w"}
    found = pod(spec=spec, command=["bot", "--fast"], **runtime)
    (container,) = found["containers"]
    assert (container["command"], container["workingDir"]) == (["bot", "--fast"], "/w")
    assert container["readinessProbe"]["httpGet"] == {"port": 80, "path": "/up"}
    liveness = container["livenessProbe"]
    assert (liveness["exec"], liveness["periodSeconds"]) == ({"command": ["true"]}, 1), "no less than the API can"
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    assert found["terminationGracePeriodSeconds"] == 90
    assert found["automountServiceAccountToken"] is False
    assert pod(spec={"heartbeat": {}})["automountServiceAccountToken"] is True
    assert manifest(exclusive=True)["spec"]["strategy"] == {"type": "Recreate"}


def test_a_change_of_the_bundle_restarts_unless_the_agent_reads_it_again() -> None:
    def templates(reload: str) -> list[Any]:
        models = ({"provider": "p", "name": name} for name in ("one", "two"))
        return [
            compiled(spec={"model": each}, reload=reload)["runtime"].fields.value["template"] for each in models
        ]

    assert templates("Restart")[0] != templates("Restart")[1]
    assert templates("Hot")[0] == templates("Hot")[1]


def test_stopped_is_scaled_to_zero_or_suspended() -> None:
    stopped = {"lifecycle": "Stopped"}
    found = compiled(spec=stopped, replicas=3)["runtime"]
    assert (found.stopped, found.kept, found.fields.value["replicas"]) == (True, True, 0)
    job = manifest(options={"workload": "CronJob", "schedule": "@daily", "timeZone": "UTC"}, spec=stopped)["spec"]
    assert (job["suspend"], job["schedule"], job["timeZone"]) == (True, "@daily", "UTC")
    assert job["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_where_live_decides_replicas_are_not_applied() -> None:
    live = {"authority": {"runtime.replicas": "live"}}
    assert "replicas" not in manifest(spec=live, replicas=3)["spec"]
    assert manifest(replicas=3)["spec"]["replicas"] == 3
    stopped = manifest(spec={**live, "lifecycle": "Stopped"}, replicas=3)["spec"]
    assert stopped["replicas"] == 0, "stopped is Git's to say, whoever scales it"


def test_secrets_are_references_only() -> None:
    found = compiled(env=[SECRET])
    (reference,) = found["credential"].fields.value["secrets"]
    assert reference == {"name": "TOKEN", "secretRef": {"provider": "env", "name": "SOURCE"}}
    assert "data" not in manifest("credential", env=[SECRET])


def test_a_claim_is_kept_by_each_replica() -> None:
    claim = {"name": "memory", "mountPath": "/memory", "size": "1Gi", "storageClass": "fast"}
    spec = manifest(options={"workload": "StatefulSet", "claims": [claim]})["spec"]
    (template,) = spec["volumeClaimTemplates"]
    assert template["spec"]["storageClassName"] == "fast"
    assert template["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    assert manifest("service", options={"workload": "StatefulSet"})["spec"]["clusterIP"] == "None"
