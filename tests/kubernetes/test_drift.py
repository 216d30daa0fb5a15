"""What people do to a cluster by hand: told with who did it, and undone as the policy says."""

from __future__ import annotations

import json
from typing import Any

from tests.kubernetes.fleet import IMAGE, KubeFleet
from tests.support.fleet import Json

CALM = {"massDrift": {"min": 100}}
"""A policy for tests that let many agents drift at once."""


def drifts(fleet: KubeFleet, **environment: str) -> dict[tuple[str, str], Json]:
    """What ``drift`` tells, by agent and kind of resource."""
    found = fleet.ask("drift", **environment)["drifts"]
    return {
        (each["agent"].partition("/")[2], each["resource"].partition(":")[2].split("/")[0]): each for each in found
    }


def edit(fleet: KubeFleet, kind: str, name: str, patch: Any) -> None:
    """What ``kubectl edit`` does: the same manager, the same verb."""
    fleet.kubectl("patch", kind, name, "--field-manager=kubectl-edit", "--type=merge", "-p", json.dumps(patch))


def test_an_agent_that_was_scaled_by_hand_again_and_again_is_ready_when_it_is_as_git_says(
    fleet: KubeFleet,
) -> None:
    fleet.commit(
        {"policy.yaml": fleet.policy(backoff={"first": "100ms", "longest": "100ms"}), **fleet.agents("a")}
    )
    fleet.once()
    with fleet.running():
        for count in (2, 3, 4, 5):
            fleet.kubectl("scale", "deployment/a", f"--replicas={count}")
            fleet.until(lambda: fleet.object("deployment", "a")["spec"]["replicas"] == 1, "it is scaled back")
        fleet.until_ready("a")
        fleet.until(lambda: fleet.status()["phase"] == "Converged", "nothing is owed")
    (agent,) = fleet.status()["agents"]
    assert [(each["type"], each["reason"]) for each in agent["conditions"]] == [("Ready", "Healthy")]
    assert fleet.status()["now"]["phase"] == "Converged"
    assert "Backoff" not in fleet.call("status").out


def test_each_edit_by_hand_is_named_and_undone(fleet: KubeFleet) -> None:
    served = {"ports": [{"name": "http", "port": 80}]}
    env = {"env": [{"name": "MODE", "value": "calm"}]}
    names = ("scaled", "image", "env", "label", "config", "unserved", "unconfigured", "gone", "well")
    files = {f"{name}.yaml": fleet.agent(name, kubernetes=served, runtime=env) for name in names}
    fleet.commit({"policy.yaml": fleet.policy(**CALM), **files})
    fleet.once()
    assert drifts(fleet) == {}

    fleet.kubectl("scale", "deployment/scaled", "--replicas=5")
    fleet.kubectl("set", "image", "deployment/image", "agent=registry.example/other:9")
    fleet.kubectl("set", "env", "deployment/env", "MODE=wild", "EXTRA=mine")
    fleet.kubectl("label", "deployment/label", "app.kubernetes.io/managed-by-")
    edit(fleet, "configmap", "config", {"data": {"bundle.json": "{}"}})
    for gone in ("service/unserved", "configmap/unconfigured", "deployment/gone"):
        fleet.kubectl("delete", gone)

    found = drifts(fleet)
    told = {key: (each["class"], each["reason"], each["decision"]) for key, each in found.items()}
    edited, missing = ("Conflicting", "EditedByHand", "repair"), ("MissingExternal", "ObjectMissing", "repair")
    assert told == {
        ("scaled", "runtime"): edited,
        ("image", "runtime"): edited,
        ("env", "runtime"): edited,
        ("label", "runtime"): ("Conflicting", "FieldsReverted", "repair"),
        ("config", "config"): edited,
        ("unserved", "service"): missing,
        ("unconfigured", "config"): missing,
        ("gone", "runtime"): missing,
    }
    assert "spec.replicas is 5 instead of 1, set by kubectl (scale)" in found["scaled", "runtime"]["message"]
    assert (
        f"is registry.example/other:9 instead of {IMAGE}, set by kubectl" in found["image", "runtime"]["message"]
    )

    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("deployment", "scaled")["spec"]["replicas"] == 1
    assert fleet.image("image") == IMAGE
    (container,) = fleet.object("deployment", "env")["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["MODE"] == "calm"
    assert variables["EXTRA"] == "mine", "what we never set is not ours to take away"
    labels = fleet.object("deployment", "label")["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "gitops-agent"
    assert json.loads(fleet.object("configmap", "config")["data"]["bundle.json"]) != {}
    for kind, name in (("service", "unserved"), ("configmap", "unconfigured"), ("deployment", "gone")):
        assert fleet.object(kind, name), f"{kind} {name} is back"
    assert drifts(fleet) == {}


def test_observe_mode_only_tells(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    fleet.commit(fleet.agents("a", reconcile={"mode": "Observe"}))
    fleet.once()
    fleet.kubectl("scale", "deployment/a", "--replicas=3")
    fleet.once()
    (drift,) = drifts(fleet).values()
    assert (drift["reason"], drift["decision"], drift["heldBy"]) == ("EditedByHand", "alert", ["observe_mode"])
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 3
    assert "set by kubectl (scale)" in fleet.call("explain", "a").out


def test_a_deleted_namespace_comes_back_with_all_of_its_agents_in_waves(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents(*(f"a{number}" for number in range(6))))
    fleet.once()
    fleet.cluster.kubectl("delete", "namespace", fleet.tenant, "--wait=true")
    found = drifts(fleet)
    assert {each["reason"] for each in found.values()} == {"NamespaceMissing"}
    assert f"namespace {fleet.tenant} is gone" in found["a0", "runtime"]["message"]
    assert fleet.once()["phase"] == "Converged"
    assert len(fleet.objects("deployment")) == len(fleet.objects("configmap")) == 6
    labels = fleet.cluster.get("namespace", fleet.tenant)["metadata"]["labels"]
    assert labels["gitops-agent.dev/tenant"] == fleet.tenant


SECRET = [{"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "SOURCE"}}}]


def test_a_secret_edited_by_hand_or_rotated_at_its_source(fleet: KubeFleet) -> None:
    def agent(name: str, on_change: str) -> str:
        return fleet.agent(name, runtime={"env": SECRET, "onSecretChange": on_change})

    files = {"told.yaml": agent("told", "Report"), "rolled.yaml": agent("rolled", "Restart")}
    fleet.commit({"policy.yaml": fleet.policy(**CALM), **files})
    fleet.once(SOURCE="first")
    assert value(fleet, "told") == "first"

    edit(fleet, "secret", "told", {"data": {"TOKEN": "b3RoZXI="}})
    edited = drifts(fleet, SOURCE="first")["told", "credential"]
    assert (edited["reason"], edited["decision"]) == ("EditedByHand", "repair")
    assert "kubectl-edit" in edited["message"]
    fleet.once(SOURCE="first")
    assert value(fleet, "told") == "first"

    before = pods(fleet)
    assert {key: each["decision"] for key, each in drifts(fleet, SOURCE="second").items()} == {
        ("told", "credential"): "alert",
        ("rolled", "credential"): "repair",
    }
    fleet.once(SOURCE="second")
    assert (value(fleet, "told"), value(fleet, "rolled")) == ("first", "second")
    after = pods(fleet)
    assert after["told"] == before["told"]
    assert after["rolled"].isdisjoint(before["rolled"]), "its pods were replaced, so that they see the new value"
    assert drifts(fleet, SOURCE="second").keys() == {("told", "credential")}


def value(fleet: KubeFleet, name: str) -> str:
    return fleet.kubectl("get", "secret", name, "-o", "go-template={{.data.TOKEN | base64decode}}")


def pods(fleet: KubeFleet) -> dict[str, set[str]]:
    """The pods of each agent that are not ending."""
    found: dict[str, set[str]] = {}
    for each in fleet.objects("pod"):
        if "deletionTimestamp" not in each["metadata"]:
            agent = each["metadata"]["labels"]["gitops-agent.dev/agent"]
            found.setdefault(agent, set()).add(each["metadata"]["uid"])
    return found
