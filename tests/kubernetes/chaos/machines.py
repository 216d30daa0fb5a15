"""The gitops-agents of the campaign: processes of one instance, each as if on a machine of its own, with a user
of the API and a way to it (a proxy) that no other has."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import cast

from tests.kubernetes.fleet import KubeFleet
from tests.servers.cluster import Cluster
from tests.servers.faults import FaultProxy
from tests.support.election import on_another_machine

ROOT = Path(__file__).parents[3]
ENDED_SECONDS = 30.0


class Machine:
    """One ``gitops-agent run``: killed, paused, ended and started again by whoever asks."""

    def __init__(self, fleet: KubeFleet, name: str, user: str, proxy: FaultProxy) -> None:
        cluster = cast("Cluster", fleet.cluster)
        self.name, self.user, self.proxy = name, user, proxy
        self._fleet = cast("KubeFleet", on_another_machine(fleet, name))
        path = proxy.kubeconfig(self._fleet.state.parent / "kubeconfig", user, cluster.token(user))
        self._environment = {
            **self._fleet.environment,
            "GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG": str(path),
            "PYTHONPATH": str(ROOT),
        }
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = self._fleet.state.parent / "run.log"
        self.exits: Counter[int] = Counter()

    def start(self) -> None:
        """Start it, unless it runs."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            if self._process is not None:
                self.exits[self._process.returncode] += 1
            words = self._fleet.command("run")
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    words, cwd=ROOT, env=self._environment, stdout=log, stderr=log, start_new_session=True
                )

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it runs."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(ENDED_SECONDS)

    def end(self) -> int | None:
        """End it in order; its exit code, None when it had to be killed."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if self._process is None:
            return 0
        try:
            return self._process.wait(ENDED_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def log(self) -> str:
        """All that it wrote."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
