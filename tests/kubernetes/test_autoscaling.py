"""An autoscaler decides how many replicas there are, and Git whether the agent runs at all."""

from __future__ import annotations

import json
from typing import Any

from tests.kubernetes.fleet import IMAGE, KubeFleet
from tests.kubernetes.test_conflicts import OTHER, image, taken
from tests.kubernetes.test_not_drift import server_apply
from tests.kubernetes.test_safety import meanwhile, proxied
from tests.servers.faults import FaultProxy

__all__ = ["proxied"]
LIVE = {"authority": {"runtime.replicas": "live"}}


def autoscaled(fleet: KubeFleet, replicas: int) -> None:
    """What a HorizontalPodAutoscaler does: it writes the scale of a workload, and owns the number from then on."""
    to = json.dumps({"spec": {"replicas": replicas}})
    how = ("--subresource=scale", "--type=merge", "--field-manager=kube-controller-manager")
    fleet.kubectl("patch", "deployment", "a", *how, "-p", to)


def agent(fleet: KubeFleet, *, replicas: int = 2, **spec: Any) -> dict[str, str]:
    """A document whose replicas live decides, unless it says otherwise."""
    runtime = {"replicas": replicas, **spec.pop("runtime", {})}
    return {"a.yaml": fleet.agent("a", runtime=runtime, **{**LIVE, **spec})}


def replicas(fleet: KubeFleet) -> int:
    found: int = fleet.object("deployment", "a")["spec"]["replicas"]
    return found


def test_what_an_autoscaler_scales_is_stopped_and_started_by_git(fleet: KubeFleet) -> None:
    fleet.commit(agent(fleet))
    fleet.once()
    autoscaled(fleet, 4)
    fleet.commit(agent(fleet, lifecycle="Stopped"), "Stop it")
    assert fleet.once()["phase"] == "Converged"
    assert replicas(fleet) == 0
    fleet.commit(agent(fleet), "Start it again")
    assert fleet.once()["phase"] == "Converged"
    assert replicas(fleet) == 2, "as Git says"
    autoscaled(fleet, 3)
    fleet.commit(agent(fleet, runtime={"image": "registry.example/bot:2"}), "Another image")
    assert fleet.once()["phase"] == "Converged"
    assert replicas(fleet) == 3, "as the autoscaler says"


def test_a_document_that_takes_the_number_back_has_it(fleet: KubeFleet) -> None:
    fleet.commit(agent(fleet))
    fleet.once()
    autoscaled(fleet, 4)
    fleet.commit(agent(fleet, authority={}), "Git decides again")
    assert fleet.once()["phase"] == "Converged"
    assert replicas(fleet) == 2
    autoscaled(fleet, 5)
    (drift,) = fleet.ask("drift")["drifts"]
    assert (drift["reason"], drift["decision"]) == ("TakenOver", "alert"), "an autoscaler that was left behind"


def test_what_was_scaled_to_zero_by_hand_and_then_stopped_is_started(fleet: KubeFleet) -> None:
    fleet.commit(agent(fleet, replicas=1))
    fleet.once()
    fleet.kubectl("scale", "deployment/a", "--replicas=0")
    fleet.commit(agent(fleet, replicas=1, lifecycle="Stopped"), "Stop it")
    assert fleet.once()["phase"] == "Converged"
    fleet.commit(agent(fleet, replicas=1), "Start it again")
    assert fleet.once()["phase"] == "Converged"
    assert replicas(fleet) == 1


def test_what_the_autoscaler_does_while_it_is_given_the_number_stands(
    proxied: KubeFleet, proxy: FaultProxy
) -> None:
    fleet = proxied
    fleet.commit(agent(fleet, authority={}))
    fleet.once()
    fleet.commit(agent(fleet), "Live decides")
    meanwhile(proxy, "PATCH", "/deployments/a", lambda: autoscaled(fleet, 5))
    assert fleet.once()["phase"] == "Converged"
    assert replicas(fleet) == 5


def test_a_start_that_is_refused_starts_nothing(fleet: KubeFleet) -> None:
    fleet.commit(agent(fleet, lifecycle="Stopped"))
    fleet.once()
    server_apply(fleet, taken("a", **image(OTHER)), "image-updater", "--force-conflicts")
    fleet.commit(agent(fleet, runtime={"image": "registry.example/bot:2"}), "Start it with another image")
    fleet.once("--timeout", "8s", code=5)
    assert "image-updater" in fleet.call("explain", "a").out
    assert (fleet.image("a"), replicas(fleet)) == (OTHER, 0)


def test_what_lost_its_label_keeps_its_number(fleet: KubeFleet) -> None:
    fleet.commit(agent(fleet, replicas=3))
    fleet.once()
    fleet.kubectl("label", "deployment", "a", "gitops-agent.dev/instance-")
    assert fleet.once()["phase"] == "Converged"
    found = fleet.object("deployment", "a")
    assert found["metadata"]["labels"]["gitops-agent.dev/instance"] == fleet.instance
    assert (fleet.image("a"), replicas(fleet)) == (IMAGE, 3)
