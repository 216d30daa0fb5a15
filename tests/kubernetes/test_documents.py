"""A law over documents: what ``validate`` lets through the real server takes as it is, and to apply it again
changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.api import AgentKey, Compilation, Resource
from gitops_agent.drivers.kubernetes import PLUGIN
from gitops_agent.drivers.kubernetes.objects import Objects, shown_fields
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.drivers.kubernetes.ownership import missing, owned_digest, project, taken
from tests.drivers.test_kubernetes_manifests import documented
from tests.kubernetes.test_ownership import (
    AFFINITY,
    TOLERATIONS,
    WORDS,
    Place,
    place,
    some,
    uniquely,
)
from tests.servers.cluster import Cluster

__all__ = ["place"]

NAMES = itertools.count()
OBJECTS = Objects("law", Settings())
TEXTS = st.sampled_from(["", "0", "true", "a b", "ünï", "$(A)", "x" * 200])
MEMORIES = st.sampled_from(["1024Mi", "1Gi", "1.5Gi", "129M", "0.5Gi", "123456789"])
DURATIONS = st.sampled_from(["0s", "50ms", "1500ms", "1s", "90s", "1h"])
AMOUNTS = st.sampled_from([1, 3, "1", "25%", "100%"])
SOURCES = st.sampled_from(
    [
        {},
        {"emptyDir": {}},
        {"emptyDir": {"sizeLimit": "1024Mi"}},
        {"secret": {"secretName": "s", "defaultMode": 256}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "c"}}]}},
        {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"persistentVolumeClaim": {"claimName": "p"}},
    ]
)
PORTS = uniquely(
    st.fixed_dictionaries(
        {"name": WORDS, "port": st.sampled_from([80, 53])},
        optional={"targetPort": st.sampled_from([8080, 53]), "protocol": st.sampled_from(["TCP", "UDP"])},
    ),
    "port",
    "protocol",
).filter(lambda ports: len({each["name"] for each in ports}) == len(ports))
VOLUMES = uniquely(
    st.builds(
        lambda name, source, more: {"name": name, "mountPath": f"/{name}", "source": source, **more},
        WORDS,
        SOURCES,
        some(readOnly=st.booleans()),
    ),
    "name",
)
CLAIMS = uniquely(
    st.builds(
        lambda name, size, more: {"name": f"disk-{name}", "mountPath": f"/disk/{name}", "size": size, **more},
        WORDS,
        MEMORIES,
        some(storageClass=st.just("fast")),
    ),
    "name",
)
PATCHES = st.lists(
    st.sampled_from(
        [
            {"op": "add", "path": "/metadata", "value": {"annotations": {"example.com/a": ""}}},
            {"kind": "ConfigMap", "op": "add", "path": "/data/more", "value": ""},
            {"kind": "ConfigMap", "op": "add", "path": "/immutable", "value": False},
        ]
    ),
    max_size=2,
)
CONTAINER = "/spec/template/spec/containers/0"
POD_PATCHES = st.lists(
    st.sampled_from(
        [
            {"op": "add", "path": f"{CONTAINER}/securityContext", "value": {"runAsUser": 0, "capabilities": {}}},
            {"op": "add", "path": f"{CONTAINER}/lifecycle", "value": {"preStop": {"sleep": {"seconds": 1}}}},
            {"op": "add", "path": f"{CONTAINER}/envFrom", "value": [{"secretRef": {"name": "s"}}]},
            {"op": "add", "path": "/spec/template/spec/initContainers", "value": [{"name": "i", "image": "i:1"}]},
            {"op": "add", "path": "/spec/template/spec/hostNetwork", "value": False},
        ]
    ),
    max_size=2,
)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "imagePullPolicy": st.sampled_from(["Always", "IfNotPresent", "Never"]),
    "imagePullSecrets": st.lists(WORDS, max_size=2, unique=True),
    "serviceAccount": st.just("robot"),
    "secretEnv": st.just([{"name": "KEY", "secret": "s", "key": "k"}]),
    "nodeSelector": st.sampled_from([{}, {"disk": "ssd"}, {"disk": ""}]),
    "tolerations": TOLERATIONS,
    "affinity": st.just({}) | st.just({"nodeAffinity": {}}) | AFFINITY,
    "volumes": VOLUMES,
    "podLabels": st.dictionaries(WORDS, st.sampled_from(["", "x"]), max_size=2),
    "podAnnotations": st.dictionaries(WORDS, TEXTS, max_size=2),
}
WORKLOADS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "Deployment": some(
        **OPTIONS, ports=PORTS, update=some(maxSurge=AMOUNTS, maxUnavailable=AMOUNTS), patches=POD_PATCHES
    ),
    "StatefulSet": some(**OPTIONS, ports=PORTS, claims=CLAIMS, patches=POD_PATCHES),
    "CronJob": st.builds(
        lambda options, schedule: {**options, "schedule": schedule},
        some(**OPTIONS, timeZone=st.just("Europe/Berlin"), patches=PATCHES),
        st.sampled_from(["*/15 * * * *", "@daily", "0 3 * * MON-FRI"]),
    ),
}
PROBES = st.fixed_dictionaries(
    {"http": st.just({"port": 80, "path": "/up"})}, optional={"period": st.just("1500ms")}
)
PROBES |= st.fixed_dictionaries(
    {"exec": st.just({"command": ["true", ""]})}, optional={"timeout": st.just("50ms")}
)
SPECS = some(
    lifecycle=st.sampled_from(["Running", "Stopped"]),
    instructions=TEXTS,
    heartbeat=st.just({}),
    probes=some(readiness=PROBES, liveness=PROBES),
    rollout=st.fixed_dictionaries({"healthTimeout": DURATIONS}),
)
SECRET = {"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "SOURCE"}}}
RUNTIMES = some(
    command=st.lists(TEXTS.filter(bool), max_size=2),
    workdir=st.just("/srv"),
    exclusive=st.booleans(),
    reload=st.sampled_from(["Restart", "Hot"]),
    minUptime=DURATIONS,
    stop=st.fixed_dictionaries({"grace": DURATIONS}),
    env=st.lists(st.sampled_from([SECRET, {"name": "MODE", "value": ""}]), max_size=2, unique_by=str),
    resources=some(
        limits=some(cpu=st.sampled_from(["0.5", "500m", "2"]), memory=MEMORIES),
        requests=some(cpu=st.sampled_from(["0.1", "1m"]), memory=st.sampled_from(["1Mi", "1000k"])),
    ),
)


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    """A document for a cluster: its options, its spec and its runtime."""
    workload = draw(st.sampled_from(sorted(WORKLOADS)))
    options = {**draw(WORKLOADS[workload]), "workload": workload}
    replicas = {} if workload == "CronJob" else draw(some(replicas=st.integers(1, 3)))
    return {"options": options, "spec": draw(SPECS), **draw(RUNTIMES), **replicas}


@pytest.fixture(scope="module")
def still(place: Place, control: Cluster) -> Iterator[Place]:
    """A namespace in which nothing happens but what a test does: controllers would change versions as well."""
    with control.only_the_server():
        yield place


def compiled(place: Place, document: dict[str, Any]) -> list[tuple[Resource, dict[str, Any]]]:
    """The resources of a document, each with the object that is applied for it."""
    agent = AgentKey(place.namespace, f"law-{next(NAMES)}")
    made, options = documented(agent=agent, **document)
    found = PLUGIN.compile(Compilation(agent, made, options))
    return [(each, OBJECTS.manifest(agent, each.fields)) for each in found]


@given(document=asked())
def test_to_apply_a_document_again_changes_nothing(still: Place, document: dict[str, Any]) -> None:
    for resource, manifest in compiled(still, document):
        live = still.apply(manifest, force=False)
        again = still.apply(manifest, force=False)
        assert again["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
        assert owned_digest(again) == owned_digest(live)
        assert (project(live, manifest), missing(live, manifest), taken(live, manifest)) == (manifest, (), ())
        assert shown_fields(live, resource.fields) == resource.fields
        still.delete(live)
