"""Another manager that owns what Git sets: told by name, and overwritten only where the document says so."""

from __future__ import annotations

import json
from typing import Any

from tests.kubernetes.fleet import IMAGE, KubeFleet
from tests.kubernetes.test_drift import CALM, drifts
from tests.kubernetes.test_not_drift import server_apply

OTHER = "registry.example/theirs:3"


def taken(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def image(value: str) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "agent", "image": value}]}}}


MOST = "GITOPS_AGENT_DRIVERS__KUBERNETES__MAX_OVERWRITE"


def test_what_another_controller_took_is_told_and_kept(fleet: KubeFleet) -> None:
    fleet.environment[MOST] = "All"
    files = fleet.agents("replicas", "image", "handed")
    files["all.yaml"] = fleet.agent("all", kubernetes={"overwrite": "All"})
    files["none.yaml"] = fleet.agent("none", kubernetes={"overwrite": "None"})
    fleet.commit({"policy.yaml": fleet.policy(**CALM), **files})
    fleet.once()
    server_apply(fleet, taken("replicas", replicas=3), "autoscaler", "--force-conflicts")
    for name in ("image", "all"):
        server_apply(fleet, taken(name, **image(OTHER)), "image-updater", "--force-conflicts")
    for name in ("handed", "none"):
        fleet.kubectl("scale", f"deployment/{name}", "--replicas=2")

    found = drifts(fleet)
    assert {name: (each["reason"], each["decision"]) for (name, _), each in found.items()} == {
        "replicas": ("TakenOver", "alert"),
        "image": ("TakenOver", "alert"),
        "handed": ("EditedByHand", "repair"),
        "all": ("EditedByHand", "repair"),
        "none": ("TakenOver", "alert"),
    }
    assert {each["class"] for each in found.values()} == {"Conflicting"}
    assert "spec.replicas is 3 instead of 1, set by autoscaler" in found["replicas", "runtime"]["message"]
    fleet.call("once")
    assert fleet.image("image") == OTHER
    assert fleet.image("all") == IMAGE
    replicas = {each["metadata"]["name"]: each["spec"]["replicas"] for each in fleet.objects("deployment")}
    assert replicas == {"replicas": 3, "image": 1, "handed": 1, "all": 1, "none": 2}
    explained = fleet.call("explain", "image").out
    assert f"is {OTHER} instead of {IMAGE}, set by image-updater" in explained


def test_a_commit_does_not_win_over_another_controller_and_says_the_way_out(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    server_apply(fleet, taken("a", **image(OTHER)), "image-updater", "--force-conflicts")
    new = {"image": "registry.example/bot:2"}
    fleet.commit(fleet.agents("a", "b", runtime=new))
    fleet.once("--timeout", "15s", code=5)
    assert fleet.image("a") == OTHER
    explained = fleet.call("explain", "a").out
    assert "image-updater" in explained
    assert "overwrite: All" in explained

    fleet.commit(fleet.agents("a", "b", runtime=new, kubernetes={"overwrite": "All"}))
    fleet.once("--timeout", "15s", code=5)
    assert fleet.image("a") == OTHER, "the operator has not let documents do that"
    fleet.environment[MOST] = "All"
    fleet.commit(fleet.agents("a", "b", runtime=new, kubernetes={"overwrite": "All"}, description="Again"))
    assert fleet.once()["phase"] == "Converged"
    assert (fleet.image("a"), fleet.image("b")) == (new["image"], new["image"])


def test_what_a_person_did_before_git_said_it_is_no_conflict_for_a_later_commit(fleet: KubeFleet) -> None:
    fleet.commit({"policy.yaml": fleet.policy(**CALM), **fleet.agents("a")})
    fleet.once()
    fleet.kubectl("scale", "deployment/a", "--replicas=3")
    for replicas in (3, 2):  # the same first, with something else: then both own it
        changed = {"replicas": replicas, "image": f"registry.example/bot:as-of-{replicas}"}
        fleet.commit(fleet.agents("a", runtime=changed))
        assert fleet.once()["phase"] == "Converged"
        assert fleet.object("deployment", "a")["spec"]["replicas"] == replicas


def test_a_pipeline_that_applies_with_kubectl_is_not_a_person_with_kubectl(fleet: KubeFleet) -> None:
    fleet.commit(
        {"policy.yaml": fleet.policy(**CALM), **fleet.agents("applied", "client", "set", "patched", "scaled")}
    )
    fleet.once()
    labels = {"gitops-agent.dev/tenant": fleet.tenant, "gitops-agent.dev/agent": "client"}
    template = {**image(OTHER)["template"], "metadata": {"labels": labels}}
    theirs = taken("client", selector={"matchLabels": labels}, template=template)
    fleet.kubectl("apply", "-f", "-", stdin=json.dumps(theirs))
    server_apply(fleet, taken("applied", **image(OTHER)), "kubectl", "--force-conflicts")
    fleet.kubectl("set", "image", "deployment/set", f"agent={OTHER}")
    fleet.kubectl("patch", "deployment", "patched", "-p", '{"spec": {"minReadySeconds": 7}}')
    fleet.kubectl("scale", "deployment/scaled", "--replicas=2")
    assert {name: each["reason"] for (name, _), each in drifts(fleet).items()} == {
        "applied": "TakenOver",
        "client": "TakenOver",
        "set": "EditedByHand",
        "patched": "EditedByHand",
        "scaled": "EditedByHand",
    }
