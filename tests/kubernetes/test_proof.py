"""Absence and ownership need proof: what is not ours is never merged into, and nothing is deleted on a guess."""

from __future__ import annotations

import json

from tests.kubernetes.fleet import KubeFleet
from tests.support.fleet import until


def copy_of(fleet: KubeFleet, kind: str, name: str, new: str) -> str:
    """The object under another name, with all its labels, as replicators and people copy it."""
    found = fleet.object(kind, name)
    assert found is not None
    kept = {key: found["metadata"][key] for key in ("labels", "annotations")}
    metadata = {"name": new, "namespace": fleet.tenant, **kept}
    body = {key: found[key] for key in ("apiVersion", "kind", "data") if key in found}
    return json.dumps({**body, "metadata": metadata})


def test_a_copy_that_carries_our_labels_is_left_alone(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    fleet.kubectl("create", "-f", "-", stdin=copy_of(fleet, "configmap", "a", "a-copy"))
    fleet.once()
    assert fleet.object("configmap", "a-copy") is not None
    fleet.commit({"a.yaml": None})
    fleet.once()
    assert fleet.object("configmap", "a-copy") is not None
    assert fleet.object("configmap", "a") is None


def test_what_others_made_under_a_name_of_ours_is_not_merged_into(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    fleet.kubectl("delete", "configmap", "a")
    fleet.kubectl("create", "configmap", "a", "--from-literal=theirs=1")
    fleet.call("once", "--timeout", "10s")
    found = fleet.object("configmap", "a")
    assert found is not None
    assert set(found["data"]) == {"theirs"}
    assert "labels" not in found["metadata"]
    assert "NotMarked" in fleet.call("explain", f"{fleet.tenant}/a").out


def test_replicas_handed_over_to_live_stay_as_they_are(fleet: KubeFleet) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", runtime={"replicas": 4})})
    fleet.once()
    live = {"runtime.replicas": "live"}
    fleet.commit({"a.yaml": fleet.agent("a", runtime={"replicas": 4}, authority=live)})
    fleet.once()
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 4
    fleet.kubectl("scale", "deployment", "a", "--replicas=6")
    fleet.commit(
        {"a.yaml": fleet.agent("a", runtime={"replicas": 4, "image": "registry.example/bot:2"}, authority=live)}
    )
    fleet.once()
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 6


def test_a_stopped_agent_that_live_scales_begins_again_as_git_says(fleet: KubeFleet) -> None:
    live = {"runtime.replicas": "live"}
    running = fleet.agent("a", runtime={"replicas": 2}, authority=live)
    fleet.commit({"a.yaml": running})
    fleet.once()
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 2
    fleet.commit({"a.yaml": fleet.agent("a", runtime={"replicas": 2}, authority=live, lifecycle="Stopped")})
    fleet.once()
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 0
    fleet.commit({"a.yaml": running})
    fleet.once()
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 2


def test_a_move_to_another_namespace_that_fails_ends_nothing(fleet: KubeFleet) -> None:
    other = f"{fleet.tenant}-2"
    fleet.cluster.kubectl("create", "namespace", other)
    fleet.cluster.kubectl("label", "namespace", other, f"gitops-agent.dev/tenant={fleet.tenant}")
    fleet.cluster.kubectl("-n", other, "create", "quota", "none", "--hard=pods=0")
    try:
        fleet.commit({"a.yaml": fleet.agent("a")})
        fleet.once()
        moved = fleet.agent("a", kubernetes={"namespace": other}, rollout={"healthTimeout": "4s"})
        fleet.commit({"a.yaml": moved})
        fleet.call("once", "--timeout", "15s")
        assert fleet.object("deployment", "a")["status"]["readyReplicas"] == 1
        assert fleet.object("configmap", "a") is not None
        fleet.cluster.kubectl("-n", other, "delete", "quota", "none")
        with fleet.running():
            until(lambda: fleet.object("deployment", "a") is None, "the old one goes when the new one is ready")
            until(lambda: fleet.object("configmap", "a") is None, "and what it was made of")
        assert json.loads(fleet.cluster.kubectl("-n", other, "get", "deployment", "a", "-o", "json"))
    finally:
        fleet.cluster.kubectl("delete", "namespace", other, "--wait=false")


def test_a_namespace_that_is_not_watched_is_not_taken_for_gone(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__NAMESPACES"] = "default"
    answer = fleet.call("plan", "-o", "json")
    assert not [each for each in answer.json.get("actions", ()) if each["verb"] != "adopt"]
    assert "not looked at" in fleet.call("once", "--timeout", "5s").out + fleet.call("status").out
