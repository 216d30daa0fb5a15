"""What is live, as ``kubectl`` shows it, against what the documents say: nothing of the driver's code is asked."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence

from tests.kubernetes.chaos.author import objects_of
from tests.kubernetes.chaos.trail import Key
from tests.servers.cluster import Cluster
from tests.support.fleet import Json

OBJECTS = ("deployments", "statefulsets", "cronjobs", "configmaps", "secrets", "services", "pods")
NOT_OURS = ("kube-root-ca.crt",)
AGENT, INSTANCE = "gitops-agent.dev/agent", "gitops-agent.dev/instance"


def not_as_git(
    cluster: Cluster, instance: str, tenants: Sequence[str], documents: Sequence[Json], secret: str
) -> list[str]:
    """Everything that is missing, too much or different, each as a sentence."""
    live = {key: each for tenant in tenants for key, each in _objects(cluster, tenant)}
    pods = {key: live.pop(key) for key in list(live) if key.resource == "pods"}
    wanted = objects_of(documents)
    found = [f"{key} is missing" for key in sorted(wanted - live.keys())]
    found += [f"{key} is too much" for key in sorted(live.keys() - wanted)]
    for document in documents:
        tenant, name = document["metadata"]["tenant"], document["metadata"]["name"]
        own = {key.resource: each for key, each in live.items() if key[1:] == (tenant, name)}
        running = [
            each
            for each in pods.values()
            if each["metadata"]["namespace"] == tenant and each["metadata"]["labels"].get(AGENT) == name
        ]
        found += [f"{tenant}/{name}: {what}" for what in differences(document, instance, own, running, secret)]
    names = {(each["metadata"]["tenant"], each["metadata"]["name"]) for each in documents}
    for key, pod in pods.items():
        if (key.namespace, pod["metadata"]["labels"].get(AGENT)) not in names:
            found.append(f"{key} is of no agent")
    return found


def _objects(cluster: Cluster, namespace: str) -> Iterator[tuple[Key, Json]]:
    kinds = {"Deployment": "deployments", "StatefulSet": "statefulsets", "CronJob": "cronjobs", "Pod": "pods"}
    kinds |= {"ConfigMap": "configmaps", "Secret": "secrets", "Service": "services"}
    shown = json.loads(cluster.kubectl("get", ",".join(OBJECTS), "-n", namespace, "-o", "json"))
    for each in shown["items"]:
        name = each["metadata"]["name"]
        is_ending_pod = each["kind"] == "Pod" and "deletionTimestamp" in each["metadata"]
        if name not in NOT_OURS and not is_ending_pod:
            yield Key(kinds[each["kind"]], namespace, name), each


def differences(
    document: Json, instance: str, own: Mapping[str, Json], pods: Sequence[Json], secret: str
) -> Iterator[str]:
    """Where the objects of one agent (by the plural of their kind) and its pods are not as its document says."""
    runtime = document["spec"]["runtime"]
    workload = own.get("deployments") or own.get("statefulsets")
    if workload is not None:
        spec, status = workload["spec"], workload.get("status", {})
        yield from _differs("image", _image(spec["template"]), runtime["image"])
        yield from _differs("replicas", spec["replicas"], runtime["replicas"])
        yield from _differs("ready replicas", status.get("readyReplicas", 0), runtime["replicas"])
        yield from _differs("observed", status.get("observedGeneration"), workload["metadata"]["generation"])
        yield from _differs("instance", workload["metadata"]["labels"].get(INSTANCE), instance)
        images = [_image(pod) for pod in pods]
        yield from _differs("images of pods", images, [runtime["image"]] * runtime["replicas"])
    if config := own.get("configmaps"):
        bundle = json.loads(config["data"]["bundle.json"])
        yield from _differs("instructions", bundle.get("instructions"), document["spec"]["instructions"])
        yield from _differs("name in the bundle", bundle.get("name"), document["metadata"]["name"])
        yield from _differs("keys of the bundle", sorted(config["data"]), ["bundle.json"])
    if kept := own.get("secrets"):
        values = {name: base64.b64decode(value).decode() for name, value in kept.get("data", {}).items()}
        yield from _differs("secret", values, {"TOKEN": secret})


def _image(pod: Json) -> str:
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def _differs(what: str, live: object, wanted: object) -> Iterator[str]:
    if live != wanted:
        yield f"{what}: live {live!r}, Git {wanted!r}"
