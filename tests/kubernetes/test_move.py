"""An agent moves from a process into the cluster and back by commits: never a moment without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from tests.kubernetes.fleet import IMAGE, KubeFleet
from tests.support.fleet import Json


@pytest.fixture(autouse=True)
def ended(fleet: KubeFleet) -> Iterator[None]:
    yield
    fleet.end()


def place(fleet: KubeFleet, driver: str, *, exclusive: bool = False) -> str:
    runtime: Json = {"driver": driver, "exclusive": exclusive, "image": IMAGE if driver == "kubernetes" else None}
    runtime = {name: value for name, value in runtime.items() if value}
    document = super(KubeFleet, fleet).agent("a", "sleep", "600", runtime={**runtime, "stop": {"grace": "0s"}})
    return fleet.commit({"a.yaml": document}, f"To {driver}")


def at(fleet: KubeFleet) -> set[str]:
    """Where the agent runs now: a process that is alive, a pod that is Ready and not on its way out."""
    process = {"process"} if fleet.pids("a") else set()
    return process | ({"kubernetes"} if any(map(is_ready, fleet.objects("pod"))) else set())


def is_ready(pod: Json) -> bool:
    """Whether a pod takes work and is not on its way out."""
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"


@contextmanager
def watched(fleet: KubeFleet) -> Iterator[list[set[str]]]:
    """Where the agent ran, looked at without a pause while the block runs."""
    seen: list[set[str]] = []
    over = Event()

    def look() -> None:
        while not over.is_set():
            seen.append(at(fleet))

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_into_the_cluster_and_back_without_a_moment_without_it(fleet: KubeFleet) -> None:
    place(fleet, "process")
    fleet.once()
    with watched(fleet) as seen:
        place(fleet, "kubernetes")
        told = fleet.call("plan").out
        assert "runs on process until the one on kubernetes is ready" in told
        assert fleet.once()["phase"] == "Converged"
        assert at(fleet) == {"kubernetes"}
        place(fleet, "process")
        assert fleet.once()["phase"] == "Converged"
    assert all(seen), "there was a moment without it"
    assert {"process", "kubernetes"} in seen, "they overlap"
    assert at(fleet) == {"process"}
    left = [kind for kind in ("deployment", "configmap", "pod") if fleet.objects(kind)]
    assert left == [], "nothing of it stays in the cluster"
    assert fleet.ask("plan")["actions"] == []


def test_an_exclusive_one_ends_before_it_begins(fleet: KubeFleet) -> None:
    place(fleet, "process", exclusive=True)
    fleet.once()
    with watched(fleet) as seen:
        place(fleet, "kubernetes", exclusive=True)
        assert fleet.once()["phase"] == "Converged"
        assert at(fleet) == {"kubernetes"}
        place(fleet, "process", exclusive=True)
        assert fleet.once()["phase"] == "Converged"
    assert all(len(each) <= 1 for each in seen)
    assert at(fleet) == {"process"}
