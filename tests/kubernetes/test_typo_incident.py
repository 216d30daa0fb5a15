"""Thirty Deployments, and a commit that breaks all or deletes nearly all of them: told by the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.fleet import IMAGE, KubeFleet
from tests.servers.cluster import Cluster

THIRTY = tuple(f"bot-{number:02}" for number in range(30))
TYPO = "registry.example/no-such-image:2"
SOON = {"rollout": {"healthTimeout": "8s"}}
"""How long a gate waits for its agents, two minutes by default."""


@pytest.fixture
def thirty(tmp_path: Path, control: Cluster) -> Iterator[KubeFleet]:
    """Thirty agents that run, in a cluster whose pods fail on demand."""
    fleet = KubeFleet(tmp_path, control)
    fleet.commit(
        {"policy.yaml": fleet.policy(rollout={"bake": "1s"}), **fleet.agents(*THIRTY, **SOON)}, "Thirty agents"
    )
    assert fleet.once()["phase"] == "Converged"
    yield fleet
    fleet.remove()


def generations(fleet: KubeFleet) -> dict[str, tuple[str, int]]:
    """Which object each Deployment is, and how often what it asks for was changed."""
    found = (each["metadata"] for each in fleet.objects("deployment"))
    return {each["name"]: (each["uid"], each["generation"]) for each in found}


def ready(fleet: KubeFleet) -> set[str]:
    """The Deployments with a replica that is ready."""
    found = fleet.objects("deployment")
    return {each["metadata"]["name"] for each in found if each["status"].get("readyReplicas", 0) >= 1}


def pods(fleet: KubeFleet) -> set[str]:
    return {each["metadata"]["uid"] for each in fleet.objects("pod")}


def test_a_typo_in_every_image_touches_one_of_thirty(thirty: KubeFleet) -> None:
    good, before, ran = thirty.head(), generations(thirty), pods(thirty)
    assert set(before) == set(THIRTY)
    bad = thirty.commit(thirty.agents(*THIRTY, runtime={"image": TYPO}, **SOON), "A typo in thirty images")
    answer = thirty.once(code=5)
    assert (answer["commit"], answer["phase"], answer["enforced"]) == (bad, "Degraded", good)

    now = generations(thirty)
    touched = {name for name in THIRTY if now.get(name) != before[name]}
    print(f"a typo in 30 of 30 images: {len(touched)} touched")
    assert len(touched) == 1
    assert {name for name in THIRTY if thirty.image(name) == TYPO} == touched
    assert ready(thirty) == set(THIRTY), "also the one that was touched: its old pod runs until a new one is Ready"
    assert ran <= pods(thirty), "no pod of anybody was ended"

    (canary,) = touched
    explained = thirty.call("explain", canary).out
    assert TYPO in explained, "the image that cannot be pulled is named"
    thirty.once(code=5)
    assert generations(thirty) == now, "what failed is not tried again, and goes no further"

    sha = thirty.revert("HEAD")
    answer = thirty.once()
    assert (answer["phase"], answer["enforced"]) == ("Converged", sha)
    assert {thirty.image(name) for name in THIRTY} == {IMAGE}
    after = generations(thirty)
    assert {name for name in THIRTY if after[name] != before[name]} == touched, "nobody else ever moved"
    assert ran <= pods(thirty)


def test_a_commit_that_deletes_29_of_30_deletes_none_until_it_is_approved(thirty: KubeFleet) -> None:
    good, before, ran = thirty.head(), generations(thirty), pods(thirty)
    bad = thirty.commit({f"{name}.yaml": None for name in THIRTY[1:]}, "Tidy up")
    answer = thirty.once(code=4)
    assert (answer["phase"], answer["enforced"]) == ("Blocked", good)
    assert generations(thirty) == before
    assert pods(thirty) == ran
    assert any("29 of 30 agents" in each["summary"] for each in answer["findings"])
    print("a commit that deletes 29 of 30: 0 deleted, it waits for approval")

    digest = thirty.ask("plan", code=4)["digest"]
    thirty.ask("approve", digest, "--reason", "they are not needed any more")
    answer = thirty.once()
    assert (answer["phase"], answer["enforced"]) == ("Converged", bad)
    assert generations(thirty) == {THIRTY[0]: before[THIRTY[0]]}
    for kind in ("deployment", "configmap"):
        assert [each["metadata"]["name"] for each in thirty.objects(kind)] == [THIRTY[0]]
    assert len(pods(thirty)) == 1
    assert pods(thirty) <= ran
