"""Fleets in a real cluster to measure with: N agents of one Deployment and one ConfigMap each, and who runs them.

An instance runs in this process, where the moments of a pass can be stamped, or as the real ``run`` in one of its
own, where its memory and its answers to the world are measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.fleet import commit, git
from benchmarks.instance import WIDE
from gitops_agent import wiring
from gitops_agent.drivers.kubernetes.objects import Objects
from gitops_agent.drivers.kubernetes.options import Settings as Cluster
from gitops_agent.model.passes import Request
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.reconcile.executor import Executor
from gitops_agent.settings import Settings
from gitops_agent.source.tracker import SourceTracker

TENANTS = 20
OBJECTS = 2
"""Of each agent."""

PATIENCE = 900.0

_SPEC = """\
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata:
  name: {name}
  tenant: {tenant}
  labels: {{tier: {tier}, team: support}}
spec:
  description: Answers customers of {tenant}, desk {number}
  runtime:
    driver: kubernetes
    image: {image}
    command: ["python", "-m", "support_bot", "--desk", "{number}"]
    replicas: 1
    env:
      - name: LOG_LEVEL
        value: info
      - name: DESK
        value: "{number}"
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
"""


@dataclass(frozen=True)
class KubeFleet:
    """A repository of ``size`` agents and the state of the instance that follows it. ``name``: of the instance;
    the names of its namespaces begin with it."""

    folder: Path
    kubeconfig: Path
    name: str
    size: int

    @classmethod
    def made(cls, folder: Path, kubeconfig: Path, name: str, size: int) -> KubeFleet:
        """A fleet with its repository written, and nothing live."""
        fleet = cls(folder, kubeconfig, name, size)
        fleet.repo.mkdir(parents=True)
        git(fleet.repo, "init", "--quiet", "--bare", "--initial-branch", "main", ".")
        specs = dict(fleet.spec(number) for number in range(size))
        commit(fleet.repo, {**specs, "gitops-agent.yaml": WIDE}, message=f"A fleet of {size}")
        return fleet

    @property
    def repo(self) -> Path:
        """The bare repository."""
        return self.folder / "fleet.git"

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of its tenants."""
        return [self.namespace(number) for number in range(min(TENANTS, self.size))]

    def namespace(self, number: int) -> str:
        """The namespace of an agent."""
        return f"{self.name}-{number % TENANTS:02}"

    def agent(self, number: int) -> str:
        """The name of an agent."""
        return f"desk-{number:05}"

    def spec(self, number: int, image: str = "registry.example/bot:1") -> tuple[str, str]:
        """Path and text of the document of an agent."""
        tenant, name = self.namespace(number), self.agent(number)
        tier = ("gold", "silver", "bronze")[number % 3]
        text = _SPEC.format(name=name, tenant=tenant, tier=tier, number=number, image=image)
        return f"agents/{tenant}/{name}.yaml", text

    def stage(self, number: int, image: str) -> str:
        """A commit that gives an agent another image, in the repository and on no branch yet; its sha."""
        author = self.folder / "author.git"
        if not author.exists():
            git(self.folder, "clone", "--quiet", "--bare", str(self.repo), str(author))
        path, text = self.spec(number, image)
        sha = commit(author, {path: text})
        git(self.repo, "fetch", "--quiet", str(author), "main:refs/staged/next")
        return sha

    def settings(self) -> Settings:
        """How an instance follows it."""
        return Settings(
            repo=str(self.repo),
            instance=self.name,
            state_dir=str(self.folder / "state"),
            lease_dir=str(self.folder / "leases"),
            push=False,
            listen="",
            drivers={"kubernetes": {"kubeconfig": str(self.kubeconfig)}},
        )

    @contextmanager
    def opened(self) -> Iterator[wiring.Instance]:
        """The instance in this process."""
        with wiring.open_instance(self.settings(), dict(os.environ)) as instance:
            yield instance

    def objects(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        """Every object of the fleet, as we apply it."""
        made = Objects(self.name, Cluster())
        agents = snapshot.agents.values()
        return [made.manifest(agent.key, each.fields) for agent in agents for each in agent.resources]

    @contextmanager
    def running(self, resync: str = "1h") -> Iterator[subprocess.Popen[bytes]]:
        """``gitops-agent run`` as a process of its own, without polls: what it does comes by event."""
        settings = self.settings()
        words = ["run", "--repo", settings.repo, "--instance", self.name, "--state-dir", settings.state_dir]
        environment = {
            **os.environ,
            "GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG": str(self.kubeconfig),
            "GITOPS_AGENT_LEASE_DIR": settings.lease_dir,
            "GITOPS_AGENT_PUSH": "false",
            "GITOPS_AGENT_LISTEN": "",
            "GITOPS_AGENT_POLL_INTERVAL": "1h",
            "GITOPS_AGENT_RESYNC_INTERVAL": resync,
        }
        with (self.folder / "run.log").open("ab") as log:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "gitops_agent", *words], env=environment, stdout=log, stderr=log
            )
        try:
            yield daemon
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@dataclass
class Convergence:
    """When the snapshot was there, and when the last action had ended."""

    loaded: float = 0.0
    applied: float = 0.0
    snapshot: Snapshot | None = None

    @property
    def seconds(self) -> float:
        """From snapshot to all objects applied."""
        return self.applied - self.loaded


def converge(instance: wiring.Instance, size: int) -> Convergence:
    """Passes until every object is applied, at the pace of ``once``; they need not be Ready."""
    context, deadline = instance.context, time.monotonic() + PATIENCE
    with _stamped() as stamps:
        while True:
            result = context.pipeline.run(Request(None, fetch=stamps.snapshot is None, actor="bench"))
            if len(result.state.reconcile.bases) == size * OBJECTS:
                return stamps
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all objects were applied: {result.record and result.record.plan}")
            context.queue.take(min(1.0, result.wait if result.wait is not None else 1.0))


@contextmanager
def _stamped() -> Iterator[Convergence]:
    stamps, resolve, execute = Convergence(), SourceTracker.resolve, Executor.execute

    def resolved(*args: Any) -> Any:
        state, source = resolve(*args)
        if stamps.snapshot is None:
            stamps.snapshot, stamps.loaded = source.desired, time.perf_counter()
        return state, source

    def executed(*args: Any) -> Any:
        result = execute(*args)
        stamps.applied = time.perf_counter()
        return result

    with patch.object(SourceTracker, "resolve", resolved), patch.object(Executor, "execute", executed):
        yield stamps


def settle(instance: wiring.Instance) -> None:
    """Passes until every agent is Ready."""
    context, deadline = instance.context, time.monotonic() + PATIENCE
    for watcher in context.watchers:
        watcher.start(context.queue.agent)
    try:
        request: Request | None = Request(None, fetch=True)
        while True:
            result = context.pipeline.run(request or Request(frozenset(), fetch=False))
            if str(result.phase) == "Converged":
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the fleet did not become Ready: {result.phase}")
            request = context.queue.take(min(5.0, result.wait if result.wait is not None else 5.0))
    finally:
        for watcher in context.watchers:
            watcher.stop()


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Poll until a condition holds; its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} never came true")
        time.sleep(0.05)
    return found


def until_idle(pid: int, seconds: float = 1.5) -> None:
    """Wait until a process has used no processor for some seconds, but for a hundredth."""
    deadline, quiet = time.monotonic() + PATIENCE, 0.0
    used = _ticks(pid)
    while quiet < seconds:
        if time.monotonic() > deadline:
            raise TimeoutError("it is never idle")
        time.sleep(0.1)
        now = _ticks(pid)
        quiet, used = (quiet + 0.1 if now - used <= 1 else 0.0), now


def _ticks(pid: int) -> int:
    """Hundredths of a second that a process has computed."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def resident_mib(pid: int) -> float:
    """The memory that a process has in RAM now."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024
