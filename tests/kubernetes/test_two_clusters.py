"""One instance for two real clusters, by the contexts of one kubeconfig: each agent is where its document says, a
move is one ordered change, and while a cluster is away nothing is lost but sight of the agents in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import cast

import pytest

from tests.kubernetes.fleet import KubeFleet
from tests.kubernetes.test_move import is_ready
from tests.servers.cluster import Cluster
from tests.support.fleet import Json, until

SETTING = "GITOPS_AGENT_DRIVERS__KUBERNETES__"
NEW = "registry.example/bot:2"


@pytest.fixture(scope="module")
def west() -> Iterator[Cluster]:
    """The second cluster, whose API server the tests may stop."""
    with Cluster() as started:
        yield started


@pytest.fixture
def east(control: Cluster) -> Cluster:
    return control


@pytest.fixture
def both(fleet: KubeFleet, east: Cluster, west: Cluster, tmp_path: Path) -> Iterator[KubeFleet]:
    """The fleet with a kubeconfig of both."""
    path = tmp_path / "both.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(joined(east=east, west=west)))
    fleet.environment |= {SETTING + "KUBECONFIG": str(path), SETTING + "CONTEXTS": "east,west"}
    yield fleet
    west.kubectl("delete", "namespace", fleet.tenant, "--wait=false", "--ignore-not-found")


def joined(**clusters: Cluster) -> Json:
    """One kubeconfig, with a context for each cluster; the first is the current one."""
    found: Json = {"apiVersion": "v1", "kind": "Config", "current-context": next(iter(clusters))}
    found |= {"clusters": [], "users": [], "contexts": []}
    for name, cluster in clusters.items():
        known = json.loads(cluster.kubeconfig.read_text())
        found["clusters"].append({**known["clusters"][0], "name": name})
        found["users"].append({**known["users"][0], "name": name})
        found["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    return found


def agent(fleet: KubeFleet, name: str, context: str, image: str = "registry.example/bot:1") -> dict[str, str]:
    return {f"{name}.yaml": fleet.agent(name, runtime={"image": image}, kubernetes={"context": context})}


def listed(fleet: KubeFleet, cluster: Cluster, kind: str) -> list[Json]:
    """The objects of this instance in one of the clusters."""
    label = f"gitops-agent.dev/instance={fleet.instance}"
    found = cluster.kubectl("-n", fleet.tenant, "get", kind, "-l", label, "-o", "json")
    return cast("list[Json]", json.loads(found)["items"])


def images(fleet: KubeFleet, cluster: Cluster) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in listed(fleet, cluster, "deployment")
    }


def states(fleet: KubeFleet, name: str) -> set[str]:
    """In which states ``status`` shows what an agent consists of."""
    return {each["state"] for each in fleet.row(fleet.status(), name)["resources"]}


@contextmanager
def watched(fleet: KubeFleet, **clusters: Cluster) -> Iterator[list[set[str]]]:
    """In which clusters a pod of the fleet was Ready, looked at without a pause while the block runs."""
    seen: list[set[str]] = []
    over = Event()

    def look() -> None:
        while not over.is_set():
            # In the order of the move: what became ready after the first look is not missed by the second.
            found = {name: any(map(is_ready, listed(fleet, each, "pod"))) for name, each in clusters.items()}
            seen.append({name for name, ready in found.items() if ready})

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_each_agent_is_in_the_cluster_that_its_document_names(
    both: KubeFleet, east: Cluster, west: Cluster
) -> None:
    both.commit({**agent(both, "a", "east"), **agent(both, "b", "west"), **both.agents("c")})
    assert both.once()["phase"] == "Converged"
    assert (set(images(both, east)), set(images(both, west))) == ({"a", "c"}, {"b"}), "c: in the current one"
    shown = both.call("status").out
    assert f"kubernetes@east/{both.tenant}" in shown
    assert f"kubernetes@west/{both.tenant}" in shown
    west.kubectl("-n", both.tenant, "scale", "deployment/b", "--replicas=3")
    both.commit(agent(both, "a", "east", NEW))
    assert both.once()["phase"] == "Converged"
    assert images(both, east)["a"] == NEW
    (found,) = listed(both, west, "deployment")
    assert found["spec"]["replicas"] == 1, "drift is undone in both"


def test_a_move_to_the_other_cluster_is_one_ordered_change(both: KubeFleet, east: Cluster, west: Cluster) -> None:
    both.commit(agent(both, "a", "east"))
    assert both.once()["phase"] == "Converged"
    with watched(both, east=east, west=west) as seen:
        both.commit(agent(both, "a", "west"), "To the west")
        assert "runs on kubernetes@east until the one on kubernetes@west is ready" in both.call("plan").out
        assert both.once()["phase"] == "Converged"
    assert all(seen), "there was a moment without it"
    assert {"east", "west"} in seen, "they overlap"
    assert [kind for kind in ("deployment", "configmap", "pod") if listed(both, east, kind)] == [], (
        "all of it went"
    )
    assert set(images(both, west)) == {"a"}
    assert both.ask("plan")["actions"] == []


def test_a_cluster_that_is_away_does_not_stop_the_other(both: KubeFleet, east: Cluster, west: Cluster) -> None:
    head = both.commit({**agent(both, "a", "east"), **agent(both, "b", "west")})
    with both.running(GITOPS_AGENT_RESYNC_INTERVAL="2s", **{SETTING + "STALE_AFTER": "5"}):
        both.await_phase(head, "Converged")
        before = listed(both, west, "deployment")[0]["metadata"]["uid"]
        west.stop_apiserver()
        try:
            until(lambda: states(both, "b") == {"Unknown"}, "b is unknown")
            assert "Unknown" not in states(both, "a")
            east.kubectl("-n", both.tenant, "delete", "deployment", "a")
            until(lambda: images(both, east) == {"a": "registry.example/bot:1"}, "a is made again")
            both.commit(agent(both, "a", "east", NEW))
            until(lambda: images(both, east) == {"a": NEW}, "a follows")
            assert both.status()["phase"] != "Converged", "of b nothing is known"
        finally:
            west.start_apiserver()
            west.restart_nodes()
        until(lambda: both.status()["phase"] == "Converged", "b is as it was")
        head = both.commit(agent(both, "b", "west", NEW))
        both.await_phase(head, "Converged")
        assert images(both, west) == {"b": NEW}
        assert listed(both, west, "deployment")[0]["metadata"]["uid"] == before, "nothing was made anew"
        assert "Unknown" not in states(both, "b")
    assert "Traceback" not in both.daemon_log()
