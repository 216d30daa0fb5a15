"""Which pods are of a workload: those that its controller keeps, whatever labels others wear."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_agent.drivers.kubernetes.objects import is_pod_of

pytestmark = pytest.mark.unit


def pod(kind: str = "", name: str = "", *, controller: bool = True, namespace: str = "acme") -> dict[str, Any]:
    owner = {"kind": kind, "name": name, "controller": controller}
    labels = {"pod-template-hash": "5f7"}
    return {"metadata": {"namespace": namespace, "labels": labels, "ownerReferences": [owner] if kind else []}}


@pytest.mark.parametrize(
    ("workload", "found", "own"),
    [
        ("Deployment", pod("ReplicaSet", "bot-5f7"), True),
        ("Deployment", pod("ReplicaSet", "bot-5f7", controller=False), False),
        ("Deployment", pod("ReplicaSet", "bot-5f7", namespace="other"), False),
        ("Deployment", pod("ReplicaSet", "bot-other-5f7"), False),
        ("Deployment", pod("ReplicaSet", "bot"), False),
        ("Deployment", pod("StatefulSet", "bot-5f7"), False),
        ("Deployment", pod(), False),
        ("StatefulSet", pod("StatefulSet", "bot"), True),
        ("StatefulSet", pod("StatefulSet", "bot-2"), False),
        ("StatefulSet", pod("ReplicaSet", "bot-5f7"), False),
        ("CronJob", pod("Job", "bot-29384"), True),
        ("CronJob", pod("Job", "robot-29384"), False),
        ("CronJob", pod(), False),
        ("Service", pod("Job", "bot-1"), False),
    ],
)
def test_a_pod_is_its_workloads_by_its_controller(workload: str, found: dict[str, Any], own: bool) -> None:
    assert is_pod_of({"kind": workload, "metadata": {"name": "bot", "namespace": "acme"}}, found) is own
