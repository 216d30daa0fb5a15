"""The demo looks at the stage before it begins."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from gitops_agent_demo.obstacles import obstacles
from tests.support.fleet import environment_of, signal_pid, until


@pytest.fixture
def example(tmp_path: Path) -> Path:
    folder = tmp_path / "agents" / f"t{os.getpid()}"
    folder.mkdir(parents=True)
    (folder / "bot.yaml").write_text("kind: Agent\n")
    return tmp_path


def test_a_free_stage(example: Path) -> None:
    assert obstacles(example) == []


def test_a_taken_port_is_named(example: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        document = next(example.rglob("bot.yaml"))
        document.write_text(f"readiness: {{http: {{port: {port}}}}}\n")
        (said,) = obstacles(example)
    assert f"port {port}" in said


def test_an_agent_of_another_instance_is_named_with_a_way_out(example: Path) -> None:
    agent = f"t{os.getpid()}/bot"
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, "MANAGED_AGENT_OWNER": f"prod/{agent}"})
    try:
        until(lambda: "MANAGED_AGENT_OWNER" in environment_of(process.pid), "the mark")
        (said,) = obstacles(example)
    finally:
        signal_pid(process.pid)
        process.wait()
    assert said.startswith(f"{agent} runs already, under the instance prod (pid {process.pid})")
    assert "lifecycle: Stopped" in said
