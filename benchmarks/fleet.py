"""Fleets to measure with: N realistic specs of 40 lines in a bare repository, written by ``git fast-import``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TENANTS = 20

_SPEC = """\
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata:
  name: {name}
  tenant: {tenant}
  labels: {{tier: {tier}, team: support}}
spec:
  description: Answers customers of {tenant}, desk {number}
  lifecycle: {lifecycle}
  runtime:
    driver: process
    command: ["python", "-m", "support_bot", "--desk", "{number}"]
    replicas: 1
    env:
      - name: LOG_LEVEL
        value: info
      - name: DESK
        value: "{number}"
      - name: CRM_TOKEN
        valueFrom: {{secretRef: {{provider: env, name: CRM_TOKEN}}}}
    resources:
      requests: {{cpu: 250m, memory: 256Mi}}
      limits: {{memory: 512Mi}}
  model:
    provider: openai
    name: gpt-5
    fallbacks: [openai/gpt-5-mini]
    parameters: {{temperature: 0.2}}
  instructions: |
    You answer the customers of {tenant}, desk {number}.
    Be short, be kind, and never promise refunds.
  tools:
    - {{name: crm, allow: [read], approval: Never}}
    - {{name: mail, allow: [read, send], approval: Always}}
  mcpServers:
    - {{name: crm, url: "https://mcp.example.com/{tenant}"}}
  probes:
    readiness: {{http: {{port: 8080, path: /readyz}}, period: 5s, failureThreshold: 3}}
  rollout:
    healthTimeout: 2m
"""


def spec(number: int, *, lifecycle: str = "Running") -> tuple[str, str]:
    """Path and text of the spec with this number."""
    tenant, name = f"tenant-{number % TENANTS:02}", f"desk-{number:05}"
    tier = ("gold", "silver", "bronze")[number % 3]
    text = _SPEC.format(name=name, tenant=tenant, tier=tier, number=number, lifecycle=lifecycle)
    return f"agents/{tenant}/{name}.yaml", text


def build_fleet(folder: Path, size: int, *, lifecycle: str = "Running") -> str:
    """A bare repository with one commit that declares ``size`` agents; the sha of the commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--bare", "--initial-branch", "main", ".")
    specs = dict(spec(number, lifecycle=lifecycle) for number in range(size))
    return commit(folder, specs, message=f"A fleet of {size}")


def commit(repo: Path, files: Mapping[str, str], *, message: str = "A change") -> str:
    """Add a commit that sets some files of the main branch; its sha."""
    parent = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "refs/heads/main"],
        cwd=repo,
        env=_environment(),
        capture_output=True,
        text=True,
    ).stdout.strip()
    stream = b"".join(_stream(files, message, parent))
    git(repo, "fast-import", "--quiet", stdin=stream)
    return git(repo, "rev-parse", "refs/heads/main").decode().strip()


def git(repo: Path, *args: str, stdin: bytes | None = None) -> bytes:
    """Run git in a repository, without the configuration of whoever measures; what it printed."""
    return subprocess.run(
        ["git", *args], cwd=repo, env=_environment(), input=stdin, capture_output=True, check=True
    ).stdout


def _environment() -> dict[str, str]:
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    return {**os.environ, **quiet}


def _stream(files: Mapping[str, str], message: str, parent: str) -> Iterator[bytes]:
    marks: list[tuple[int, str]] = []
    for mark, (path, text) in enumerate(files.items(), start=1):
        data = text.encode()
        yield b"blob\nmark :%d\ndata %d\n%s\n" % (mark, len(data), data)
        marks.append((mark, path))
    said = message.encode()
    yield b"commit refs/heads/main\ncommitter Bench <bench@localhost> 1700000000 +0000\n"
    yield b"data %d\n%s\n" % (len(said), said)
    if parent:
        yield b"from %s\n" % parent.encode()
    yield from _modifications(marks)


def _modifications(marks: Sequence[tuple[int, str]]) -> Iterator[bytes]:
    for mark, path in marks:
        yield b"M 100644 :%d %s\n" % (mark, path.encode())
    yield b"\n"
