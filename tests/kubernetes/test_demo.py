"""``gitops-agent demo --kubernetes``: all six acts on a real cluster, and nothing of it stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.cluster import Cluster
from tests.servers.external import ExternalCluster
from tests.support.fleet import until

pytestmark = pytest.mark.servers

SECONDS = 300
ENDINGS = (
    "One is stopped because Git says so.",
    "Noticed by event, repaired: acme/support-bot runs again as pod",
    "all other pods are untouched.",
    "The fleet is still running on the last good commit.",
    "all pods of before still run.",
    "Every commit carries its own report, and the way back was Git's.",
)
"""How the six acts end, when all is well."""


def test_all_six_acts_end_well_and_no_namespace_stays(cluster: Cluster | ExternalCluster, tmp_path: Path) -> None:
    world = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "NO_COLOR": "1"}
    played = subprocess.run(
        [sys.executable, "-m", "gitops_agent", "demo", "--kubernetes", str(cluster.kubeconfig)],
        env=world,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    said = played.stdout + played.stderr
    assert played.returncode == 0, said
    marks = [line for line in played.stdout.splitlines() if line.startswith("✔ ")]
    assert len(marks) >= len(ENDINGS), said
    for mark, ending in zip(marks, ENDINGS, strict=False):
        assert ending in mark, said
    until(lambda: "gitops-agent-demo" not in cluster.kubectl("get", "namespaces", "-o", "name"), "all is gone", 60)
    assert list(tmp_path.glob("gitops-agent-demo-*/")) == [], "no folder stays"
