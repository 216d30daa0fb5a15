"""How agents do in the cluster: a gate fails at the first one, and people are told what they need to know."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.kubernetes.fleet import IMAGE, KubeFleet
from tests.servers.cluster import Cluster
from tests.support.fleet import until


def image(word: str) -> dict[str, Any]:
    """An image whose name lets its container misbehave (``stages.yaml``)."""
    return {"runtime": {"image": f"registry.example/{word}:1"}}


QUICK = {"rollout": {"healthTimeout": "8s"}}

PROBE = {"probes": {"readiness": {"http": {"port": 8080}, "period": "1s", "failureThreshold": 1}}}
BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "pull": (image("no-such-image"), "ImagePullFailed", "no-such-image:1 (correct the image or its pull secret)"),
    "crash": (image("crashes"), "CrashLoop", "code 1"),
    "memory": (image("out-of-memory"), "OOMKilled", "memory"),
    "room": ({"runtime": {"resources": {"requests": {"cpu": "5000"}}}}, "Unschedulable", "Insufficient cpu"),
    "probe": ({**image("never-ready"), **PROBE}, "ProbeFailing", "readiness"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_change_ends_at_the_first_agent_with_the_reason_people_need(fleet: KubeFleet, name: str) -> None:
    change, reason, said = BAD[name]
    fleet.commit(fleet.agents("a", "b", "c", **QUICK))
    fleet.once()
    fleet.commit(fleet.agents("a", "b", "c", **change, **QUICK))
    answer = fleet.once("--timeout", "40s", code=5)
    touched = [each for each in "abc" if (fleet.object("deployment", each) or {})["metadata"]["generation"] > 1]
    assert len(touched) == 1
    (canary,) = touched
    assert (fleet.condition(answer, canary) or {})["reason"] == reason
    explained = fleet.call("explain", canary).out
    assert said in explained
    assert "looked at again soon" not in explained
    ready = (fleet.object("deployment", canary) or {})["status"]["readyReplicas"]
    assert ready == 1, "the old one runs on: it ends when the new one is ready, and not before"


@pytest.mark.parametrize("name", ["pull", "memory"])
def test_a_gate_does_not_wait_for_what_waiting_does_not_cure(fleet: KubeFleet, name: str) -> None:
    patient = {"rollout": {"healthTimeout": "1h"}}
    policy = fleet.policy(rollout={"bake": "1s", "failAfter": "5s"})
    fleet.commit({"policy.yaml": policy, **fleet.agents("a", "b", "c", **patient)})
    fleet.once()
    change, reason, _ = BAD[name]
    sha = fleet.commit(fleet.agents("a", "b", "c", **change, **patient))
    answer = fleet.once("--timeout", "90s", code=5)
    assert (answer["commit"], answer["phase"]) == (sha, "Degraded")
    assert reason in answer["summary"]


def test_a_quota_without_room(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a", **QUICK))
    fleet.once()
    fleet.kubectl("create", "quota", "tight", "--hard=pods=1")
    until(lambda: "1/1" in fleet.kubectl("get", "quota", "tight"), "the quota counts")
    fleet.commit(fleet.agents("a", runtime={"image": "registry.example/bot:2"}, **QUICK))
    answer = fleet.once("--timeout", "40s", code=5)
    assert (fleet.condition(answer, "a") or {})["reason"] == "QuotaExceeded"
    assert "exceeded quota: tight" in fleet.call("explain", "a").out


STATEFUL = {"kubernetes": {"workload": "StatefulSet"}}


def test_a_stateful_set_without_room_in_the_quota(fleet: KubeFleet) -> None:
    """What a StatefulSet is refused is in its events alone."""
    namespace(fleet)
    fleet.kubectl("create", "quota", "tight", "--hard=pods=0")
    until(lambda: "0/0" in fleet.kubectl("get", "quota", "tight"), "the quota counts")
    fleet.commit(fleet.agents("a", **STATEFUL, **QUICK))
    answer = fleet.once("--timeout", "40s", code=5)
    assert (fleet.condition(answer, "a") or {})["reason"] == "QuotaExceeded"
    assert "exceeded quota: tight" in fleet.call("explain", "a").out
    fleet.kubectl("delete", "quota", "tight")
    fleet.commit(fleet.agents("a", runtime={"image": "registry.example/bot:2"}, **STATEFUL, **QUICK))
    assert fleet.once("--timeout", "40s")["phase"] == "Converged", "an event of before is no reason any more"


def test_a_stateful_set_that_pod_security_refuses(fleet: KubeFleet) -> None:
    namespace(fleet, "pod-security.kubernetes.io/enforce=restricted")
    fleet.commit(fleet.agents("a", **STATEFUL, **QUICK))
    answer = fleet.once("--timeout", "40s", code=5)
    assert (fleet.condition(answer, "a") or {})["reason"] == "AdmissionDenied"
    assert 'violates PodSecurity "restricted' in " ".join(fleet.call("explain", "a").out.split())


def test_a_run_of_a_schedule_that_gets_no_pod(fleet: KubeFleet) -> None:
    scheduled = {"kubernetes": {"workload": "CronJob", "schedule": "0 3 1 1 *"}}
    head = fleet.commit(fleet.agents("a", **scheduled))
    with fleet.running():
        fleet.await_phase(head, "Converged")
        fleet.kubectl("create", "quota", "tight", "--hard=pods=0")
        until(lambda: "0/0" in fleet.kubectl("get", "quota", "tight"), "the quota counts")
        fleet.kubectl("create", "job", "a-run", "--from=cronjob/a")
        job = (fleet.object("job", "a-run") or {})["metadata"]
        # As the cluster does when it is time for a run, for which the test would have to wait.
        active = {"kind": "Job", "namespace": fleet.tenant, "name": "a-run", "uid": job["uid"]}
        status = json.dumps({"status": {"active": [active]}})
        fleet.kubectl("patch", "cronjob", "a", "--subresource=status", "--type=merge", "-p", status)
        until(lambda: reason(fleet, "a") == "QuotaExceeded", "that its run gets no pod")
        assert "exceeded quota: tight" in fleet.call("explain", "a").out


def test_what_a_probe_says(fleet: KubeFleet) -> None:
    patient = {"rollout": {"healthTimeout": "1h"}}
    fleet.commit(fleet.agents("a", **image("never-ready"), **PROBE, **patient))
    with fleet.running():
        (pod,) = until(lambda: fleet.objects("pod"), "its pod")
        meta, now = pod["metadata"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # A kubelet would say so; the simulated one probes nothing.
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.1", "namespace": fleet.tenant},
            "involvedObject": {"kind": "Pod", "name": meta["name"], "namespace": fleet.tenant, "uid": meta["uid"]},
            "type": "Warning",
            "reason": "Unhealthy",
            "message": "Readiness probe failed: HTTP probe failed with statuscode: 500",
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        fleet.kubectl("create", "-f", "-", stdin=json.dumps(event))
        said = "its readiness probe fails: HTTP probe failed with statuscode: 500"
        until(lambda: said in " ".join(fleet.call("explain", "a").out.split()), "what the probe said")
        assert reason(fleet, "a") == "ProbeFailing"


def test_events_that_may_not_be_read_are_no_text_and_no_failure(control: Cluster, fleet: KubeFleet) -> None:
    user = "agent"
    kinds = "deployments.apps,statefulsets.apps,cronjobs.batch,configmaps,secrets,services,pods,namespaces"
    name = f"no-events-{fleet.tenant}"
    control.kubectl("create", "clusterrole", name, "--verb=*", f"--resource={kinds}")
    control.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={user}")
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"] = str(control.kubeconfig_for(user))
    namespace(fleet, "pod-security.kubernetes.io/enforce=restricted")
    mark = control.mark()
    fleet.commit(fleet.agents("a", **STATEFUL, **QUICK))
    answer = fleet.once("--timeout", "20s", code=5)
    assert (fleet.condition(answer, "a") or {})["reason"] != "AdmissionDenied"
    asked = [each for each in control.requests(user, mark) if each.verb == "list" and "/events" in each.uri]
    assert len(asked) == 1, "and not again in every pass"
    control.kubectl("delete", "clusterrole,clusterrolebinding", name)


def namespace(fleet: KubeFleet, *labels: str) -> None:
    """The namespace of the tenant, before any agent is there."""
    fleet.cluster.kubectl("create", "namespace", fleet.tenant)
    fleet.cluster.kubectl("label", "namespace", fleet.tenant, f"gitops-agent.dev/tenant={fleet.tenant}", *labels)


def reason(fleet: KubeFleet, name: str) -> str:
    """Why an agent is, or is not, Ready now."""
    return str((fleet.condition(fleet.status(), name) or {}).get("reason"))


def test_a_key_that_its_secret_does_not_have(fleet: KubeFleet) -> None:
    kept = [{"name": "TOKEN", "secret": "kept-by-others", "key": "token"}]
    fleet.commit(fleet.agents("a", kubernetes={"secretEnv": kept}, **QUICK))
    fleet.once()
    (pod,) = names(fleet)
    said = f"couldn't find key token in Secret {fleet.tenant}/kept-by-others"
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": said}}
    container = {
        "name": "agent",
        "image": IMAGE,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": waiting,
    }
    unready = [{"type": each, "status": "False"} for each in ("Ready", "ContainersReady")]
    status = {"status": {"phase": "Pending", "conditions": unready, "containerStatuses": [container]}}
    # A kubelet would say so; the simulated one starts everything.
    fleet.kubectl("patch", "pod", pod, "--subresource=status", "-p", json.dumps(status))
    until(lambda: (fleet.object("deployment", "a") or {})["status"].get("unavailableReplicas"), "it is noticed")
    answer = fleet.once("--timeout", "12s", code=5)
    assert (fleet.condition(answer, "a") or {})["reason"] == "ContainerConfigError"
    assert said in " ".join(fleet.call("explain", "a").out.split())


def test_a_stale_heartbeat_restarts_the_one_pod_that_hangs(fleet: KubeFleet) -> None:
    head = fleet.commit(fleet.agents("a", runtime={"replicas": 2}, heartbeat={"staleAfter": "15s"}))
    with fleet.running():
        fleet.await_phase(head, "Converged")
        first, other = names(fleet)
        heartbeat(fleet, first)

        def replaced() -> bool:
            heartbeat(fleet, other)  # it works on, the first one hangs
            return first not in names(fleet)

        until(replaced, "the pod that hangs is replaced")
        assert other in names(fleet)
        assert fleet.image("a") == IMAGE
        until(lambda: "HeartbeatStale" in fleet.kubectl("describe", "deployment", "a"), "an event says why")


def names(fleet: KubeFleet) -> list[str]:
    living = (each["metadata"] for each in fleet.objects("pod"))
    return sorted(each["name"] for each in living if "deletionTimestamp" not in each)


def heartbeat(fleet: KubeFleet, pod: str) -> None:
    """What an agent writes on its own pod."""
    text = json.dumps({"at": time.time(), "pending": []})
    fleet.kubectl("annotate", "--overwrite", "pod", pod, f"gitops-agent.dev/heartbeat={text}")
