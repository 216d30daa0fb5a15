"""The server: real HTTP over loopback."""

from __future__ import annotations

import ast
import http.client
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import gitops_agent
from gitops_agent.daemon.liveness import Liveness
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.web.connections import MAX_CONNECTIONS
from gitops_agent.web.server import serving

Answer = tuple[int, str, str]


def ask(where: str, path: str, method: str = "GET") -> Answer:
    connection = http.client.HTTPConnection(where, timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"] or "", answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def liveness() -> Liveness:
    return Liveness(FrozenClock(), grace=60)


@pytest.fixture
def where(liveness: Liveness) -> Iterator[str]:
    with serving("127.0.0.1:0", lambda: b"up 1\n", liveness.live, liveness.ready) as address:
        yield address


def test_three_paths_and_no_more(where: str) -> None:
    assert ask(where, "/metrics") == (200, "text/plain; version=0.0.4; charset=utf-8", "up 1\n")
    assert ask(where, "/livez") == (200, "text/plain; charset=utf-8", "ok\n")
    assert ask(where, "/readyz")[::2] == (503, "not ready: no pass has been completed yet\n")
    for path in ("/", "/metrics/x", "/livez?x=1/../../etc", "/%2e%2e/etc/passwd"):
        status, _, body = ask(where, path)
        assert (status, body) in {(404, "Not Found"), (200, "ok\n")}, path
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(where, "/livez", method)[0] == 405
    assert ask(where, "/metrics", "HEAD")[::2] == (200, "")


def test_an_error_says_nothing_to_the_outside(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> bytes:
        raise RuntimeError("a word from inside")

    silent = lambda: (True, "ok")  # noqa: E731
    with serving("127.0.0.1:0", broken, silent, silent) as where:
        status, _, body = ask(where, "/metrics")
        assert (status, body) == (500, "Internal Server Error")
        assert ask(where, "/livez")[0] == 200, "one broken answer is not the end"
    assert "a word from inside" in caplog.text


def test_garbage_is_turned_away(where: str) -> None:
    host, port = where.split(":")
    for garbage in (b"\x00\xff" * 200 + b"\r\n\r\n", b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=20) as raw:
            try:
                raw.sendall(garbage)
                assert raw.recv(64).startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 414"))
            except ConnectionError:
                pass  # cut off in the middle of it, which is as good
    assert ask(where, "/livez")[0] == 200


def test_it_ends_in_time_although_somebody_holds_on_and_the_port_is_free_at_once(liveness: Liveness) -> None:
    endpoints = ((lambda: b""), liveness.live, liveness.ready)
    with serving("127.0.0.1:0", *endpoints) as where:
        host, port = where.split(":")
        idle = [socket.create_connection((host, int(port)), timeout=20) for _ in range(3)]
        assert ask(where, "/livez")[0] == 200
    assert not [thread for thread in threading.enumerate() if thread.name == "web"]
    with serving(where, *endpoints) as again:
        assert again == where
        assert ask(where, "/livez")[0] == 200
    for connection in idle:
        connection.close()


def test_idle_connections_keep_nobody_out(where: str) -> None:
    host, port = where.split(":")
    with ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            for _ in range(2 * MAX_CONNECTIONS)
        ]
        for each in idle[::2]:
            each.sendall(b"GET /livez HT")  # half a request is as good as none
        assert ask(where, "/livez")[0] == 200
        assert ask(where, "/metrics")[0] == 200
        assert ended(idle[0]), "those that came first made way"


def test_a_connection_has_its_time_and_no_more(liveness: Liveness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops_agent.web.connections.IDLE_SECONDS", 0.2)
    with serving("127.0.0.1:0", lambda: b"", liveness.live, liveness.ready) as where:
        host, port = where.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as silent:
            assert ended(silent)
        with socket.create_connection((host, int(port)), timeout=20) as slow:
            slow.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert slow.recv(16).startswith(b"HTTP/1.1 200")
            assert ended(slow), "also after an answer"


def ended(connection: socket.socket) -> bool:
    """Whether the server ends a connection, after whatever it still had to say."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def test_signals_and_logs_stay_ours(where: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ask(where, "/livez")
    assert "livez" not in caplog.text
    assert signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)


def test_reaching_beyond_this_machine_is_warned_about(
    liveness: Liveness, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving("0.0.0.0:0", lambda: b"", liveness.live, liveness.ready):
        pass
    said = capsys.readouterr()
    assert "beyond this machine" in said.out + said.err


@pytest.mark.unit
def test_asyncio_stays_at_the_edge() -> None:
    root = Path(gitops_agent.__file__).parent
    foreign = {"asyncio", "anyio", "starlette", "uvicorn"}
    strangers = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] != "web" and foreign & set(_imported(path))
    ]
    assert strangers == []


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield "asyncio"
