"""The control plane comes up, pods behave as their images say, requests are counted, and nothing is left over."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.servers.build import version
from tests.servers.cluster import LOG_LINES, PREVIOUS_LINES, Cluster
from tests.servers.processes import ProcessGroup, StartFailed
from tests.support.fleet import alive, until


@pytest.fixture
def deploy(control: Cluster, unique: str) -> Callable[..., None]:
    """Create a Deployment in a namespace of the test's name."""
    control.kubectl("create", "namespace", unique)

    def create(image: str, *options: str) -> None:
        name = image.partition(":")[0]
        control.kubectl("-n", unique, "create", "deployment", name, f"--image=registry.example/{image}", *options)

    return create


def pods(control: Cluster, namespace: str) -> list[dict[str, Any]]:
    return control.get("pods", namespace=namespace)["items"]


def container(control: Cluster, namespace: str) -> dict[str, Any]:
    """Return the status of the first container there is, or nothing while there is none."""
    return next(
        (one for pod in pods(control, namespace) for one in pod["status"].get("containerStatuses", [])), {}
    )


def waiting(control: Cluster, namespace: str) -> str | None:
    return container(control, namespace).get("state", {}).get("waiting", {}).get("reason")


def condition(pod: dict[str, Any], kind: str) -> dict[str, str]:
    return next((one for one in pod["status"].get("conditions", []) if one["type"] == kind), {})


def test_it_is_the_version_we_built(control: Cluster) -> None:
    assert f"Server Version: {version()}" in control.kubectl("version")


def test_a_deployment_rolls_out(control: Cluster, deploy, unique: str) -> None:
    deploy("support:1", "--replicas=3")
    control.kubectl("-n", unique, "rollout", "status", "deployment/support", "--timeout=30s")
    assert {condition(pod, "Ready")["status"] for pod in pods(control, unique)} == {"True"}
    control.kubectl("-n", unique, "delete", "deployment", "support")
    until(lambda: not pods(control, unique), "pods are gone")


def test_a_container_that_is_never_ready_runs(control: Cluster, deploy, unique: str) -> None:
    deploy("never-ready:1")
    until(lambda: "running" in container(control, unique).get("state", {}), "it runs")
    (pod,) = pods(control, unique)
    assert condition(pod, "Ready")["status"] == "False"
    assert control.get("deployment", "never-ready", namespace=unique)["status"].get("readyReplicas", 0) == 0


@pytest.mark.parametrize(
    ("image", "code", "reason"), [("crashes", 1, "Error"), ("out-of-memory", 137, "OOMKilled")]
)
def test_a_container_crashes_in_a_loop(
    control: Cluster, deploy, unique, image: str, code: int, reason: str
) -> None:
    deploy(image)
    until(lambda: waiting(control, unique) == "CrashLoopBackOff", "it backs off")
    until(lambda: container(control, unique)["restartCount"] >= 2, "and restarts")
    ended = container(control, unique)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, reason)


def test_a_container_dies_after_it_was_ready(control: Cluster, deploy, unique: str) -> None:
    deploy("dies-later:1")
    until(lambda: container(control, unique).get("ready"), "it is ready")
    until(lambda: waiting(control, unique) == "CrashLoopBackOff", "it dies")


def test_an_image_cannot_be_pulled(control: Cluster, deploy, unique: str) -> None:
    deploy("no-such-image:1")
    until(lambda: waiting(control, unique) == "ErrImagePull", "the first failure")
    until(lambda: waiting(control, unique) == "ImagePullBackOff", "and the wait for another")
    assert {pod["status"]["phase"] for pod in pods(control, unique)} == {"Pending"}


def test_what_fits_on_no_node_is_left_by_the_scheduler(control: Cluster, deploy, unique: str) -> None:
    deploy("large:1", "--replicas=0")
    control.kubectl("-n", unique, "set", "resources", "deployment/large", "--requests=memory=900Ti")
    control.kubectl("-n", unique, "scale", "deployment/large", "--replicas=1")
    until(
        lambda: (
            [condition(pod, "PodScheduled").get("reason") for pod in pods(control, unique)] == ["Unschedulable"]
        )
    )


def test_annotations_delay_the_start_and_the_end(control: Cluster, deploy, unique: str) -> None:
    later = '{"stages.gitops-agent.dev/ready-after": "2s", "stages.gitops-agent.dev/gone-after": "2s"}'
    control.kubectl(
        "-n", unique, "run", "late", "--image=registry.example/late",
        f'--overrides={{"metadata": {{"annotations": {later}}}}}',
    )  # fmt: skip
    began = time.monotonic()
    until(lambda: container(control, unique).get("ready"), "it is ready")
    assert time.monotonic() - began > 1
    control.kubectl("-n", unique, "delete", "pod", "late", "--wait=false")
    assert "deletionTimestamp" in pods(control, unique)[0]["metadata"]
    until(lambda: not pods(control, unique), "it is gone")


@pytest.mark.parametrize(("image", "ends"), [("task", "Complete"), ("crashes", "Failed")])
def test_jobs_end_well_or_fail(control: Cluster, deploy, unique: str, image: str, ends: str) -> None:
    control.kubectl("-n", unique, "create", "job", image, f"--image=registry.example/{image}")
    control.kubectl("-n", unique, "patch", "job", image, "-p", '{"spec": {"backoffLimit": 0}}')
    control.kubectl("-n", unique, "wait", f"--for=condition={ends}", f"job/{image}", "--timeout=30s")


def test_logs_and_exec_work(control: Cluster, deploy, unique: str) -> None:
    deploy("support:1")
    control.kubectl("-n", unique, "rollout", "status", "deployment/support", "--timeout=30s")
    (pod,) = (one["metadata"]["name"] for one in pods(control, unique))
    assert control.kubectl("-n", unique, "logs", pod).splitlines() == list(LOG_LINES)
    assert control.kubectl("-n", unique, "logs", pod, "--previous").splitlines() == list(PREVIOUS_LINES)
    assert control.kubectl("-n", unique, "exec", pod, "--", "echo", "hello").strip() == "hello"
    assert "exit status 3" in control.kubectl("-n", unique, "exec", pod, "--", "sh", "-c", "exit 3", check=False)


def test_requests_are_counted_by_user(control: Cluster, unique: str) -> None:
    before, mark = len(control.requests("bench")), control.mark()
    control.kubectl("get", "pods", user="bench", check=False)
    control.kubectl("get", "--raw", "/version")
    (listed,) = (one for one in control.requests("bench", mark) if one.uri.startswith("/api/v1/namespaces"))
    assert (listed.verb, listed.code) == ("list", 403)
    assert len(control.requests("bench")) > before
    assert [one.uri for one in control.requests("admin", mark)] == ["/version"]
    assert control.requests("bench", control.mark()) == []


def test_users_have_the_rights_they_are_given(control: Cluster, unique: str) -> None:
    assert "Forbidden" in control.kubectl("get", "nodes", user="alice", check=False)
    control.kubectl("create", "clusterrolebinding", unique, "--clusterrole=view", "--user=alice")
    until(lambda: "Forbidden" not in control.kubectl("get", "pods", user="alice", check=False), "alice may view")
    stranger = control.kubeconfig_for("alice", token="unknown")
    assert "Unauthorized" in control.kubectl("get", "pods", f"--kubeconfig={stranger}", check=False)


def test_the_api_server_restarts_with_what_it_had(control: Cluster, deploy, unique: str) -> None:
    deploy("support:1")
    control.restart_apiserver(kill=True)
    assert control.get("deployment", "support", namespace=unique)["metadata"]["name"] == "support"
    control.kubectl("-n", unique, "scale", "deployment/support", "--replicas=2")
    control.kubectl("-n", unique, "rollout", "status", "deployment/support", "--timeout=60s")


def test_a_frozen_api_server_does_not_answer(control: Cluster) -> None:
    control.pause_apiserver()
    try:
        assert "Unable to connect" in control.kubectl("get", "nodes", "--request-timeout=1s", check=False)
    finally:
        control.resume_apiserver()
    control.kubectl("get", "nodes")


def test_make_cluster_names_its_kubeconfig_last_and_leaves_nothing(control: Cluster) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.servers"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    kubeconfig = Path(process.stdout.readline().strip())
    assert kubeconfig.exists()
    kubectl = kubeconfig.with_name("kubectl")
    assert "node-1" in subprocess.run([kubectl, "get", "nodes"], capture_output=True, text=True, check=True).stdout
    children = _descendants(process.pid)
    assert len(children) >= 5
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 0
    assert "never-ready" in said
    assert not kubeconfig.parent.exists()
    assert not [pid for pid in children if alive(pid)]


def test_servers_end_with_us_even_when_we_are_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.servers.processes import ProcessGroup\n"
        "group = ProcessGroup(Path(sys.argv[1])); group.start('sleeper', ['sleep', '1000'])\n"
        "print(group.pid('sleeper'), flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    sleeper = int(process.stdout.readline())
    assert alive(sleeper)
    process.kill()
    process.communicate()
    until(lambda: not alive(sleeper), "the server is gone")


def test_a_server_that_does_not_start_shows_its_last_words(tmp_path: Path) -> None:
    group = ProcessGroup(tmp_path)
    group.start("server", ["sh", "-c", "echo no room on this disk; exit 7"])
    with pytest.raises(StartFailed, match=r"(?s)server ended with 7.*no room on this disk"):
        group.wait("server", lambda: False)
    group.stop()


def _descendants(pid: int) -> list[int]:
    return [one.pid for one in psutil.Process(pid).children(recursive=True)]
