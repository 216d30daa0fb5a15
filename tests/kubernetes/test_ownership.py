"""What the real API server makes of our manifests, and whom it takes fields from, is what ``ownership`` says.

The edits are dry runs: the server answers with the object as it would be, its managed fields included.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.kubernetes.client import MERGE_PATCH, Client
from gitops_agent.drivers.kubernetes.config import ClusterConfig
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.kinds import (
    CONFIG_MAP,
    CRON_JOB,
    DEPLOYMENT,
    NAMESPACE,
    SECRET,
    SERVICE,
    STATEFUL_SET,
)
from gitops_agent.drivers.kubernetes.manifest_shape import ABSENT, Leaf, identity, key_of, leaves
from gitops_agent.drivers.kubernetes.marks import MANAGER
from gitops_agent.drivers.kubernetes.ownership import missing, owned, owned_digest, project, taken

JSON_PATCH = "application/json-patch+json"
DEPLOYMENTS = itertools.count()


class Place(NamedTuple):
    """A namespace of a cluster."""

    client: Client
    namespace: str

    def path(self, live: dict[str, Any]) -> str:
        kinds = (DEPLOYMENT, STATEFUL_SET, CRON_JOB, CONFIG_MAP, SECRET, SERVICE)
        kind = next(each for each in kinds if each.kind == live["kind"])
        return kind.path(self.namespace, live["metadata"]["name"])

    def apply(self, manifest: dict[str, Any], manager: str = MANAGER, *, force: bool = True) -> dict[str, Any]:
        return self.client.apply(self.path(manifest), manifest, manager=manager, force=force)

    def get(self, live: dict[str, Any]) -> dict[str, Any]:
        return self.client.get(self.path(live))

    def edited(
        self, live: dict[str, Any], *steps: dict[str, Any], manager: str = "kubectl-edit", dry: bool = True
    ) -> dict[str, Any]:
        """The object after a JSON patch by another manager."""
        query = {"fieldManager": manager, **({"dryRun": "All"} if dry else {})}
        body: Any = list(steps)
        return self.client.request("PATCH", self.path(live), body=body, content_type=JSON_PATCH, query=query)

    def settled(self, live: dict[str, Any]) -> dict[str, Any]:
        """The object once its controller leaves it alone."""
        seen = self.get(live)
        for _ in range(100):
            time.sleep(0.1)
            before, seen = seen, self.get(live)
            observed = (seen.get("status") or {}).get("observedGeneration", 0)
            same = before["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"]
            if same and observed == seen["metadata"].get("generation", 0):
                return seen
        raise AssertionError("its controller does not come to rest")

    def delete(self, live: dict[str, Any]) -> None:
        self.client.delete(self.path(live))


@pytest.fixture(scope="module")
def place(cluster: Any) -> Iterator[Place]:
    client, name = Client(ClusterConfig(str(cluster.kubeconfig))), f"t{secrets.token_hex(4)}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    client.apply(NAMESPACE.path(name=name), made, manager=MANAGER, force=True)
    yield Place(client, name)
    client.delete(NAMESPACE.path(name=name))


# -- generated manifests

WORDS = st.sampled_from(["a", "b", "cache", "model-x", "data"])
TEXTS = st.sampled_from(["", "0", "0.5", "500m", "true", "a b", "ünï", "$(A)", "x" * 200])
CPUS = st.sampled_from(["0.5", "500m", 1, 2, "1", "1500m", "0.1", "0.001", "2.50", "1e0"])
MEMORIES = st.sampled_from(
    ["1024Mi", "1Gi", 1073741824, "1.5Gi", "129M", "129e6", "0.5Gi", "1000k", "1E", "123456789"]
)
PORTS = st.sampled_from([80, 8080, 9090, 53])
SECONDS = st.integers(1, 60)


def uniquely(items: st.SearchStrategy[Any], *keys: str) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3, unique_by=lambda each: tuple(each.get(key, "TCP") for key in keys))


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


SOURCES = st.one_of(
    st.fixed_dictionaries({"fieldRef": st.just({"fieldPath": "metadata.name"})}),
    st.fixed_dictionaries(
        {
            "secretKeyRef": st.just({"name": "s", "key": "k"})
            | st.just({"name": "s", "key": "k", "optional": False})
        }
    ),
    st.fixed_dictionaries({"resourceFieldRef": st.just({"resource": "limits.cpu", "divisor": "0.001"})}),
)
ENV = uniquely(
    st.fixed_dictionaries(
        {"name": WORDS.map(lambda word: word.upper().replace("-", "_"))}, optional={"value": TEXTS}
    )
    | st.fixed_dictionaries({"name": WORDS.map(lambda word: f"REF_{word}"), "valueFrom": SOURCES}),
    "name",
)
CONTAINER_PORTS = uniquely(
    st.fixed_dictionaries({"containerPort": PORTS}, optional={"protocol": st.sampled_from(["TCP", "UDP"])}),
    "containerPort",
    "protocol",
)
PROBES = st.fixed_dictionaries(
    {"httpGet": st.fixed_dictionaries({"port": PORTS}, optional={"path": st.just("/healthz")})},
    optional={"periodSeconds": SECONDS, "failureThreshold": SECONDS, "initialDelaySeconds": st.integers(0, 5)},
)
RESOURCES = some(
    limits=some(cpu=CPUS, memory=MEMORIES), requests=some(**{"ephemeral-storage": MEMORIES}), claims=st.just([])
)
TOLERATIONS = st.lists(
    st.sampled_from([{"operator": "Exists"}, {"key": "gpu", "effect": "NoSchedule"}, {"key": "x", "value": "y"}]),
    max_size=2,
)
VOLUMES = uniquely(
    st.builds(
        lambda name, source: {"name": name, **source},
        WORDS,
        st.sampled_from(
            [
                {"emptyDir": {}},
                {"emptyDir": {"sizeLimit": "1024Mi"}},
                {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
                {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "c"}}]}},
                {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            ]
        ),
    ),
    "name",
)
AFFINITY = st.just(
    {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 5,
                    "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}},
                }
            ]
        },
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
            }
        },
    }
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    volumes = draw(VOLUMES)
    mounts = [
        {"name": each["name"], "mountPath": f"/{each['name']}", **draw(some(readOnly=st.booleans()))}
        for each in volumes
    ]
    container = draw(
        some(
            env=ENV,
            ports=CONTAINER_PORTS,
            readinessProbe=PROBES,
            livenessProbe=PROBES,
            resources=RESOURCES,
            args=st.lists(TEXTS, max_size=3),
            command=st.just(["/bin/agent"]),
            workingDir=st.sampled_from(["", "/srv"]),
            securityContext=some(runAsNonRoot=st.booleans(), capabilities=st.just({"drop": ["ALL"]})),
            stdin=st.booleans(),
        )
    )
    rest = draw(
        some(
            tolerations=TOLERATIONS,
            affinity=AFFINITY,
            nodeSelector=st.just({"disk": "ssd"}),
            imagePullSecrets=uniquely(st.fixed_dictionaries({"name": WORDS}), "name"),
            securityContext=st.sampled_from([{}, {"fsGroup": 0}, {"runAsUser": 1000}]),
            hostNetwork=st.just(False),
            terminationGracePeriodSeconds=st.integers(0, 60),
            enableServiceLinks=st.booleans(),
            serviceAccountName=st.sampled_from(["", "default"]),
            hostAliases=st.just([{"ip": "192.0.2.1", "hostnames": ["x"]}]),
            initContainers=st.just([{"name": "first", "image": "init:1"}]),
            topologySpreadConstraints=st.just(
                [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]
            ),
        )
    )
    agent = {"name": "agent", "image": "agent:1", **container, "volumeMounts": mounts}
    return {"containers": [agent], "volumes": volumes, **rest}


@st.composite
def deployments(draw: st.DrawFn) -> dict[str, Any]:
    labels, more = (
        {"gitops-agent.dev/agent": "bot"},
        draw(st.dictionaries(WORDS, WORDS, max_size=2)),
    )
    optional = draw(
        some(
            replicas=st.integers(0, 1),
            minReadySeconds=st.integers(0, 3),
            revisionHistoryLimit=st.integers(0, 3),
            paused=st.just(False),
            strategy=st.sampled_from(
                [
                    {"type": "Recreate"},
                    {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
                ]
            ),
        )
    )
    template = {
        "metadata": {"labels": labels, **draw(some(annotations=st.just({"a.b/c": "1"})))},
        "spec": draw(pods()),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": f"d{next(DEPLOYMENTS)}",
            "labels": more,
            "annotations": {"gitops-agent.dev/spec": "1"},
        },
        "spec": {"selector": {"matchLabels": labels}, "template": template, **optional},
    }


# -- laws


@given(manifest=deployments())
def test_what_was_just_stored_is_what_we_asked_for(place: Place, manifest: dict[str, Any]) -> None:
    live = place.apply(manifest)
    try:
        assert project(live, manifest) == manifest
        assert missing(live, manifest) == ()
        assert taken(live, manifest) == ()
        assert owned(live) is not None
    finally:
        place.delete(live)


@given(manifest=deployments())
def test_nothing_that_others_add_is_a_change(place: Place, manifest: dict[str, Any]) -> None:
    manifest["spec"].pop("replicas", None)
    applied = place.apply(manifest)
    try:
        digest, live = owned_digest(applied), place.settled(applied)
        assert owned_digest(live) == digest
        again = place.apply(manifest)
        assert again["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
        assert owned_digest(again) == digest
        inside = "/spec/template/spec"
        sidecar = {"op": "add", "path": f"{inside}/containers/0", "value": {"name": "proxy", "image": "proxy:1"}}
        variable = {
            "op": "add",
            "path": f"{inside}/containers/1/env",
            "value": [{"name": "INJECTED", "value": "1"}],
        }
        if "env" in live["spec"]["template"]["spec"]["containers"][0]:
            variable = {"op": "add", "path": f"{inside}/containers/1/env/0", "value": {"name": "INJECTED"}}
        note = {"op": "add", "path": "/metadata/annotations/theirs", "value": "1"}
        place.edited(live, sidecar, variable, note, manager="injector", dry=False)
        scale = {"spec": {"replicas": 3}}
        place.client.request(
            "PATCH",
            f"{place.path(live)}/scale",
            body=scale,
            content_type=MERGE_PATCH,
            query={"fieldManager": "hpa"},
        )
        # Another that asks for the same value owns it as well.
        named = {"name": manifest["metadata"]["name"], "annotations": manifest["metadata"]["annotations"]}
        shared = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": named}
        place.apply(shared, "another", force=False)
        live = place.get(live)
        assert live["spec"]["replicas"] == 3
        assert owned_digest(live) == digest
        assert project(live, manifest) == manifest
        assert taken(live, manifest) == ()
        assert owned_digest(place.settled(place.apply(manifest))) == digest
    finally:
        place.delete(applied)


@given(manifest=deployments())
def test_every_edit_of_a_field_of_ours_is_a_change(place: Place, manifest: dict[str, Any]) -> None:
    live = place.settled(place.apply(manifest))
    try:
        # What is empty has no value that could be changed.
        tried = [leaf for leaf in leaves(live, manifest) if leaf.ours not in ({}, [], "apps/v1", "Deployment")]
        done = [leaf for leaf in tried if _notices(place, live, manifest, leaf)]
        assert len(done) >= len(tried) / 3, "most edits are refused by the server: nothing was tested"
    finally:
        place.delete(live)


def _notices(place: Place, live: dict[str, Any], manifest: dict[str, Any], leaf: Leaf) -> bool:
    """Whether the server takes an edit of one field; if it does, we must see it."""
    path, verb = _pointer(live, leaf), "add" if leaf.live is ABSENT else "replace"
    for value in _others(leaf):
        step = {"op": verb, "path": path, "value": value}
        try:
            edited = place.edited(live, step)
        except ApiError:
            continue  # the server knows better what fits in this place
        if _content(edited) == _content(live):
            continue  # another way to write the same
        assert owned_digest(edited) != owned_digest(live), step
        assert project(edited, manifest) != manifest, step
        assert taken(edited, manifest) or missing(edited, manifest), step
        return True
    return False


def _content(live: dict[str, Any]) -> Any:
    metadata = live["metadata"]
    return live["spec"], metadata.get("labels"), metadata.get("annotations")


def _others(leaf: Leaf) -> Iterator[Any]:
    """Values to put in the place of one, the likeliest first."""
    value = leaf.ours
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, "77m")
    elif isinstance(value, str):
        yield from (f"{value}x", f"{value}/x", "77m", "UDP", "ScheduleAnyway")
    elif isinstance(value, list):
        yield from (["other"], [{"operator": "Exists", "effect": "NoExecute"}], value[:-1])
    elif isinstance(value, dict):
        yield {"other": "x"}


def _pointer(live: dict[str, Any], leaf: Leaf) -> str:
    """The place of a leaf as a JSON pointer into the live object."""
    found, place = [], live
    for step in leaf.steps:
        if step.startswith("f:"):
            name: Any = step[2:]
            place = place.get(name) if isinstance(place, dict) else None  # type: ignore[assignment]
        else:
            keys = tuple(key_of(step))
            name = next(index for index, each in enumerate(place) if identity(each, keys) == step)
            place = place[name]
        found.append(str(name).replace("~", "~0").replace("/", "~1"))
    return "/" + "/".join(found)


# -- the other kinds


def test_the_other_kinds_are_stored_as_we_ask(place: Place) -> None:
    labels = {"app": "k"}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "agent", "image": "a:1"}]},
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
    }
    stateful = {
        "replicas": 0,
        "serviceName": "k",
        "selector": {"matchLabels": labels},
        "template": template,
        "volumeClaimTemplates": [claim],
    }
    once = {**template["spec"], "restartPolicy": "Never"}
    job = {"backoffLimit": 2, "template": {**template, "spec": once}}
    cron = {"schedule": "0 3 * * *", "suspend": True, "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job}}
    ports = [
        {"name": "a", "port": 80, "targetPort": 8080},
        {"name": "b", "port": 80, "targetPort": "x", "protocol": "UDP"},
    ]
    wanted: list[dict[str, Any]] = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": stateful},
        {"apiVersion": "batch/v1", "kind": "CronJob", "spec": cron},
        {"apiVersion": "v1", "kind": "Service", "spec": {"selector": labels, "ports": ports}},
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"bundle.json": "{}"}},
        {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"KEY": "b3Vycw=="}},
    ]
    for manifest in wanted:
        manifest["metadata"] = {"name": "k", "labels": labels}
        live = place.apply(manifest)
        assert project(live, manifest) == manifest, manifest["kind"]
        assert owned_digest(place.apply(manifest)) == owned_digest(live)
        note = {"op": "add", "path": "/metadata/annotations", "value": {"theirs": "1"}}
        assert owned_digest(place.edited(live, note)) == owned_digest(live)
        place.delete(live)


def test_an_edited_secret_is_seen_by_its_metadata_alone(place: Place) -> None:
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"KEY": "b3Vycw=="}}
    before, after = place.apply(manifest), None
    after = place.edited(before, {"op": "replace", "path": "/data/KEY", "value": "dGhlaXJz"})
    assert owned_digest({"metadata": before["metadata"]}) != owned_digest({"metadata": after["metadata"]})
    (found,) = taken(after, manifest)
    assert "dGhlaXJz" not in repr(found)


def test_who_scaled_it_is_said(place: Place) -> None:
    labels = {"app": "scaled"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "agent", "image": "a:1"}]}}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "scaled"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }
    live = place.apply(manifest)
    query = {"fieldManager": "kubectl"}
    body = {"spec": {"replicas": 5}}
    place.client.request("PATCH", f"{place.path(live)}/scale", body=body, content_type=MERGE_PATCH, query=query)
    (found,) = taken(place.get(live), manifest)
    # The server keeps no time for what came by this way.
    assert found.sentence().startswith("spec.replicas is 5 instead of 2, set by kubectl (scale)")
    (found,) = taken(place.edited(live, {"op": "replace", "path": "/spec/replicas", "value": 7}), manifest)
    assert found.sentence().startswith("spec.replicas is 7 instead of 2, set by kubectl-edit at ")
    assert found.at is not None
    assert abs(found.at - time.time()) < 60
    place.delete(live)
