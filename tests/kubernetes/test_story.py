"""The main job on a real cluster, as its users see it: on any, also one of yours."""

from __future__ import annotations

from tests.kubernetes.fleet import NEXT_PAUSE, PAUSE, PortableFleet
from tests.support.fleet import Json


def test_a_fleet_comes_up_follows_a_commit_and_goes_back(portable: PortableFleet) -> None:
    portable.commit({"a.yaml": portable.agent("a", runtime={"replicas": 2}), "b.yaml": portable.agent("b")})
    assert portable.once()["phase"] == "Converged"
    assert {each["metadata"]["name"] for each in portable.objects("deployment")} == {"a", "b"}
    assert portable.object("deployment", "a")["status"]["readyReplicas"] == 2
    assert portable.object("configmap", "a") is not None

    portable.commit({"a.yaml": portable.agent("a", runtime={"image": NEXT_PAUSE, "replicas": 2})})
    assert portable.once()["phase"] == "Converged"
    assert portable.image("a") == NEXT_PAUSE

    portable.revert("HEAD")
    assert portable.once()["phase"] == "Converged"
    assert portable.image("a") == PAUSE


def test_what_leaves_git_leaves_the_cluster(portable: PortableFleet) -> None:
    portable.commit(portable.agents("a", "b", "c", "d", "e"))
    portable.once()
    portable.commit({"a.yaml": None})
    portable.once()
    assert {each["metadata"]["name"] for each in portable.objects("deployment")} == {"b", "c", "d", "e"}
    assert portable.object("configmap", "a") is None
    agents = {"b", "c", "d", "e"}
    portable.until(lambda: {agent_of(pod) for pod in portable.objects("pod")} == agents, "its pods are gone")


def agent_of(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["gitops-agent.dev/agent"])


def test_a_lost_journal_loses_no_agent_and_changes_none(portable: PortableFleet) -> None:
    portable.commit(portable.agents("a", "b"))
    portable.once()
    before = {each["metadata"]["uid"]: each["metadata"]["generation"] for each in portable.objects("deployment")}
    pods = {each["metadata"]["uid"] for each in portable.objects("pod")}
    portable.state = portable.state.with_name("fresh")
    assert portable.once()["phase"] == "Converged"
    assert {
        each["metadata"]["uid"]: each["metadata"]["generation"] for each in portable.objects("deployment")
    } == before
    assert {each["metadata"]["uid"] for each in portable.objects("pod")} == pods
