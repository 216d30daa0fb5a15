"""The example fleet as plain values, and one of its agents as a real process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from ruamel.yaml import YAML

from gitops_agent.model.document import API_GROUP

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "desired-repo"
STARTER = ROOT / "gitops_agent" / "cli" / "starter"
DEADLINE = 30.0


def documents(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Every document of ours below a folder, with the file it is in."""
    yaml = YAML(typ="safe", pure=True)
    return [
        (path, document)
        for path in sorted(folder.rglob("*.yaml"))
        for document in yaml.load_all(path.read_text(encoding="utf-8"))
        if document["apiVersion"].startswith(API_GROUP)
    ]


def agents(folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """The Agent documents by key."""
    return {
        f"{document['metadata']['tenant']}/{document['metadata']['name']}": (path, document)
        for path, document in documents(folder)
        if document["kind"] == "Agent"
    }


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until something is true; an assertion that names it when the deadline passes."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE:.0f} s: {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> Any:
    """The JSON answer of an agent, or None while nobody answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return json.load(reply)
    except OSError:
        return None


class Started:
    """One agent of the fleet, started as the process driver would start it."""

    def __init__(self, folder: Path, path: Path, document: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.spec = document["spec"]
        self.bundle, self.heartbeat, self.log = folder / "bundle.json", folder / "heartbeat", folder / "log"
        self.tell(self.spec.get("instructions") or self._prompt(path))
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.spec["runtime"]["command"],
                cwd=folder,
                env=self._environment(env),
                stdout=output,
                stderr=output,
            )

    def tell(self, instructions: str) -> None:
        """Put other instructions into the bundle, as one step."""
        brain = {"instructions": instructions, "model": self.spec.get("model")}
        fresh = self.bundle.with_suffix(".new")
        fresh.write_text(json.dumps(brain), encoding="utf-8")
        fresh.replace(self.bundle)

    def said(self, text: str) -> bool:
        """Whether a text is in the log."""
        return text in self.log.read_text(encoding="utf-8")

    def beat(self) -> bytes:
        """The heartbeat as it is now."""
        return self.heartbeat.read_bytes() if self.heartbeat.exists() else b""

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)

    def _prompt(self, path: Path) -> str:
        prompt = path.parent / str(self.spec["instructionsFrom"]["file"])
        return prompt.read_text(encoding="utf-8")

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        declared = {entry["name"]: entry["value"] for entry in self.spec["runtime"].get("env", ())}
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.bundle.parent),
            **declared,
            **env,
            "MANAGED_AGENT_OWNER": "test/tenant/name",
            "MANAGED_AGENT_REPLICA": "0",
            "MANAGED_AGENT_CONFIG": str(self.bundle),
            "MANAGED_AGENT_HEARTBEAT": str(self.heartbeat),
        }


@contextmanager
def started(key: str, folder: Path, **env: str) -> Iterator[Started]:
    """One agent of the example fleet, ended at the latest when the block ends."""
    agent = Started(folder, *agents(EXAMPLE)[key], env)
    try:
        yield agent
    finally:
        agent.process.kill()
        agent.process.wait(DEADLINE)
