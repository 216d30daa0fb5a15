"""Commands inside pods, through the API server."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import orjson

from gitops_agent.drivers.api import AgentKey, ExecResult
from gitops_agent.drivers.kubernetes.cache import Entry
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.errors import REFUSED, TLS, ApiError, apply_error
from gitops_agent.drivers.kubernetes.kinds import POD, SECRET
from gitops_agent.drivers.kubernetes.marks import CONTAINER
from gitops_agent.drivers.kubernetes.pods import own_objects, pods_of
from gitops_agent.drivers.kubernetes.secrets import decoded

MAX_OUTPUT_BYTES = 65_536
MAX_MESSAGE = 400
_STDOUT, _STDERR, _STATUS = 1, 2, 3  # channels of the protocol v4.channel.k8s.io
_MAY_RUN = "and whether the command ended is not known"
PROTOCOL = "v4.channel.k8s.io"


class Commands:
    """Runs commands in the pods of agents."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client
        self._cache = cluster.cache
        self._redactor = cluster.redactor

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, pod: str = "") -> ExecResult:
        """Run a command in a pod of the agent: the one that is named, or else a running one."""
        entry = self._pod(agent, pod)
        if entry is None:
            return ExecResult(False, f"no pod of {agent} runs", started=False)
        try:
            return self._exec(entry, command, timeout)
        except ApiError as problem:
            if problem.answered or problem.reason in (REFUSED, TLS):
                said = apply_error(problem, f"exec in pod {entry.name}").message
                return ExecResult(False, said, started=False)
            unknown = f"exec in pod {entry.name}: {problem.message}; whether it ran is not known"
            return ExecResult(False, unknown, ended=False)

    def knows_secrets(self, agent: AgentKey) -> bool:
        """Have the redactor learn what the Secrets of an agent hold; whether all of them could be read."""
        try:
            for entry in own_objects(self._cache, agent, (SECRET,)):
                found = self._client.get(SECRET.path(entry.namespace, entry.name))
                self._redactor.learn(decoded(found.get("data") or {}).values())
        except ApiError:
            return False
        return True

    def _pod(self, agent: AgentKey, name: str) -> Entry | None:
        for entry in pods_of(self._cache, agent):
            phase = (entry.object().get("status") or {}).get("phase")
            if entry.name == name or (not name and phase == "Running"):
                return entry
        return None

    def _exec(self, pod: Entry, command: Sequence[str], timeout: float) -> ExecResult:
        asked = [("container", CONTAINER), ("stdout", "true"), ("stderr", "true")]
        asked += [("command", each) for each in command]
        url = f"{POD.path(pod.namespace, pod.name)}/exec?{urlencode(asked)}"
        end = time.monotonic() + timeout
        socket = self._client.websocket(url, PROTOCOL, timeout)
        try:
            output, status = _read(socket, end)
        finally:
            socket.close(timeout=0)
        said = self._redactor(output.decode("utf-8", "replace").strip())[-MAX_MESSAGE:]
        if status is None or isinstance(status, str):
            why = status or f"did not end within {timeout:g} s"
            return ExecResult(False, f"{why}: {said}".rstrip(": "), ended=False)
        if status.get("status") == "Success":
            return ExecResult(True, said)
        why = str(status.get("message") or "failed")
        started = not any(each.get("reason") == "InternalError" for each in _causes(status))
        return ExecResult(False, f"{why}: {said}".rstrip(": "), started=started)


def _causes(status: dict[str, Any]) -> list[dict[str, Any]]:
    return list((status.get("details") or {}).get("causes") or ())


def _read(socket: Any, end: float) -> tuple[bytes, dict[str, Any] | str | None]:
    """What a command printed, and how it ended: its status, why there is none, or None when its time was up."""
    import websocket

    output = bytearray()
    status: dict[str, Any] | None = None
    while status is None:
        left = end - time.monotonic()
        if left <= 0:
            break
        socket.settimeout(left)
        try:
            frame = socket.recv()
        except (websocket.WebSocketTimeoutException, TimeoutError, ssl.SSLError):
            break
        except (websocket.WebSocketException, OSError):
            return bytes(output), f"the connection was cut, {_MAY_RUN}"
        data = frame.encode() if isinstance(frame, str) else frame
        if not data:
            return bytes(output), f"the connection ended without a word, {_MAY_RUN}"
        channel, content = data[0], data[1:]
        if channel == _STATUS:
            status = orjson.loads(content)
        elif channel in (_STDOUT, _STDERR) and len(output) < MAX_OUTPUT_BYTES:
            output += content
    return bytes(output[:MAX_OUTPUT_BYTES]), status
