"""What a document for a cluster may not say: each with its address. And the way out: patches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gitops_agent.drivers.api import AgentKey, Compilation, Refused, Resource
from gitops_agent.drivers.kubernetes import PLUGIN
from gitops_agent.drivers.kubernetes.manifests import joined, split
from gitops_agent.drivers.kubernetes.objects import Objects, template_of
from gitops_agent.drivers.kubernetes.options import KubernetesOptions, ObjectPatch, Settings
from gitops_agent.drivers.kubernetes.patches import RESERVED
from gitops_agent.drivers.kubernetes.refusals import MAX_BUNDLE_BYTES
from tests.drivers.test_kubernetes_manifests import BOT, PORT, SECRET, documented, manifest, pod, refused

AT = ("runtime", "kubernetes")
OFF = {"workload": "CronJob"}
IN_PLACE = {"workload": "StatefulSet"}


def volume(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mountPath": path, "source": {"emptyDir": {}}}


@pytest.mark.parametrize(
    ("asked", "said", "at"),
    [
        ({"image": None}, "needs runtime.image", ("runtime",)),
        ({"stop": {"signal": "SIGINT"}}, "ended by SIGTERM", ("runtime", "stop", "signal")),
        ({"options": OFF}, "needs a schedule", (*AT, "workload")),
        ({"options": {**OFF, "schedule": "daily"}}, "has not five fields", (*AT, "schedule")),
        ({"options": {"schedule": "@daily"}}, "needs workload: CronJob", (*AT, "schedule")),
        (
            {"options": {**OFF, "schedule": "@daily"}, "agent": AgentKey("acme", "x" * 53)},
            "at most 52 characters",
            (),
        ),
        ({"options": {**OFF, "schedule": "@daily"}, "replicas": 2}, "once at a time", ("runtime", "replicas")),
        ({"options": {**OFF, "schedule": "@daily", "ports": [PORT]}}, "serves no ports", (*AT, "ports")),
        (
            {"options": {"claims": [{"name": "m", "mountPath": "/m", "size": "1Gi"}]}},
            "needs workload: StatefulSet",
            (*AT, "claims"),
        ),
        ({"options": {"update": {"maxSurge": 0}}}, "no pod could follow a change", (*AT, "update")),
        ({"options": {"update": {"maxSurge": "0%"}}}, "no pod could follow a change", (*AT, "update")),
        ({"options": {**IN_PLACE, "update": {"maxSurge": 1}}}, "one by one", (*AT, "update", "maxSurge")),
        (
            {"options": {**IN_PLACE, "update": {"maxUnavailable": 2}}},
            "one by one",
            (*AT, "update", "maxUnavailable"),
        ),
        (
            {"options": {**IN_PLACE, "update": {"maxUnavailable": 0}}},
            "one by one",
            (*AT, "update", "maxUnavailable"),
        ),
        (
            {"options": IN_PLACE, "replicas": 3, "update": {"maxUnavailable": 2}},
            "one by one",
            ("runtime", "update", "maxUnavailable"),
        ),
        (
            {"options": {**OFF, "schedule": "@daily", "update": {"maxSurge": 1}}},
            "no pods that follow a change",
            (*AT, "update"),
        ),
        (
            {"options": {"secretEnv": [{"name": "MANAGED_AGENT_CONFIG", "secret": "s", "key": "k"}]}},
            "MANAGED_AGENT_CONFIG is set by gitops-agent",
            (*AT, "secretEnv"),
        ),
        (
            {"options": {"ports": [PORT, {**PORT, "name": "again"}]}},
            "more than one port is 80/TCP",
            (*AT, "ports"),
        ),
        (
            {"options": {"volumes": [volume("a", "/x"), volume("b", "/x/")]}},
            "more than one volume is mounted at /x",
            (*AT, "volumes"),
        ),
        (
            {"options": {"volumes": [volume("a", "/etc/gitops-agent")]}},
            "more than one volume is mounted at /etc/gitops-agent (its bundle is there)",
            (*AT, "volumes"),
        ),
        (
            {"options": {"volumes": [volume("gitops-agent-bundle", "/x")]}},
            "more than one volume is called gitops-agent-bundle (its bundle is there)",
            (*AT, "volumes"),
        ),
        (
            {"options": {"secretEnv": [{"name": "TOKEN", "secret": "s", "key": "k"}]}, "env": [SECRET]},
            "both env and secretEnv set TOKEN",
            (*AT, "secretEnv"),
        ),
        (
            {"options": {"podLabels": {"gitops-agent.dev/agent": "me"}}},
            "is set by gitops-agent",
            (*AT, "podLabels"),
        ),
        (
            {"options": {"podAnnotations": {"gitops-agent.dev/tenant": "me"}}},
            "is set by gitops-agent",
            (*AT, "podAnnotations"),
        ),
        (
            {"options": {"podAnnotations": {"gitops-agent.dev/secret": "me"}}},
            "gitops-agent.dev/secret is set by gitops-agent",
            (*AT, "podAnnotations"),
        ),
        (
            {"spec": {"hooks": {"onRetired": {"command": ["bye"]}}}},
            "a command needs a pod",
            ("hooks", "onRetired", "command"),
        ),
        ({"spec": {"instructions": "x" * MAX_BUNDLE_BYTES}}, "a ConfigMap holds", ()),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(asked: Any, said: str, at: tuple[str, ...]) -> None:
    ((text, where),) = refused(**asked)
    assert said in text
    assert where == at


@pytest.mark.parametrize(
    "update", [{"maxUnavailable": 1}, {"maxSurge": 0}, {"maxSurge": "0%", "maxUnavailable": 1}]
)
def test_what_a_stateful_set_does_anyway_may_be_said(update: Any) -> None:
    found = manifest(options={**IN_PLACE, "update": update}, update={"maxUnavailable": 1})
    assert found["spec"]["updateStrategy"] == {"type": "RollingUpdate"}


def test_a_context_that_the_settings_do_not_allow_is_refused_where_it_is_written() -> None:
    document, options = documented({"context": "prod"})

    def compiled(**settings: Any) -> Sequence[Resource]:
        return PLUGIN.compile(Compilation(BOT, document, options, settings=Settings.model_validate(settings)))

    with pytest.raises(
        Refused, match=r"documents of acme may not name the context prod: .*contexts: prod"
    ) as found:
        compiled()
    assert found.value.at == ("runtime", "kubernetes", "context")
    assert found.value.more == ()
    with pytest.raises(Refused):
        compiled(contexts=["other=prod"])
    assert compiled(contexts=["acme=pr*"])
    assert compiled(context="prod"), "the default one may be named"
    assert PLUGIN.compile(Compilation(BOT, document, options)), "nobody knows what the instance allows"


def test_every_reason_is_told_at_once() -> None:
    found = refused(options={**OFF, "ports": [PORT]}, replicas=2, image=None)
    assert len(found) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"context": "a b"},
        {"namespace": "Upper"},
        {"overwrite": "Some"},
        {"ports": [PORT, PORT]},
        {"unknown": 1},
        {"patches": [{"op": "explode", "path": "/"}]},
        {"update": {"maxSurge": "many"}},
        {"update": {"maxSurge": -1}},
        {"imagePullSecrets": ["registry", "registry"]},
        {"ports": [{"name": "a-name-too-longs", "port": 80}]},
        {"update": {"maxSurge": True}},
    ],
)
def test_options_are_strict(options: Any) -> None:
    with pytest.raises(ValidationError):
        KubernetesOptions.model_validate_json(json.dumps(options))


# -- patches


def patch(path: str, value: Any = "x", op: str = "add", **more: Any) -> dict[str, Any]:
    return {"options": {"ports": [PORT], "patches": [{"op": op, "path": path, "value": value, **more}]}}


def test_a_patch_reaches_everything_else() -> None:
    assert pod(**patch("/spec/template/spec/hostNetwork", True))["hostNetwork"] is True
    served = manifest("service", **patch("/spec/type", "LoadBalancer", kind="Service"))
    assert served["spec"]["type"] == "LoadBalancer"
    noted = manifest("config", **patch("/metadata", {"annotations": {"a": "b"}}, kind="ConfigMap"))
    assert noted["metadata"]["annotations"]["a"] == "b"
    assert manifest(**patch("/metadata", {"labels": {"team": "a"}}))["metadata"]["labels"]["team"] == "a"
    assert "command" not in pod(command=["x"], **patch("/spec/template/spec/containers/0/command", op="remove"))


@pytest.mark.parametrize(
    "asked",
    [
        patch("/metadata", {"name": "other"}),
        patch("/metadata", {"namespace": "other"}),
        patch("/metadata", {"labels": {"gitops-agent.dev/tenant": "other"}}),
        patch("/kind", "DaemonSet", op="replace"),
        patch("/spec/selector/matchLabels/app", "x"),
        patch("/spec/selector", op="remove"),
        patch("/spec/template/metadata/labels/gitops-agent.dev~1agent", "other", op="replace"),
        patch("/metadata", {"namespace": "other"}, kind="ConfigMap"),
        patch("/metadata", {"name": "other"}, kind="Secret"),
        patch("/spec/selector/app", "x", kind="Service"),
        patch("/spec/replicas", 7, op="replace"),
        patch("/spec/template/metadata/annotations/gitops-agent.dev~1config", "x", op="replace"),
        patch("/metadata", {"annotations": {"gitops-agent.dev/spec": "x"}}),
        patch("/metadata", {"annotations": {"gitops-agent.dev/values": "x"}}, kind="Secret"),
        patch("/spec/template/metadata/annotations/gitops-agent.dev~1secret", "x"),
    ],
)
def test_a_patch_may_not_reach_for_what_is_ours(asked: Any) -> None:
    ((text, at), *_) = refused(env=[SECRET], **asked)
    assert "a patch may not change" in text
    assert at == (*AT, "patches", 0)


def test_a_patch_that_misses_its_place_says_what_is_missing_without_the_whole_object() -> None:
    path = "/spec/template/spec/nothing/here"
    ((text, at),) = refused(**patch(path))
    assert at == (*AT, "patches", 0)
    assert text.endswith(f"{path}: member 'nothing' not found")


TEMPLATES = {
    "Deployment": "/spec/template",
    "StatefulSet": "/spec/template",
    "CronJob": "/spec/jobTemplate/spec/template",
}


def workload(kind: str, *patches: dict[str, Any]) -> dict[str, Any]:
    scheduled = {"schedule": "@daily"} if kind == "CronJob" else {}
    return {"options": {"workload": kind, **scheduled, "patches": list(patches)}}


@pytest.mark.parametrize(("kind", "template"), TEMPLATES.items())
@pytest.mark.parametrize("mark", ["tenant", "agent", "instance", "place"])
def test_pods_of_every_workload_keep_their_marks(kind: str, template: str, mark: str) -> None:
    step = {"op": "add", "path": f"{template}/metadata/labels/gitops-agent.dev~1{mark}", "value": "other"}
    ((text, at),) = refused(**workload(kind, step))
    assert f"labels gitops-agent.dev/{mark}: it is set by gitops-agent" in text
    assert at == (*AT, "patches", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/spec/jobTemplate/metadata", {"labels": {"gitops-agent.dev/tenant": "other"}}),
        ("/spec/jobTemplate/spec/selector", {"matchLabels": {"app": "theirs"}}),
        ("/spec/jobTemplate/spec/manualSelector", True),
        ("/spec/suspend", True),
        ("/spec/jobTemplate", "x"),
        ("/spec/jobTemplate/spec", [1]),
        ("/spec/jobTemplate/spec/template", {}),
    ],
)
def test_a_job_reaches_for_no_other_pods(path: str, value: Any) -> None:
    ((_, at),) = refused(**workload("CronJob", {"op": "add", "path": path, "value": value}))
    assert at == (*AT, "patches", 0)


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("", {"kind": "Deployment"}, "spec a map"),
        ("", None, "spec a map"),
        ("/metadata", "x", "metadata a map"),
        ("/metadata", {"labels": [1]}, "metadata.labels a map"),
        ("/metadata", {"annotations": "x"}, "metadata.annotations a map"),
        ("/spec", [1], "spec a map"),
        ("/spec/template", "y", "spec.template a map"),
        ("/spec/template/metadata", None, "spec.template.metadata a map"),
        ("/spec/template/metadata/labels", "x", "spec.template.metadata.labels a map"),
        ("/spec/template/metadata/annotations", [], "spec.template.metadata.annotations a map"),
        ("/spec/template/spec", [], "spec.template.spec a map"),
        ("/spec/template/spec/containers", {}, "one of them agent"),
        ("/spec/template/spec/containers", [], "one of them agent"),
        ("/spec/template/spec/containers/0", "x", "one of them agent"),
        ("/spec/template/spec/containers/0/name", "other", "one of them agent"),
    ],
)
def test_a_patch_leaves_an_object_its_shape(path: str, value: Any, what: str) -> None:
    ((text, at),) = refused(**patch(path, value))
    assert text.startswith("a patch must leave")
    assert what in text
    assert at == (*AT, "patches", 0)


def test_a_patch_leaves_a_secret_a_map_of_data() -> None:
    ((text, _),) = refused(env=[SECRET], **patch("/data", "x", kind="Secret"))
    assert "data a map" in text


def test_steps_reach_into_what_earlier_ones_added_and_compile_stays_pure() -> None:
    added = {"op": "add", "path": "/spec/template/spec/initContainers", "value": [{"name": "first"}]}
    more = {"op": "add", "path": "/spec/template/spec/initContainers/-", "value": {"name": "second"}}
    document, options = documented(**workload("Deployment", added, more))
    found = [PLUGIN.compile(Compilation(BOT, document, options)) for _ in range(2)]
    assert found[0] == found[1]


def test_a_patch_that_cannot_be_carried_out_is_refused() -> None:
    for asked in (
        patch("/spec/nothing/here"),
        patch("/data/none", op="remove", kind="ConfigMap"),
        patch("/spec/template", {}, op="test"),
        patch("/spec/template", op="remove"),
        patch("/type", "kubernetes.io/tls", kind="Secret"),
    ):
        ((_, at),) = refused(**asked)
        assert at == (*AT, "patches", 0)


steps = st.sampled_from(
    (
        "",
        "metadata",
        "spec",
        "template",
        "jobTemplate",
        "labels",
        "annotations",
        "containers",
        "selector",
        "data",
        "0",
        "-",
        "name",
        "gitops-agent.dev~1tenant",
        "kind",
    )
)
leaf = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats()
contents = st.recursive(
    leaf,
    lambda each: (
        st.lists(each, max_size=2)
        | st.dictionaries(st.sampled_from(("metadata", "labels", "spec", "name", "containers")), each, max_size=2)
    ),
    max_leaves=4,
)
paths = st.just("") | st.lists(steps, min_size=1, max_size=6).map(lambda each: "/" + "/".join(each))
known = st.sampled_from(
    (
        "/metadata",
        "/spec",
        "/spec/template",
        "/spec/template/metadata",
        "/spec/template/metadata/labels",
        "/spec/template/spec/containers",
        "/spec/jobTemplate/spec/template",
        "/spec/jobTemplate/spec/template/metadata/labels",
        "/data",
        "/spec/selector",
    )
)
wild = st.builds(
    ObjectPatch,
    kind=st.sampled_from((None, None, "ConfigMap", "Secret", "Service")),
    op=st.sampled_from(("add", "remove", "replace", "move", "copy", "test")),
    path=paths | known,
    value=contents,
    **{"from": st.none() | paths | known},
)


@given(kind=st.sampled_from(sorted(TEMPLATES)), patches=st.lists(wild, min_size=1, max_size=3))
def test_no_patch_does_more_than_it_may(kind: str, patches: list[ObjectPatch]) -> None:
    """Whatever a patch is, it is refused with an address, or leaves what is ours as it was."""
    document, options = documented(**workload(kind), env=[SECRET])
    plain = {each.key.kind: each.fields for each in PLUGIN.compile(Compilation(BOT, document, options))}
    options = options.model_copy(update={"patches": tuple(patches)})
    made: Sequence[Resource] = ()
    addresses: list[tuple[str | int, ...]] = []
    try:
        made = PLUGIN.compile(Compilation(BOT, document, options))
    except Refused as problem:
        addresses = [each.at[:3] for each in (problem, *problem.more)]
    assert set(addresses) <= {(*AT, "patches")}
    assert made or addresses
    objects = Objects("prod", Settings())
    for resource in made:
        before, after = (objects.manifest(BOT, each) for each in (plain[resource.key.kind], resource.fields))
        assert ours(before) == ours(after)


def ours(found: dict[str, Any]) -> Any:
    """What of an object no patch may change."""
    metadata, pods = found["metadata"], template_of(found)
    inside = pods.get("metadata", {})
    marks = [
        {name: value for name, value in (each.get("labels") or {}).items() if name in RESERVED}
        for each in (metadata, inside)
    ]
    spec = found.get("spec") or {}
    names = [each.get("name") for each in pods.get("spec", {}).get("containers", ())]
    selected = spec.get("selector"), spec.get("replicas"), spec.get("suspend")
    return found["kind"], metadata["name"], metadata["namespace"], marks, selected, names.count("agent")


# -- the fields of a workload are its manifest, in parts

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each), max_leaves=5
)
maps = st.dictionaries(st.text(min_size=1), values, max_size=3)


@given(
    kind=st.sampled_from(("Deployment", "StatefulSet", "CronJob")),
    template=maps,
    rest=maps,
    more=maps,
    replicas=st.none() | st.integers(0, 9),
)
def test_split_and_joined_are_each_others_reverse(
    kind: str, template: Any, rest: Any, more: Any, replicas: Any
) -> None:
    spec = {name: value for name, value in rest.items() if name not in ("replicas", "template", "jobTemplate")}
    inside = {"template": template} if kind != "CronJob" else {"jobTemplate": {"spec": {"template": template}}}
    spec |= inside | ({"replicas": replicas} if replicas is not None else {})
    others = {name: value for name, value in more.items() if name not in ("kind", "apiVersion", "spec")}
    fields = {"kind": kind, **split({"kind": kind, "spec": spec, **others})}
    assert joined(fields) == {"spec": spec, **others}
