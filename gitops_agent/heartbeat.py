"""A heartbeat for agents written in Python: it tells gitops-agent that the agent makes progress.

Only the standard library is used, so an agent may also copy this one file. Without ``MANAGED_AGENT_HEARTBEAT`` in
the environment every call does nothing, so the same agent runs unchanged outside of gitops-agent::

    heartbeat = Heartbeat()
    for turn, message in enumerate(messages):
        heartbeat.beat(turn=turn)
        with heartbeat.tool_call("crm.lookup"):
            look_up(message)

In a Kubernetes cluster it is an annotation on the agent's own pod instead of a file, written in the background and
at most every few seconds. The format is documented in ``docs/heartbeat.md``.
"""

from __future__ import annotations

import json
import os
import ssl
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "MANAGED_AGENT_HEARTBEAT"
VERSION = 1
POD_ANNOTATION = "pod-annotation"
"""The value of the variable in a cluster: there is no file, the heartbeat is an annotation on the agent's pod."""

ANNOTATION = "gitops-agent.dev/heartbeat"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
MIN_INTERVAL_SECONDS = 5.0
REQUEST_SECONDS = 5.0


class Heartbeat:
    """Writes the heartbeat file of this process. Safe to share between threads; never raises for a full disk."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path if path is not None else os.environ.get(VARIABLE, "")
        self._pod = _PodAnnotation(os.environ) if self._path == POD_ANNOTATION else None
        self._lock = threading.Lock()
        self._turn: int | None = None
        self._pending: list[str] = []

    @property
    def enabled(self) -> bool:
        """Whether somebody asked for heartbeats."""
        return bool(self._path)

    def beat(self, turn: int | None = None) -> None:
        """Say that progress was made, and in which turn (without one, the last turn stays)."""
        with self._lock:
            if turn is not None:
                self._turn = turn
            self._write()

    def idle(self) -> None:
        """Say that it is alive and in no turn: it waits for work, for however long."""
        with self._lock:
            self._turn = None
            self._write()

    @contextmanager
    def tool_call(self, name: str) -> Iterator[None]:
        """A tool call in progress: a stale heartbeat does not restart the agent while it lasts."""
        with self._lock:
            self._pending.append(name)
            self._write()
        try:
            yield
        finally:
            with self._lock:
                self._pending.remove(name)
                self._write()

    @contextmanager
    def background(self, every: float = 10.0) -> Iterator[None]:
        """Beat from a thread of its own, for work that cannot call ``beat``.

        This only proves that the process is scheduled: prefer ``beat`` wherever real progress is made.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._keep_beating, args=(every, ended), name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _keep_beating(self, every: float, ended: threading.Event) -> None:
        self.beat()
        while not ended.wait(every):
            self.beat()

    def _write(self) -> None:
        if not self._path:
            return
        content = {"version": VERSION, "at": time.time(), "turn": self._turn, "pending": self._pending}
        if self._pod is not None:
            self._pod.write(json.dumps(content))
            return
        try:
            _replace(Path(self._path), json.dumps(content))
        except OSError:
            pass  # an agent must not fail because its heartbeat cannot be written


def _replace(path: Path, text: str) -> None:
    """Readers see the old heartbeat or the new one, never half of one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


class _PodAnnotation:
    """Keeps the newest heartbeat as an annotation of our own pod. The agent never waits for the API server: a
    thread sends what is newest, and what cannot be sent is followed by the next."""

    def __init__(self, environment: Mapping[str, str], send: Callable[[str], None] | None = None) -> None:
        self._environment = dict(environment)
        self._send = send or self._patch
        self._news = threading.Condition()
        self._text = ""
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> None:
        """Take a heartbeat; it is sent soon."""
        with self._news:
            self._text = text
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="heartbeat-pod", daemon=True)
                self._thread.start()
            self._news.notify()

    def _send_all(self) -> None:
        while True:
            with self._news:
                while not self._text:
                    self._news.wait()
                text, self._text = self._text, ""
            try:
                self._send(text)
            except (OSError, ValueError):
                pass  # the API server is away, or refuses: an agent must not fail for that
            time.sleep(MIN_INTERVAL_SECONDS)

    def _patch(self, text: str) -> None:
        variables, folder = self._environment, Path(SERVICE_ACCOUNT)
        host = variables.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
        address = f"[{host}]" if ":" in host else host
        where = f"{address}:{variables.get('KUBERNETES_SERVICE_PORT', '443')}"
        namespace, pod = variables.get("MANAGED_AGENT_NAMESPACE", ""), variables.get("MANAGED_AGENT_POD", "")
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        body = json.dumps({"metadata": {"annotations": {ANNOTATION: text}}}).encode()
        request = urllib.request.Request(f"https://{where}{path}", data=body, method="PATCH")
        request.add_header("Content-Type", "application/merge-patch+json")
        # Read anew each time: the kubelet replaces it before it ends.
        request.add_header("Authorization", f"Bearer {(folder / 'token').read_text().strip()}")
        trusted = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS, context=trusted):  # noqa: S310 - https, above
            pass
