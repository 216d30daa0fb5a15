"""A command in a pod whose end is not known is not called failed, and one that may have run is not run again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import websocket

from gitops_agent.drivers.api import AgentKey, ExecResult, Redactor
from gitops_agent.drivers.kubernetes import commands
from gitops_agent.drivers.kubernetes.cache import Entry
from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.commands import Commands
from gitops_agent.drivers.kubernetes.kinds import POD

pytestmark = pytest.mark.unit
BOT = AgentKey("acme", "bot")
RUNS = Entry(POD, "acme", "bot-1", "uid", "1", 1, BOT, b'{"status":{"phase":"Running"}}')
FAILED = {"status": "Failure", "message": "exit code 3"}


class Socket:
    """A connection that says this, and then fails or ends."""

    def __init__(self, *said: bytes | Exception) -> None:
        self.said = list(said)

    def recv(self) -> bytes:
        """The next of it."""
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    def settimeout(self, _seconds: float) -> None:
        """Nothing waits here."""

    def close(self, **_how: Any) -> None:
        """Nothing is open."""


def no_one() -> dict[str, str]:
    """The header of who needs none."""
    return {}


def run(
    monkeypatch: pytest.MonkeyPatch, opened: Socket | Exception, authorization: Callable[[], Any] = no_one
) -> ExecResult:
    def websocket_to(*_asked: Any) -> Socket:
        if isinstance(opened, Exception):
            raise opened
        return opened

    monkeypatch.setattr(commands, "pods_of", lambda _cache, _agent: [RUNS])
    connection: Any = SimpleNamespace(
        host="https://api.example", websocket=websocket_to, authorization=authorization
    )
    client = object.__new__(Client)
    client._connection, client._headers, client._before_write = connection, {}, lambda: None
    cluster: Any = SimpleNamespace(client=client, cache=None, redactor=Redactor())
    return Commands(cluster).exec(BOT, ["true"], 5.0)


@pytest.mark.parametrize(
    ("opened", "started", "ended"),
    [
        (ConnectionRefusedError(111, "Connection refused"), False, True),
        (websocket.WebSocketAddressException("no such host"), False, True),
        (websocket.WebSocketProxyException("failed CONNECT via proxy status: 403"), False, True),
        (FileNotFoundError(2, "No such file or directory"), False, True),  # a certificate that is gone
        (websocket.WebSocketBadStatusException("Handshake status", 503, resp_body=b"busy"), False, True),
        (websocket.WebSocketTimeoutException("Connection timed out"), True, False),
        (TimeoutError("timed out"), True, False),
        (ConnectionResetError(104, "Connection reset by peer"), True, False),
        (websocket.WebSocketConnectionClosedException("closed"), True, False),
        (Socket(b"\x01half", ConnectionResetError(104, "reset")), True, False),
        (Socket(b"\x01half", websocket.WebSocketConnectionClosedException("closed")), True, False),
        (Socket(b"\x01half", b""), True, False),
        (Socket(b"\x01half", websocket.WebSocketTimeoutException("late")), True, False),
        (Socket(b"\x02bad luck", b"\x03" + orjson.dumps(FAILED)), True, True),
    ],
)
def test_only_what_is_known_is_said(
    monkeypatch: pytest.MonkeyPatch, opened: Socket | Exception, started: bool, ended: bool
) -> None:
    found = run(monkeypatch, opened)
    assert (found.ok, found.started, found.ended) == (False, started, ended)
    if not ended:
        assert "trying again is safe" not in found.message
        assert "not known" in found.message or "did not end within" in found.message


def test_without_credentials_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise FileNotFoundError(2, "No such file or directory", "token")

    found = run(monkeypatch, Socket(), gone)
    assert (found.ok, found.started, found.ended) == (False, False, True)
    assert "does not accept our credentials" in found.message


def test_a_command_that_ended_well(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, Socket(b"\x01hello", b"\x03" + orjson.dumps({"status": "Success"})))
    assert found == ExecResult(True, "hello")
