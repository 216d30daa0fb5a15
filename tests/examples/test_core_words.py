"""Core does not know what its drivers drive: a driver is one folder, and its words stay there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

PACKAGE = Path(__file__).parents[2] / "gitops_agent"
WORDS = re.compile(r"kubernetes|kubectl|kubeconfig|\bpods?\b|\bdeployments?\b", re.IGNORECASE)
ELSEWHERE = (
    "drivers/kubernetes/",
    "heartbeat.py",  # what agents import: it runs in their process, not in ours
    "cli/self_check.py",  # the option of `demo` that names a kubeconfig
)


def test_no_line_of_core_knows_what_a_cluster_is_made_of() -> None:
    named = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not str(path.relative_to(PACKAGE)).startswith(ELSEWHERE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if WORDS.search(line)
    ]
    assert named == []
