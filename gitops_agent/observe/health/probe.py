"""Ask an agent how it is: an HTTP request to its own address, or a command run as the agent."""

from __future__ import annotations

import http.client
import shlex
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gitops_agent.model.key import AgentKey
from gitops_agent.model.quantity import seconds
from gitops_agent.ports import ExecResult, Runner

OWN_ADDRESS = "127.0.0.1"
"""Local agents listen here; a probe reaches nothing else, whatever a document says."""

_READ_CAP = 4096
_COMMAND_SHOWN, _ANSWER_SHOWN = 60, 200


def probe(spec: Mapping[str, Any], agent: AgentKey, runner: Runner | None) -> ExecResult:
    """Run one probe as its fields say; what goes wrong is the answer, never an exception."""
    timeout = seconds(spec.get("timeout", "1s")) or 1.0
    try:
        if http_spec := spec.get("http"):
            return _http(http_spec["port"], http_spec.get("path", "/"), timeout)
        if runner is None:
            return ExecResult(False, "this runtime cannot run commands")
        return _exec(spec["exec"]["command"], agent, timeout, runner)
    except (Exception, SystemExit) as problem:  # one agent's probe must not stop the judging of its siblings
        return ExecResult(False, f"unexpected {type(problem).__name__} in the probe")


def _exec(command: Sequence[str], agent: AgentKey, timeout: float, runner: Runner) -> ExecResult:
    """Which of several probes failed is told by its command, and why by how its answer begins."""
    answer = runner.run(agent, command, timeout)
    return replace(
        answer, message=f"{_cut(shlex.join(command), _COMMAND_SHOWN)}: {_cut(answer.message, _ANSWER_SHOWN)}"
    )


def _cut(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _http(port: int, path: str, timeout: float) -> ExecResult:
    asked = f"GET :{port}{path}"
    connection = http.client.HTTPConnection(OWN_ADDRESS, port, timeout=timeout)
    try:
        connection.connect()
        with _deadline(connection.sock, timeout) as late:
            connection.request("GET", path, headers={"User-Agent": "gitops-agent-probe", "Connection": "close"})
            response = connection.getresponse()
            response.read(_READ_CAP)
    except (OSError, http.client.HTTPException) as problem:
        return ExecResult(False, f"{asked}: {problem or type(problem).__name__}")
    finally:
        connection.close()
    if late.is_set():  # what was cut off may look complete
        return ExecResult(False, f"{asked}: no complete answer within {timeout:g} s")
    return ExecResult(200 <= response.status < 400, f"{asked}: {response.status}")


@contextmanager
def _deadline(connected: socket.socket, timeout: float) -> Iterator[threading.Event]:
    """Cut the connection when the whole exchange takes too long: an agent that drips bytes must not hold us.

    The event says whether that happened.
    """
    late = threading.Event()

    def cut() -> None:
        late.set()
        try:
            connected.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the exchange ended at the same moment

    timer = threading.Timer(timeout, cut)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
