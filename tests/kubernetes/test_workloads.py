"""StatefulSets for memory on disk, CronJobs for a schedule, and the way from one kind to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kubernetes.fleet import KubeFleet

CLAIM = {"name": "memory", "mountPath": "/memory", "size": "1Gi"}
STATEFUL: dict[str, Any] = {"workload": "StatefulSet", "claims": [CLAIM]}
SCHEDULED: dict[str, Any] = {"workload": "CronJob", "schedule": "0 3 * * *"}
ONE_TRY = {**SCHEDULED, "patches": [{"op": "replace", "path": "/spec/jobTemplate/spec/backoffLimit", "value": 0}]}


def test_a_stateful_set_keeps_a_claim_for_each_replica(fleet: KubeFleet) -> None:
    fleet.kubectl("create", "namespace", fleet.tenant, check=False)
    fleet.cluster.kubectl("label", "namespace", fleet.tenant, f"gitops-agent.dev/tenant={fleet.tenant}")
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes={"workload": "StatefulSet"}, runtime={"replicas": 2})})
    assert fleet.once()["phase"] == "Converged"
    found = fleet.object("statefulset", "a")
    assert found["status"]["readyReplicas"] == 2
    assert fleet.object("service", "a")["spec"]["clusterIP"] == "None"
    fleet.kubectl("scale", "statefulset/a", "--replicas=1")
    (drift,) = fleet.ask("drift")["drifts"]
    assert drift["reason"] == "EditedByHand"
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("statefulset", "a")["spec"]["replicas"] == 2


def test_the_memory_of_a_replica_outlives_its_pod(fleet: KubeFleet) -> None:
    with disk(fleet):
        fleet.commit({"a.yaml": fleet.agent("a", kubernetes=STATEFUL), **fleet.agents("b")})
        assert fleet.once()["phase"] == "Converged"
        claim, pod = fleet.object("persistentvolumeclaim", "memory-a-0"), fleet.object("pod", "a-0")
        assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
        assert claim["status"]["phase"] == "Bound"

        fleet.kubectl("delete", "pod", "a-0")
        fleet.until(lambda: uid(fleet, "pod", "a-0") not in (None, pod["metadata"]["uid"]), "another pod")
        assert fleet.once()["phase"] == "Converged"
        assert uid(fleet, "persistentvolumeclaim", "memory-a-0") == claim["metadata"]["uid"]
        for each in (pod, fleet.object("pod", "a-0")):
            volumes = {volume["name"]: volume for volume in each["spec"]["volumes"]}
            assert volumes["memory"]["persistentVolumeClaim"]["claimName"] == "memory-a-0"
            mounts = {mount["name"]: mount["mountPath"] for mount in each["spec"]["containers"][0]["volumeMounts"]}
            assert mounts["memory"] == "/memory"
        assert fleet.ask("drift")["drifts"] == []

        fleet.commit({"a.yaml": None}, "It leaves Git")
        assert fleet.once()["phase"] == "Converged"
        assert fleet.object("statefulset", "a") is None
        kept = uid(fleet, "persistentvolumeclaim", "memory-a-0")
        assert kept == claim["metadata"]["uid"], "what it remembers is not ours to delete"


def uid(fleet: KubeFleet, kind: str, name: str) -> str | None:
    found = fleet.object(kind, name)
    return found["metadata"]["uid"] if found else None


@contextmanager
def disk(fleet: KubeFleet) -> Iterator[None]:
    """A volume that the claim of the agent's first replica binds, made by hand: there is no provisioner here."""
    name = f"{fleet.tenant}-disk"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": "/nonexistent"},
        "claimRef": {"namespace": fleet.tenant, "name": "memory-a-0"},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    fleet.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    try:
        yield
    finally:
        fleet.cluster.kubectl("delete", "persistentvolume", name, "--wait=false")


def test_a_schedule_and_its_end(fleet: KubeFleet) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=SCHEDULED)})
    assert fleet.once()["phase"] == "Converged"
    found = fleet.object("cronjob", "a")
    assert (found["spec"]["schedule"], found["spec"]["suspend"]) == ("0 3 * * *", False)
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=SCHEDULED, lifecycle="Stopped")})
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("cronjob", "a")["spec"]["suspend"] is True
    fleet.kubectl("patch", "cronjob", "a", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("cronjob", "a")["spec"]["suspend"] is True


def test_a_run_that_fails_is_told_until_one_ends_well(fleet: KubeFleet) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=SCHEDULED), **fleet.agents("b")})
    assert fleet.once()["phase"] == "Converged"
    run(fleet, "good", "Complete")
    assert fleet.once()["phase"] == "Converged"
    assert ready(fleet) == (True, "Healthy")

    crashing = {"image": "registry.example/crashes:1"}
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=ONE_TRY, runtime=crashing)}, "One that crashes")
    assert fleet.once()["phase"] == "Converged", "as good as the runs that it had"
    run(fleet, "bad", "Failed")
    fleet.once("--timeout", "5s", code=5)
    assert ready(fleet) == (False, "RunFailed")
    explained = " ".join(fleet.call("explain", "a").out.split())
    assert "RunFailed" in explained
    assert ready(fleet, "b") == (True, "Healthy")

    fleet.revert("HEAD")
    assert fleet.once()["phase"] == "Converged", "a run of the version before says nothing about this one"
    run(fleet, "mended", "Complete")
    assert fleet.once()["phase"] == "Converged"
    assert ready(fleet) == (True, "Healthy")


def run(fleet: KubeFleet, name: str, ends: str) -> None:
    """A run by hand, as people try a schedule out, to its end. It is called after the schedule, as the controller
    calls its runs: by that its pods are known as the agent's."""
    fleet.kubectl("create", "job", f"a-{name}", "--from=cronjob/a")
    fleet.kubectl("wait", f"--for=condition={ends}", f"job/a-{name}", "--timeout=30s")


def ready(fleet: KubeFleet, name: str = "a") -> tuple[bool, str]:
    """Whether an agent is Ready, and why."""
    condition = fleet.condition(fleet.status(), name)
    assert condition is not None
    return condition["status"], condition["reason"]


def test_a_stopped_agent_is_scaled_to_zero_and_started_by_nobody(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    fleet.commit(fleet.agents("a", lifecycle="Stopped"))
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 0
    assert fleet.objects("pod") == []
    fleet.kubectl("scale", "deployment/a", "--replicas=1")
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 0
    fleet.commit(fleet.agents("a"))
    assert fleet.once()["phase"] == "Converged"
    assert fleet.object("deployment", "a")["status"]["readyReplicas"] == 1


def test_another_kind_of_workload_leaves_nothing_of_the_one_before(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    for kubernetes, kind in (
        ({"workload": "StatefulSet"}, "statefulset"),
        (SCHEDULED, "cronjob"),
        ({}, "deployment"),
    ):
        fleet.commit({"a.yaml": fleet.agent("a", kubernetes=kubernetes)}, f"As a {kind}")
        assert fleet.once()["phase"] == "Converged"
        kinds = [each for each in ("deployment", "statefulset", "cronjob") if fleet.objects(each)]
        assert kinds == [kind]
    assert fleet.objects("service") == []
    assert fleet.ask("drift")["drifts"] == []


def test_its_service_follows_it_to_another_kind_of_workload(fleet: KubeFleet) -> None:
    """A StatefulSet needs one without an address, others one with: the API lets no Service change between them."""
    ports = {"ports": [{"name": "http", "port": 80}]}
    seen: set[str] = set()
    for workload, headless in (("Deployment", False), ("StatefulSet", True), ("Deployment", False)):
        fleet.commit({"a.yaml": fleet.agent("a", kubernetes={"workload": workload, **ports})}, f"As a {workload}")
        assert fleet.once()["phase"] == "Converged"
        found = fleet.object("service", "a")
        assert (found["spec"]["clusterIP"] == "None") is headless
        assert [each["port"] for each in found["spec"]["ports"]] == [80]
        assert found["metadata"]["uid"] not in seen, "another one"
        last = found["metadata"]["uid"]
        seen.add(last)
    assert fleet.ask("drift")["drifts"] == []
    changed = {"ports": [{"name": "http", "port": 81}]}
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=changed)}, "Another port")
    assert fleet.once()["phase"] == "Converged"
    assert uid(fleet, "service", "a") == last, "what can be changed is"


def test_an_exclusive_one_ends_before_it_begins_as_another_kind(fleet: KubeFleet) -> None:
    slow = {"podAnnotations": {"stages.gitops-agent.dev/gone-after": "3s"}}
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=slow, runtime={"exclusive": True})})
    fleet.once()
    changed = {"workload": "StatefulSet", **slow}
    fleet.commit({"a.yaml": fleet.agent("a", kubernetes=changed, runtime={"exclusive": True})})
    names: set[str] = set()
    with fleet.running():

        def begun() -> bool:
            names.clear()
            names.update(each["metadata"]["name"] for each in fleet.objects("pod"))
            assert len(names) <= 1
            return names == {"a-0"}

        fleet.until(begun, "the pod of the StatefulSet")
        fleet.until(lambda: not fleet.objects("deployment"), "the Deployment is gone")
