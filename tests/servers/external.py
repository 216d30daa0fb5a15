"""A cluster of the user, for tests that need no control over its servers."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ExternalCluster:
    """What tests may use of a cluster they did not start: the current context of a kubeconfig."""

    kubeconfig: Path

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> str:
        """Return what ``kubectl`` prints; with ``check=False`` also when it fails, with its complaint."""
        if shutil.which("kubectl") is None:
            raise AssertionError("tests against a cluster of yours need kubectl on PATH")
        call = ["kubectl", "--kubeconfig", str(self.kubeconfig), *args]
        done = subprocess.run(call, input=stdin, capture_output=True, text=True, check=False, timeout=120)
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def get(self, *args: str, namespace: str | None = None) -> dict[str, Any]:
        """Return an object as ``kubectl get … -o json`` shows it."""
        where = () if namespace is None else ("--namespace", namespace)
        found: dict[str, Any] = json.loads(self.kubectl("get", *args, *where, "-o", "json"))
        return found
