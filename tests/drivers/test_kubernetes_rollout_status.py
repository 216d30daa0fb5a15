"""How workloads and pods do: each reason with its state, what counts and what does not; nothing raises."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.api import Health, HealthState, iso
from gitops_agent.drivers.kubernetes import rollout_status
from gitops_agent.drivers.kubernetes.marks import HEARTBEAT, RESTARTED_AT, SPEC, WRITING
from gitops_agent.drivers.kubernetes.pod_status import MASK, Warned, problem_of
from gitops_agent.drivers.kubernetes.rollout_status import (
    REASONS,
    creation_problem,
    instances,
    pod_problem,
    service_health,
    workload_health,
)

pytestmark = pytest.mark.unit

NOW = 1_767_268_980.0
HEALTHY, STARTING, UNHEALTHY = HealthState.HEALTHY, HealthState.STARTING, HealthState.UNHEALTHY
OLD, NEW = "6c9", "7fd"
DAY = 86_400.0


def ago(seconds: float) -> str:
    return iso(NOW - seconds)


def pod(name: str = "bot-1", state: Any = None, *, age: float = 5, revision: str = NEW, **status: Any) -> Any:
    """A pod with one container in a state; without one it runs and is Ready."""
    ready = state is None
    container = {
        "name": "agent",
        "image": "bot:2",
        "ready": ready,
        "restartCount": 0,
        "state": state or {"running": {"startedAt": ago(age)}},
    }
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": ago(age),
            "labels": {"pod-template-hash": revision, "controller-revision-hash": revision},
        },
        "spec": {"containers": [{"name": "agent", "image": "bot:2", "resources": {"limits": {"memory": "64Mi"}}}]},
        "status": {
            "phase": "Running",
            "startTime": ago(age),
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": ago(age)}],
            "containerStatuses": [container],
            **status,
        },
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def crashing(name: str = "bot-1", **more: Any) -> Any:
    made = pod(name, waiting("CrashLoopBackOff"), **more)
    status = made["status"]["containerStatuses"][0]
    status["restartCount"] = 5
    status["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no such model\n"}}
    return made


def unschedulable(age: float = 5) -> Any:
    said = "0/2 nodes are available: 2 Insufficient cpu."
    never = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    return pod(age=age, phase="Pending", conditions=[never], containerStatuses=[])


def unready(age: float) -> Any:
    made = pod(state={"running": {"startedAt": ago(age)}}, age=age)
    made["spec"]["containers"][0]["readinessProbe"] = {"periodSeconds": 5, "failureThreshold": 2}
    return made


def deployment(updated: int = 2, available: int = 2, total: int = 2, *conditions: Any, **spec: Any) -> Any:
    return {
        "kind": "Deployment",
        "metadata": {"generation": 3},
        "spec": {"replicas": 2, "progressDeadlineSeconds": 120, **spec},
        "status": {
            "observedGeneration": 3,
            "replicas": total,
            "updatedReplicas": updated,
            "availableReplicas": available,
            "conditions": [
                {"type": "Progressing", "status": "True", "message": f'ReplicaSet "bot-{NEW}" is progressing.'},
                *conditions,
            ],
        },
    }


def behind(*conditions: Any, **spec: Any) -> Any:
    return deployment(1, 1, 2, *conditions, **spec)


def judged(live: Any, *pods: Any) -> tuple[HealthState, str]:
    health = workload_health(live, pods, NOW)
    assert health.reason in REASONS or health.state in (HEALTHY, HealthState.STOPPED)
    return health.state, health.reason


# -- one pod


def test_a_pod_that_runs_has_no_problem() -> None:
    assert pod_problem(pod(), NOW) is None
    assert pod_problem({}, NOW) is None


def test_a_pod_that_is_being_deleted_has_no_problem() -> None:
    ending = crashing()
    ending["metadata"]["deletionTimestamp"] = ago(1)
    assert pod_problem(ending, NOW) is None


@pytest.mark.parametrize(
    ("made", "code", "sentence"),
    [
        (
            pod(state=waiting("ImagePullBackOff", 'Back-off pulling image "bot:2": not found')),
            "ImagePullFailed",
            "pod bot-1 cannot get the image bot:2 (correct the image or its pull secret): "
            'Back-off pulling image "bot:2": not found',
        ),
        (
            crashing(),
            "CrashLoop",
            "pod bot-1 keeps exiting (code 1), 5 restarts. Last output: no such model",
        ),
        (
            pod(state=waiting("CreateContainerConfigError", 'secret "bot" not found')),
            "ContainerConfigError",
            'pod bot-1 cannot be started: secret "bot" not found',
        ),
        (
            unschedulable(),
            "Unschedulable",
            "no node for pod bot-1: 0/2 nodes are available: 2 Insufficient cpu.",
        ),
        (unready(60), "ProbeFailing", "pod bot-1 runs, but its readiness probe fails"),
        (
            pod(state=waiting("ContainerCreating"), age=300, phase="Pending"),
            "PodPending",
            "pod bot-1 is not started after 300 s: ContainerCreating. See: kubectl describe pod bot-1",
        ),
        (
            pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
            "Evicted",
            "pod bot-1 was evicted from its node: The node was low on resource: memory.",
        ),
        (
            pod(state={"terminated": {"exitCode": 2}}),
            "Exited",
            "pod bot-1 exited (code 2) and is started again",
        ),
        (
            pod(conditions=[{"type": "Ready", "status": "False"}]),
            "NodeLost",
            "the node of pod bot-1 does not answer",
        ),
    ],
)
def test_a_problem_in_a_sentence(made: Any, code: str, sentence: str) -> None:
    assert pod_problem(made, NOW) == (code, sentence)


def test_out_of_memory_names_the_limit() -> None:
    made = crashing()
    made["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] = "OOMKilled"
    assert pod_problem(made, NOW) == (
        "OOMKilled",
        "pod bot-1 needs more than its limit of 64Mi memory, 5 restarts",
    )


def test_an_init_container_that_fails_is_named() -> None:
    made = pod(state=waiting("PodInitializing"), phase="Pending")
    init = crashing()["status"]["containerStatuses"][0] | {"name": "fetch"}
    made["status"]["initContainerStatuses"] = [init]
    found = pod_problem(made, NOW)
    assert found is not None
    assert found[0] == "InitFailed"
    assert found[1].startswith("container fetch of pod bot-1 keeps exiting (code 1)")
    made["spec"]["initContainers"] = [
        {"name": "fetch", "restartPolicy": "Always"}
    ]  # one that runs beside the agent
    found = pod_problem(made, NOW)
    assert found is not None
    assert found[0] == "CrashLoop"


def test_a_loop_is_a_loop_also_while_it_runs_for_a_moment() -> None:
    made = pod(age=20)
    status = made["status"]["containerStatuses"][0]
    status["restartCount"] = 4
    status["lastState"] = {"terminated": {"exitCode": 1, "startedAt": ago(90), "finishedAt": ago(80)}}
    found = pod_problem(made, NOW)
    assert found is not None
    assert found[0] == "CrashLoop"
    assert pod_problem(made, NOW + 60) is None
    status["lastState"]["terminated"]["startedAt"] = ago(9000)  # it ran for hours: one exit is no loop
    assert pod_problem(made, NOW) is None


@pytest.mark.parametrize(
    ("reason", "lasted", "code", "certain"),
    [
        ("Error", 5 * DAY, "Exited", False),
        ("Error", 20, "CrashLoop", True),
        ("OOMKilled", 5 * DAY, "OOMKilled", False),
        ("OOMKilled", 20, "OOMKilled", True),
    ],
)
def test_an_exit_after_days_is_no_loop_though_it_is_not_the_first(
    reason: str, lasted: float, code: str, certain: bool
) -> None:
    end = {"exitCode": 1, "reason": reason, "startedAt": ago(lasted + 1), "finishedAt": ago(1)}
    made = pod(state={"terminated": end}, age=36 * DAY)
    status = made["status"]["containerStatuses"][0]
    status["restartCount"] = 1  # the first run lasted for a month
    found = problem_of(made, NOW)
    assert found is not None
    assert (found.code, found.certain) == (code, certain)
    status["state"], status["lastState"] = waiting("CrashLoopBackOff"), {"terminated": end}
    found = problem_of(made, NOW)
    assert found is not None
    assert found.certain, "the cluster itself calls it a loop"


def test_a_probe_has_its_time() -> None:
    assert pod_problem(unready(8), NOW) is None
    assert pod_problem(unready(12), NOW) is not None


def test_secrets_are_masked_before_the_sentence_is_cut() -> None:
    made = crashing()
    made["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = "x" * 200 + "sesame" * 40
    found = pod_problem(made, NOW, lambda text: text.replace("sesame" * 40, "***"))
    assert found is not None
    assert found[1].endswith("***")
    made["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = "\x1b[31m" + "y" * 9000
    found = pod_problem(made, NOW)
    assert found is not None
    assert len(found[1]) <= 300
    assert found[1].isprintable()


# -- a Deployment


def test_done_is_healthy_and_behind_is_starting_with_numbers() -> None:
    assert judged(deployment(), pod("a"), pod("b")) == (HEALTHY, "Healthy")
    health = workload_health(deployment(1, 1, 3), [pod()], NOW)
    assert (health.state, health.reason) == (STARTING, "Progressing")
    assert health.message == "1 of 2 replicas updated, 1 of 2 available, 2 still to end"
    unseen = deployment()
    unseen["metadata"]["generation"] = 4
    assert judged(unseen, pod()) == (STARTING, "Progressing")
    assert judged({"kind": "Deployment", "metadata": {"generation": 1}, "spec": {}}) == (STARTING, "Progressing")


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (crashing(), "CrashLoop"),
        (pod(state=waiting("ErrImagePull", "manifest unknown")), "ImagePullFailed"),
        (pod(state=waiting("InvalidImageName")), "ImagePullFailed"),
        (pod(state=waiting("CreateContainerConfigError")), "ContainerConfigError"),
    ],
)
def test_what_waiting_does_not_cure_fails_at_once(made: Any, code: str) -> None:
    assert judged(behind(), made) == (UNHEALTHY, code)
    assert workload_health(behind(), [made], NOW).final


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (unschedulable, "Unschedulable"),
        (unready, "ProbeFailing"),
        (lambda age: pod(state=waiting("ContainerCreating"), age=age, phase="Pending"), "PodPending"),
        (lambda age: pod(state=waiting("ErrImagePull", "dial tcp: i/o timeout"), age=age), "ImagePullFailed"),
    ],
)
def test_a_slow_start_fails_when_its_time_is_up(made: Any, code: str) -> None:
    assert judged(behind(), made(60)) == (STARTING, code)
    assert judged(behind(), made(121)) == (UNHEALTHY, code)
    assert not workload_health(behind(), [made(121)], NOW).final, "it may still come"
    timed_out = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    live = behind()
    live["status"]["conditions"][0] |= timed_out
    assert judged(live, made(60)) == (UNHEALTHY, code)
    assert judged(live, pod()) == (UNHEALTHY, "ProgressDeadlineExceeded")


def test_old_pods_neither_hide_a_failure_nor_make_one() -> None:
    old = [pod("old-1", revision=OLD, age=900), pod("old-2", revision=OLD, age=900)]
    assert judged(behind(), *old, crashing("new-1")) == (UNHEALTHY, "CrashLoop")
    broken = [crashing("old-1", revision=OLD, age=900)]
    assert judged(behind(), *broken, pod("new-1")) == (STARTING, "Progressing")
    assert judged(behind(), *broken) == (STARTING, "Progressing")
    unnamed = behind()
    unnamed["status"]["conditions"] = []
    assert judged(unnamed, *old, crashing("new-1")) == (UNHEALTHY, "CrashLoop")


def test_a_pod_that_was_evicted_counts_until_another_takes_its_place() -> None:
    evicted = pod("gone", phase="Failed", reason="Evicted")
    assert judged(behind(), evicted) == (STARTING, "Evicted")
    assert judged(behind(), evicted, pod("next")) == (STARTING, "Progressing")
    assert judged(deployment(), evicted, pod("a"), pod("b")) == (HEALTHY, "Healthy")


QUOTA = 'pods "bot-7fd-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2'


def test_pods_that_cannot_be_created() -> None:
    def refused(message: str, **spec: Any) -> Any:
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
        return deployment(0, 0, 0, failure, **spec)

    assert judged(refused(QUOTA)) == (UNHEALTHY, "QuotaExceeded")
    security = 'pods "bot" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
    assert judged(refused(security)) == (UNHEALTHY, "AdmissionDenied")
    denied = 'admission webhook "policy.example.com" denied the request: no latest'
    assert judged(refused(denied)) == (UNHEALTHY, "AdmissionDenied")
    silent = 'Internal error occurred: failed calling webhook "policy.example.com": context deadline exceeded'
    assert judged(refused(silent)) == (STARTING, "PodsNotCreated")
    assert creation_problem(QUOTA).sentence == f"the quota has no room for its pods: {QUOTA}"


# -- what only events say


def warned(message: str, reason: str = "FailedCreate", age: float = 1) -> Warned:
    return Warned(reason, message, NOW - age, NOW - age)


def bare_set(replicas: int = 2, *, age: float = 60) -> Any:
    """A StatefulSet that has no pod."""
    live = stateful_set(0, 0, current=NEW, replicas=replicas)
    live["metadata"] |= {"uid": "set", "creationTimestamp": ago(age)}
    return live


def told(live: Any, pods: list[Any], *warnings: Warned) -> tuple[HealthState, str, str]:
    """The state, the reason and what is asked about; all the same whatever was told, but for the reason."""
    before, after = rollout_status.judged(live, pods, NOW), rollout_status.judged(live, pods, NOW, MASK, warnings)
    assert before.about == after.about
    return after.health.state, after.health.reason, after.about


def test_a_stateful_set_without_pods_is_explained_by_its_events() -> None:
    security = 'create Pod a-0 failed error: pods "a-0" is forbidden: violates PodSecurity "restricted:latest": x'
    assert told(bare_set(), []) == (STARTING, "Progressing", "set")
    assert told(bare_set(), [], warned(QUOTA)) == (UNHEALTHY, "QuotaExceeded", "set")
    assert told(bare_set(), [], warned(security)) == (UNHEALTHY, "AdmissionDenied", "set")
    assert told(bare_set(), [], warned("update failed", "Failed")) == (STARTING, "Progressing", "set"), "our own"
    newest = (warned(QUOTA, age=9), warned(security, age=2))
    assert told(bare_set(), [], *newest)[1] == told(bare_set(), [], *reversed(newest))[1] == "AdmissionDenied"
    lasting = "etcdserver: request timed out"
    assert told(bare_set(), [], warned(lasting)) == (STARTING, "PodsNotCreated", "set")
    old = bare_set(age=900)
    assert told(old, [], Warned("FailedCreate", lasting, NOW - 700, NOW)) == (UNHEALTHY, "PodsNotCreated", "set")


def test_what_was_refused_before_the_last_progress_says_nothing() -> None:
    before = warned(QUOTA, age=30)
    assert told(bare_set(age=20), [], before) == (STARTING, "Progressing", "set")
    edited = bare_set()
    edited["metadata"]["managedFields"] = [{"manager": "gitops-agent", "time": ago(20)}]
    assert told(edited, [], before) == (STARTING, "Progressing", "set")
    edited["metadata"]["managedFields"][0]["subresource"] = "status"
    assert told(edited, [], before)[1] == "QuotaExceeded"
    assert told(bare_set(), [pod("a-0", age=20)], before) == (STARTING, "Progressing", "set")
    assert told(bare_set(), [pod("a-0", age=40)], before)[1] == "QuotaExceeded"


def test_nothing_is_asked_while_a_pod_is_on_its_way_or_all_is_well() -> None:
    starting = pod("a-0", waiting("ContainerCreating"), phase="Pending")
    assert told(bare_set(), [starting], warned(QUOTA)) == (STARTING, "Progressing", "")
    well = stateful_set(2, 2, current=NEW)
    well["metadata"]["uid"] = "set"
    assert told(well, [pod("a-0"), pod("a-1")], warned(QUOTA)) == (HEALTHY, "Healthy", "")


def test_a_deployment_that_gets_no_replica_set() -> None:
    live = deployment(0, 0, 0)
    live["metadata"]["uid"] = "deploy"
    said = warned(f"Failed to create new replica set: {QUOTA}", "ReplicaSetCreateError")
    assert told(live, []) == (STARTING, "Progressing", "deploy")
    assert told(live, [], said) == (UNHEALTHY, "QuotaExceeded", "deploy")


def test_a_run_without_pods_is_explained_by_the_events_of_its_job() -> None:
    live: Any = {"kind": "CronJob", "metadata": {}, "spec": {}, "status": {"active": [{"uid": "job-2"}]}}
    earlier = pod("run-1", phase="Succeeded")
    earlier["metadata"]["ownerReferences"] = [{"uid": "job-1"}]
    assert told(live, [earlier]) == (HEALTHY, "Healthy", "job-2")
    assert told(live, [earlier], warned(QUOTA)) == (UNHEALTHY, "QuotaExceeded", "job-2")
    now = pod("run-2")
    now["metadata"]["ownerReferences"] = [{"uid": "job-2"}]
    assert told(live, [earlier, now], warned(QUOTA)) == (HEALTHY, "Healthy", "")


def test_a_failing_probe_and_a_pod_that_does_not_start_say_why() -> None:
    def said(made: Any, *warnings: Warned) -> str:
        made["metadata"]["uid"] = "pod"
        verdict = rollout_status.judged(
            behind(), [made], NOW, lambda text: text.replace("sesame", "***"), warnings
        )
        assert verdict.about == "pod"
        return verdict.health.message.partition(" (")[0]

    http = warned("Readiness probe failed: HTTP probe failed with statuscode: 500 sesame", "Unhealthy", 2)
    live = warned("Liveness probe failed: dead", "Unhealthy", 1)
    plain = "pod bot-1 runs, but its readiness probe fails"
    assert said(unready(60)) == said(unready(60), live) == plain
    assert said(unready(60), live, http) == f"{plain}: HTTP probe failed with statuscode: 500 ***"
    mount = warned('MountVolume.SetUp failed for volume "x" : secret "y" not found', "FailedMount")
    room = warned("0/1 nodes are available", "FailedScheduling", 0)
    pending = pod(state=waiting("ContainerCreating"), age=300, phase="Pending")
    assert said(pending, mount, room).endswith(f". Last warning: {mount.message}")


def test_a_full_quota_is_no_failure_while_old_replicas_make_room() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": QUOTA}
    for allowed, expected in ((0, UNHEALTHY), (1, STARTING), ("50%", STARTING), ("25%", UNHEALTHY)):
        live = deployment(0, 2, 2, failure, strategy={"rollingUpdate": {"maxUnavailable": allowed}})
        assert judged(live) == (expected, "QuotaExceeded")


def test_scaled_to_zero_is_stopped_when_its_pods_are_gone() -> None:
    live = deployment(0, 0, 0, replicas=0)
    assert judged(live) == (HealthState.STOPPED, "Stopped")
    ending = pod()
    ending["metadata"]["deletionTimestamp"] = ago(1)
    health = workload_health(live, [ending], NOW)
    assert (health.state, health.reason, health.message) == (STARTING, "Stopping", "1 pod is still ending")


def test_a_paused_rollout_is_said() -> None:
    assert judged(behind(paused=True), pod()) == (STARTING, "RolloutPaused")
    assert judged(deployment(paused=True), pod()) == (HEALTHY, "Healthy")


def test_the_copies_that_are_not_ready_are_named() -> None:
    health = workload_health(behind(), [pod("a"), crashing("b")], NOW)
    assert health.instances == ("b",)


# -- the others


def stateful_set(updated: int, ready: int, *, current: str = OLD, **spec: Any) -> Any:
    status = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": updated, "readyReplicas": ready}
    status |= {"availableReplicas": ready, "updateRevision": NEW, "currentRevision": current}
    return {
        "kind": "StatefulSet",
        "metadata": {"generation": 1},
        "spec": {"replicas": 2, **spec},
        "status": status,
    }


def test_a_stateful_set() -> None:
    assert judged(stateful_set(2, 2, current=NEW), pod("bot-0"), pod("bot-1")) == (HEALTHY, "Healthy")
    assert judged(stateful_set(1, 2), pod("bot-0", revision=OLD), pod("bot-1")) == (STARTING, "Progressing")
    assert judged(stateful_set(1, 1), pod("bot-0", revision=OLD), crashing("bot-1")) == (UNHEALTHY, "CrashLoop")
    partition = {"updateStrategy": {"rollingUpdate": {"partition": 1}}}
    assert judged(stateful_set(1, 2, **partition), pod("bot-0", revision=OLD), pod("bot-1")) == (
        HEALTHY,
        "Healthy",
    )
    assert judged(stateful_set(0, 2, updateStrategy={"type": "OnDelete"})) == (HEALTHY, "Healthy")


def test_a_stateful_set_that_waits_for_a_broken_old_pod_says_the_way_out() -> None:
    broken = crashing("bot-1", revision=OLD)
    health = workload_health(stateful_set(0, 1), [pod("bot-0", revision=OLD), broken], NOW)
    assert (health.state, health.reason) == (UNHEALTHY, "UpdateBlocked")
    assert "kubectl delete pod bot-1" in health.message
    parallel = stateful_set(0, 1, podManagementPolicy="Parallel")
    assert judged(parallel, pod("bot-0", revision=OLD), broken) == (STARTING, "Progressing")


def test_a_pod_of_what_was_reverted_is_told_to_keep_a_stateful_set_from_going_on() -> None:
    """After a revert the update revision is the current one again, with that pod still there."""
    reverted = stateful_set(1, 1, current=NEW)
    health = workload_health(reverted, [pod("bot-0"), crashing("bot-1", revision=OLD)], NOW)
    assert (health.state, health.reason) == (UNHEALTHY, "UpdateBlocked")
    assert "kubectl delete pod bot-1" in health.message


def test_a_cron_job() -> None:
    live: Any = {"kind": "CronJob", "metadata": {}, "spec": {"suspend": False}, "status": {}}
    assert judged(live) == (HEALTHY, "Healthy")
    assert judged(live, pod()) == (HEALTHY, "Healthy")
    assert judged(live, pod(phase="Succeeded")) == (HEALTHY, "Healthy")
    assert judged(live, pod(state=waiting("ErrImagePull"))) == (UNHEALTHY, "ImagePullFailed")
    failed = pod(state={"terminated": {"exitCode": 3}}, age=60, phase="Failed")
    health = workload_health(live, [failed], NOW)
    assert (health.state, health.reason) == (UNHEALTHY, "RunFailed")
    assert health.message == "the last run failed: pod bot-1 failed (code 3)"
    assert judged(live, failed, pod("bot-2", age=1)) == (HEALTHY, "Healthy")
    live["status"] = {"lastSuccessfulTime": ago(10)}
    assert judged(live, failed) == (HEALTHY, "Healthy")
    live["status"] = {}
    live["spec"]["jobTemplate"] = {"spec": {"template": {"metadata": {"annotations": {SPEC: "mended"}}}}}
    assert judged(live, failed) == (HEALTHY, "Healthy"), "that run was of an earlier version"
    live["spec"]["suspend"] = True
    assert judged(live) == (HealthState.STOPPED, "Stopped")
    assert judged(live, pod()) == (STARTING, "Stopping")


def test_a_run_that_is_tried_again_has_not_failed_yet() -> None:
    failed = pod(state={"terminated": {"exitCode": 3}}, age=60, phase="Failed")
    failed["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": "job-1"}]
    live: Any = {"kind": "CronJob", "metadata": {}, "spec": {}, "status": {"active": [{"uid": "job-1"}]}}
    health = workload_health(live, [failed], NOW)
    assert (health.state, health.reason) == (STARTING, "Exited")
    assert health.message == "the run is tried again: pod bot-1 failed (code 3)"
    live["status"] = {"active": [{"uid": "job-2"}]}  # the next one, and this one was given up
    assert judged(live, failed) == (UNHEALTHY, "RunFailed")


def test_a_service_waits_for_its_load_balancer() -> None:
    live: Any = {"kind": "Service", "spec": {"type": "LoadBalancer"}}
    assert judged(live) == (STARTING, "LoadBalancerPending")
    live["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    assert judged(live) == (HEALTHY, "Healthy")
    assert service_health({"spec": {"type": "ClusterIP"}}).state is HEALTHY
    assert judged({"kind": "ConfigMap"}) == (HEALTHY, "Healthy")


# -- the copies of an agent


def beating(text: str, **more: Any) -> Any:
    made = pod(**more)
    made["metadata"]["annotations"] = {HEARTBEAT: text}
    return made


def test_the_copies_with_their_heartbeats() -> None:
    text = json.dumps({"at": NOW - 2, "turn": 4, "pending": ["crm.lookup"]})
    ending = pod("ending")
    ending["metadata"]["deletionTimestamp"] = ago(1)
    found = instances([beating(text, name="b", age=30), crashing("a"), ending, pod("c", phase="Succeeded")], NOW)
    assert [(each.id, each.ready, each.started_at) for each in found] == [
        ("a", False, None),
        ("b", True, NOW - 30),
    ]
    beat = found[1].heartbeat
    assert beat is not None
    assert (beat.at, beat.turn, beat.pending) == (NOW - 2, 4, ("crm.lookup",))


def test_a_copy_of_an_earlier_template_is_behind() -> None:
    """By our own marks: others, such as the injector of a service mesh, write what they like into pods."""
    made = pod()
    made["metadata"]["annotations"] = {SPEC: "1", "prometheus.io/port": "15020", "injected": "x"}

    def is_behind(**marks: str) -> bool:
        notes = {SPEC: "1", "prometheus.io/port": "8080", **marks}
        (copy,) = instances([made], NOW, template={"metadata": {"annotations": notes}})
        return copy.behind

    assert not is_behind()
    assert is_behind(**{SPEC: "2"})
    assert is_behind(**{WRITING: "2"})
    assert is_behind(**{RESTARTED_AT: "now"})


def test_a_heartbeat_from_the_future_is_dated_by_the_server() -> None:
    made = beating(json.dumps({"at": NOW + 1e6}), age=30)
    assert instances([made], NOW)[0].heartbeat.at == NOW - 30  # type: ignore[union-attr]
    fields = {"f:metadata": {"f:annotations": {f"f:{HEARTBEAT}": {}}}}
    made["metadata"]["managedFields"] = [{"time": ago(9), "fieldsV1": fields}, {"time": ago(1), "fieldsV1": {}}]
    assert instances([made], NOW)[0].heartbeat.at == NOW - 9  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"at": true}', '{"at": "now"}', '{"at": 1e999}', "x" * 70_000, "\ud800"]
)
def test_a_text_that_is_no_heartbeat(text: str) -> None:
    assert instances([beating(text)], NOW)[0].heartbeat is None


# -- laws

SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "True", "False", "Failed", "x", "1%"])
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "name"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in an object where something may be odd."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, each in below for path in paths(each, (*at, key)))][0 if at else 1 :]


@st.composite
def spoiled(draw: st.DrawFn, whole: Any) -> Any:
    """An object in which some values were replaced by others."""
    made = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(paths(made)))
        place = made
        for step in above:
            place = place[step]
        place[last] = draw(ANYTHING)
    return made


PODS = st.sampled_from([pod(), crashing(), unschedulable(), unready(60), pod(phase="Failed", reason="Evicted")])
LIVE = st.sampled_from(
    [deployment(), behind(), stateful_set(1, 1), {"kind": "CronJob", "metadata": {}, "spec": {}}]
)


@given(live=LIVE.flatmap(spoiled), pods=st.lists(PODS.flatmap(spoiled), max_size=3))
def test_no_object_is_too_odd(live: Any, pods: list[Any]) -> None:
    health = workload_health(live, pods, NOW)
    assert isinstance(health, Health)
    for each in pods:
        pod_problem(each, NOW)
    instances(pods, NOW)


@given(live=LIVE, pods=st.lists(PODS, max_size=3), later=st.integers(0, 100_000))
def test_a_certain_failure_does_not_heal_by_waiting(live: Any, pods: list[Any], later: int) -> None:
    if workload_health(live, pods, NOW).state is UNHEALTHY:
        assert workload_health(live, pods, NOW + later).state is UNHEALTHY


@given(text=st.text() | ANYTHING.map(json.dumps) | st.fixed_dictionaries({"at": ANYTHING}).map(json.dumps))
def test_no_heartbeat_is_too_odd(text: str) -> None:
    instances([beating(text)], NOW)
