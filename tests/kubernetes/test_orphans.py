"""Objects that Git does not know: ours are kept apart for people, those of others are never touched."""

from __future__ import annotations

import json
from typing import Any

from tests.kubernetes.fleet import IMAGE, KubeFleet


def deployment(name: str, labels: dict[str, str] | None = None) -> str:
    """A Deployment that somebody made, with labels of somebody's choice."""
    own = {"app": name}
    made: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "selector": {"matchLabels": own},
            "template": {
                "metadata": {"labels": own},
                "spec": {"containers": [{"name": "agent", "image": "registry.example/theirs:1"}]},
            },
        },
    }
    return json.dumps(made)


def marks(fleet: KubeFleet, name: str, instance: str = "") -> dict[str, str]:
    return {
        "app.kubernetes.io/managed-by": "gitops-agent",
        "gitops-agent.dev/instance": instance or fleet.instance,
        "gitops-agent.dev/tenant": fleet.tenant,
        "gitops-agent.dev/agent": name,
    }


def test_an_orphan_is_told_and_left_for_people(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    ours = ("--server-side", "--field-manager=gitops-agent")  # as one of ours whose document and record are gone
    fleet.kubectl("apply", *ours, "-f", "-", stdin=deployment("stray", marks(fleet, "stray")))
    (found,) = fleet.ask("drift")["drifts"]
    assert (found["agent"], found["reason"], found["decision"]) == (fleet.key("stray"), "Orphan", "quarantine")
    fleet.call("once")
    assert fleet.image("stray") == "registry.example/theirs:1"
    assert "Orphan" in fleet.call("explain", "stray").out + fleet.call("status").out


def test_what_is_not_ours_is_in_the_way_until_git_adopts_it(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("first"))
    fleet.once()
    fleet.kubectl("create", "-f", "-", stdin=deployment("theirs"))
    fleet.kubectl("create", "-f", "-", stdin=deployment("another", marks(fleet, "another", "someone-else")))
    before = {name: fleet.object("deployment", name)["metadata"]["uid"] for name in ("theirs", "another")}

    fleet.commit(fleet.agents("theirs", "another", "mine"))
    fleet.once("--timeout", "15s", code=5)
    for name in before:
        assert fleet.object("deployment", name)["metadata"]["uid"] == before[name]
        assert fleet.image(name) == "registry.example/theirs:1", "never touched unasked"
    assert fleet.image("mine") == IMAGE
    assert "is not ours" in fleet.call("explain", "theirs").out
    assert "belongs to the instance someone-else" in fleet.call("explain", "another").out

    fleet.kubectl("delete", "deployment", "another")
    fleet.commit(fleet.agents("theirs", "another", adopt=True))
    # The selector of a Deployment cannot be changed, so one that selects otherwise can never be taken over.
    fleet.call("once", "--timeout", "15s")
    assert fleet.image("another") == IMAGE


def test_adopt_takes_over_a_config_map_that_somebody_made(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("first"))
    fleet.once()
    fleet.kubectl("create", "configmap", "a", "--from-literal=bundle.json={}", "--from-literal=own=kept")
    fleet.commit(fleet.agents("a", adopt=True))
    assert fleet.once()["phase"] == "Converged"
    found = fleet.object("configmap", "a")
    assert found["metadata"]["labels"]["gitops-agent.dev/instance"] == fleet.instance
    assert found["data"]["bundle.json"] != "{}"
    assert found["data"]["own"] == "kept"
