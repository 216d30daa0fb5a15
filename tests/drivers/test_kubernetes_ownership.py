"""What we own of a live object: the cut, its digest, what others took, and live in the shape of our manifest."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.kubernetes.manifest_shape import is_empty, quantity
from gitops_agent.drivers.kubernetes.ownership import missing, owned, owned_digest, project, taken

pytestmark = pytest.mark.unit

NOON = 1_767_268_980.0  # 2026-01-01T12:03:00Z
POD = ("f:spec", "f:template", "f:spec")


def manifest() -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "bot", "labels": {"gitops-agent.dev/agent": "bot"}, "annotations": {"a/spec": "1"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "bot"}},
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "agent",
                            "image": "bot:1",
                            "args": ["run", "-v"],
                            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                            "ports": [{"containerPort": 80}],
                            "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
                        }
                    ],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                }
            },
        },
    }


def stored() -> dict[str, Any]:
    """As a server stores it: defaults, its own quantities, empty values dropped, the fields we own."""
    live = manifest()
    live["spec"] |= {"revisionHistoryLimit": 10, "strategy": {"type": "RollingUpdate"}}
    agent = live["spec"]["template"]["spec"]["containers"][0]
    agent["env"] = [{"name": "A", "value": "1"}, {"name": "B"}]
    agent["ports"] = [{"containerPort": 80, "protocol": "TCP"}]
    agent["resources"] = {"limits": {"cpu": "500m", "memory": "1Gi"}}
    agent["imagePullPolicy"] = "IfNotPresent"
    live["metadata"]["managedFields"] = [entry("gitops-agent", "Apply", OURS)]
    return live


def entry(manager: str, operation: str, fields: Any, **more: Any) -> dict[str, Any]:
    time = "2026-01-01T12:03:00Z"
    return {"manager": manager, "operation": operation, "time": time, "fieldsV1": fields, **more}


AGENT = {
    ".": {},
    "f:name": {},
    "f:image": {},
    "f:args": {},
    "f:env": {
        'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}},
        'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}},
    },
    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
    "f:resources": {"f:limits": {"f:cpu": {}, "f:memory": {}}},
}
OURS: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:gitops-agent.dev/agent": {}}, "f:annotations": {"f:a/spec": {}}},
    "f:spec": {
        "f:replicas": {},
        "f:selector": {},
        "f:template": {
            "f:spec": {
                "f:containers": {'k:{"name":"agent"}': AGENT},
                "f:volumes": {'k:{"name":"tmp"}': {".": {}, "f:name": {}, "f:emptyDir": {}}},
            }
        },
    },
}


def container(live: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = live["spec"]["template"]["spec"]["containers"][0]
    return found


def scaled() -> dict[str, Any]:
    """A person scaled it to five: the server takes the field from us."""
    live = copy.deepcopy(stored())
    live["spec"]["replicas"] = 5
    fields = copy.deepcopy(OURS)
    del fields["f:spec"]["f:replicas"]
    live["metadata"]["managedFields"] = [
        entry("gitops-agent", "Apply", fields),
        entry("kubectl", "Update", {"f:spec": {"f:replicas": {}}}, subresource="scale"),
    ]
    return live


def with_sidecar() -> dict[str, Any]:
    live = copy.deepcopy(stored())
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "proxy", "image": "proxy:1"})
    container_env = live["spec"]["template"]["spec"]["containers"][1]["env"]
    container_env.insert(0, {"name": "INJECTED", "value": "1"})
    live["spec"]["template"]["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = "1Gi"
    live["metadata"]["annotations"]["theirs"] = "x"
    theirs = {
        "f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"proxy"}': {".": {}, "f:image": {}}}}}}
    }
    live["metadata"]["managedFields"].append(entry("injector", "Update", theirs))
    live["metadata"]["managedFields"].append(entry("kubelet", "Update", {"f:spec": {}}, subresource="status"))
    return live


def test_the_cut_holds_what_we_own_and_nothing_else() -> None:
    assert owned(stored()) == {
        "metadata": {"labels": {"gitops-agent.dev/agent": "bot"}, "annotations": {"a/spec": "1"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "bot"}},
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "agent",
                            "image": "bot:1",
                            "args": ["run", "-v"],
                            "env": [{"name": "A", "value": "1"}, {"name": "B"}],
                            "ports": [{"containerPort": 80, "protocol": "TCP"}],
                            "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                        }
                    ],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                }
            },
        },
    }


def test_without_an_apply_of_ours_there_is_no_cut() -> None:
    live = stored()
    assert owned(live, "someone-else") is None
    live["metadata"]["managedFields"][0]["operation"] = "Update"
    assert owned(live) is None
    assert owned_digest(live) == ""
    live["metadata"]["managedFields"] = [entry("gitops-agent", "Apply", OURS, subresource="status")]
    assert owned(live) is None


def test_what_others_add_and_the_order_of_lists_change_no_digest() -> None:
    assert owned_digest(with_sidecar()) == owned_digest(stored())
    turned = stored()
    container(turned)["env"].reverse()
    assert owned_digest(turned) == owned_digest(stored())


def test_a_field_that_was_taken_changes_the_digest_even_where_its_value_is_not_seen() -> None:
    assert owned_digest(scaled()) != owned_digest(stored())
    back = scaled()
    back["spec"]["replicas"] = 2
    assert owned_digest(back) != owned_digest(stored())
    secret = {"metadata": {"managedFields": [entry("gitops-agent", "Apply", {"f:data": {"f:K": {}, "f:L": {}}})]}}
    edited = {"metadata": {"managedFields": [entry("gitops-agent", "Apply", {"f:data": {"f:K": {}}})]}}
    assert owned_digest(secret) != owned_digest(edited)


def test_volatile_annotations_do_not_count() -> None:
    marked = stored()
    marked["metadata"]["annotations"]["a/spec"] = "2"
    assert owned_digest(marked) != owned_digest(stored())
    assert owned_digest(marked, volatile=["a/spec"]) == owned_digest(stored(), volatile=["a/spec"])


def test_what_was_taken_is_said_with_who_and_when() -> None:
    (found,) = taken(scaled(), manifest())
    assert (found.path, found.manager, found.operation, found.at) == ("spec.replicas", "kubectl", "Update", NOON)
    assert (found.live_value, found.ours, found.differs) == (5, 2, True)
    assert found.sentence() == "spec.replicas is 5 instead of 2, set by kubectl (scale) at 12:03"
    assert found.sentence(NOON + 86400).endswith("at 2026-01-01 12:03")
    assert taken(stored(), manifest()) == ()
    assert taken(with_sidecar(), manifest()) == ()


def test_a_path_is_written_for_people() -> None:
    live = stored()
    container(live)["image"] = "bot:2"
    container(live)["env"][0]["value"] = "2"
    fields = copy.deepcopy(OURS)
    agent = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"agent"}']
    del agent["f:image"], agent["f:env"]['k:{"name":"A"}']["f:value"]
    theirs = {"f:image": {}, "f:env": {'k:{"name":"A"}': {"f:value": {}}}}
    edited = {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"agent"}': theirs}}}}}
    live["metadata"]["managedFields"] = [
        entry("gitops-agent", "Apply", fields),
        entry("kubectl-edit", "Update", edited),
    ]
    at = "spec.template.spec.containers[agent]"
    assert [each.path for each in taken(live, manifest())] == [f"{at}.image", f"{at}.env[A].value"]


def test_values_of_a_secret_are_never_given() -> None:
    secret = {"kind": "Secret", "data": {"KEY": "b3Vycw=="}}
    live = {
        "kind": "Secret",
        "data": {"KEY": "dGhlaXJz"},
        "metadata": {"managedFields": [entry("kubectl-edit", "Update", {"f:data": {".": {}, "f:KEY": {}}})]},
    }
    (found,) = taken(live, secret)
    assert found.differs
    assert found.sentence() == "data.KEY was changed, set by kubectl-edit at 12:03"
    assert "dGhlaXJz" not in repr(found)


def test_what_is_gone_is_named_as_a_whole() -> None:
    live = stored()
    del live["spec"]["replicas"], container(live)["resources"], live["spec"]["template"]["spec"]["volumes"]
    at = "spec.template.spec"
    assert missing(live, manifest()) == ("spec.replicas", f"{at}.containers[agent].resources", f"{at}.volumes")
    assert missing(stored(), manifest()) == ()


def test_live_in_the_shape_of_ours_is_ours_while_nothing_differs() -> None:
    assert project(stored(), manifest()) == manifest()
    assert project(with_sidecar(), manifest()) == manifest()
    listed = stored()
    del listed["apiVersion"], listed["kind"]
    assert project(listed, manifest()) == manifest()


def test_what_differs_is_seen_in_the_shape_of_ours() -> None:
    live = stored()
    container(live)["resources"]["limits"]["cpu"] = "2"
    container(live)["args"].append("--more")
    container(live)["env"][0]["value"] = "1.0"
    shaped = project(live, manifest())
    assert container(shaped)["resources"]["limits"] == {"cpu": "2", "memory": "1024Mi"}
    assert container(shaped)["args"] == ["run", "-v", "--more"]
    assert container(shaped)["env"][0] == {"name": "A", "value": "1.0"}


def test_what_is_added_to_a_list_or_map_that_is_one_value_is_seen() -> None:
    ours = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"disk": "ssd"}}
    for live in (
        {**ours, "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
        {**ours, "nodeSelector": {"disk": "ssd", "gpu": "no"}},
    ):
        assert project(live, ours) == live
    source = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    defaulted = {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}
    assert project(defaulted, source) == source


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        (1, "1"),
        ("1e3", "1k"),
        ("1.5Gi", "1536Mi"),
        ("100u", "0.0001"),
        (".5", "0.50"),
    ],
)
def test_quantities_of_one_size(one: Any, other: Any) -> None:
    assert quantity(one) == quantity(other) is not None


@pytest.mark.parametrize("text", ["", "Mi", "1Q", "1e999", "e", True, None, [], "1 Gi", "9" * 40])
def test_what_is_no_quantity(text: Any) -> None:
    assert quantity(text) is None


# -- laws

NAMES = st.sampled_from(
    ["env", "ports", "args", "containers", "name", "value", "limits", "finalizers", "x", "a/b"]
)
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "1", "0.5", "500m", "tcp"])
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(NAMES, ANYTHING, max_size=4)
STEPS = NAMES.map("f:{}".format) | st.sampled_from(['k:{"name":"1"}', "k:{", 'v:"1"', "v:", ".", "i:0", "k:[]"])
TREES: st.SearchStrategy[Any] = st.recursive(
    st.just({}) | SCALARS, lambda inner: st.dictionaries(STEPS, inner, max_size=3), max_leaves=8
)
ENTRIES = st.lists(
    SCALARS
    | st.fixed_dictionaries(
        {
            "manager": st.sampled_from(["gitops-agent", "kubectl", None]),
            "operation": st.sampled_from(["Apply", "Update"]),
        },
        optional={"fieldsV1": TREES, "time": SCALARS | st.just("2026-01-01T00:00:00Z"), "subresource": SCALARS},
    ),
    max_size=3,
)


@st.composite
def hostile(draw: st.DrawFn) -> dict[str, Any]:
    live = draw(OBJECTS)
    live["metadata"] = draw(SCALARS | st.fixed_dictionaries({"managedFields": SCALARS | ENTRIES}))
    return live


@given(live=hostile(), ours=OBJECTS)
def test_no_object_is_too_odd(live: dict[str, Any], ours: dict[str, Any]) -> None:
    owned(live)
    owned_digest(live, volatile=["x"])
    missing(live, ours)
    for each in taken(live, ours):
        each.sentence(0.0)


@given(live=hostile(), ours=OBJECTS)
def test_a_projection_is_its_own_projection(live: dict[str, Any], ours: dict[str, Any]) -> None:
    shaped = project(live, ours)
    assert project(shaped, ours) == shaped


@given(ours=OBJECTS)
def test_what_was_stored_as_it_is_projects_on_itself(ours: dict[str, Any]) -> None:
    assert project(ours, ours) == ours
    assert missing(ours, ours) == ()


@given(ours=OBJECTS, added=st.dictionaries(st.sampled_from(["theirs", "other"]), ANYTHING))
def test_fields_of_others_never_show(ours: dict[str, Any], added: dict[str, Any]) -> None:
    def with_others(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{name: with_others(each) for name, each in value.items()}, **added}
        return value

    assert project(with_others(ours), ours) == ours


@given(value=ANYTHING)
def test_a_value_that_is_left_out_is_empty_all_through(value: Any) -> None:
    if is_empty(value):
        assert project({}, {"field": value}) == {"field": value}
        assert not any(each in json.dumps(value) for each in ("1", "tcp", "true"))
