"""The main job on a real cluster, as its users see it."""

from __future__ import annotations

from tests.kubernetes.fleet import IMAGE, KubeFleet


def test_a_fleet_comes_up_follows_a_commit_and_goes_back(fleet: KubeFleet) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", runtime={"replicas": 2}), "b.yaml": fleet.agent("b")})
    assert fleet.once()["phase"] == "Converged"
    assert {each["metadata"]["name"] for each in fleet.objects("deployment")} == {"a", "b"}
    assert fleet.object("deployment", "a")["status"]["readyReplicas"] == 2
    assert fleet.object("configmap", "a") is not None

    fleet.commit({"a.yaml": fleet.agent("a", runtime={"image": "registry.example/bot:2", "replicas": 2})})
    assert fleet.once()["phase"] == "Converged"
    assert fleet.image("a") == "registry.example/bot:2"

    fleet.revert("HEAD")
    assert fleet.once()["phase"] == "Converged"
    assert fleet.image("a") == IMAGE


def test_what_leaves_git_leaves_the_cluster(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a", "b", "c", "d", "e"))
    fleet.once()
    fleet.commit({"a.yaml": None})
    fleet.once()
    assert {each["metadata"]["name"] for each in fleet.objects("deployment")} == {"b", "c", "d", "e"}
    assert fleet.object("configmap", "a") is None
    assert not [pod for pod in fleet.objects("pod") if pod["metadata"]["name"].startswith("a-")]


def test_a_lost_journal_loses_no_agent_and_changes_none(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    before = {each["metadata"]["uid"]: each["metadata"]["generation"] for each in fleet.objects("deployment")}
    pods = {each["metadata"]["uid"] for each in fleet.objects("pod")}
    fleet.state = fleet.state.with_name("fresh")
    assert fleet.once()["phase"] == "Converged"
    assert {
        each["metadata"]["uid"]: each["metadata"]["generation"] for each in fleet.objects("deployment")
    } == before
    assert {each["metadata"]["uid"] for each in fleet.objects("pod")} == pods
