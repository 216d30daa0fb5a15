"""``GITOPS_AGENT_TEST_KUBECONFIG``: what needs no control over the servers runs on a cluster of the user, and what
does is left out and listed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubernetes.conftest import KUBECONFIG
from tests.servers.cluster import Cluster

ROOT = Path(__file__).parents[2]
REASON = f"needs control over the API server: run without {KUBECONFIG}"
SECONDS = 240


@pytest.fixture(scope="module")
def given(control: Cluster) -> dict[str, str]:
    """An environment that names a cluster which the tests did not start, with its ``kubectl`` on PATH."""
    path = f"{control.write_kubectl().parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, KUBECONFIG: str(control.kubeconfig), "SERVERS_REQUIRED": "1"}


def run(given: dict[str, str], *tests: str) -> dict[str, int]:
    """How many of these tests passed, failed and were left out on the cluster of the user."""
    call = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    done = subprocess.run(call, cwd=ROOT, env=given, capture_output=True, text=True, check=False, timeout=SECONDS)
    last = done.stdout.strip().splitlines()[-1]
    found = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert (REASON in done.stdout) == ("skipped" in found), "what is left out is listed, with the reason"
    return found


@pytest.mark.timeout(SECONDS + 30)
def test_the_main_job_and_the_watches_run_on_a_cluster_of_the_user(given: dict[str, str]) -> None:
    story = run(given, "tests/kubernetes/test_story.py")
    assert story == {"passed": 3}
    watches = run(given, "tests/kubernetes/test_cache.py")
    assert watches["passed"] >= 3
    assert watches["skipped"] >= 10, "those behind the proxy"


@pytest.mark.timeout(SECONDS + 30)
def test_what_needs_control_or_simulated_pods_is_left_out_aloud(given: dict[str, str]) -> None:
    simulated = ("test_health", "test_drift", "test_workloads", "test_fencing", "test_manifests")
    found = run(given, *(f"tests/kubernetes/{name}.py" for name in simulated), "tests/servers/test_faults.py")
    assert found.get("passed", 0) <= 2
    assert found["skipped"] >= 40
