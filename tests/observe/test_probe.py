"""Probes over real sockets: every way an agent may answer, or not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gitops_agent.drivers.api import ExecResult
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import AgentInstance, Observation, Owner
from gitops_agent.observe.health.probe import probe
from gitops_agent.observe.health.targets import HealthTarget
from gitops_agent.testing.memory_driver import runtime_key
from tests.reconcile.make import ONE

LOOPBACK = "127.0.0.1"
Talk = Callable[[socket.socket, threading.Event], None]


def reads_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request and (part := connection.recv(4096)):
        request += part
    return request


@contextmanager
def serving(talk: Talk) -> Iterator[int]:
    """A server on a free loopback port; ``over`` is set when the test is."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            try:
                connection, _ = server.accept()
            except OSError:
                return  # nobody came
            with connection:
                try:
                    talk(connection, over)
                except OSError:
                    pass  # the probe hung up

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            # Wakes an accept that still waits.
            with socket.socket() as knock:
                knock.connect_ex(server.getsockname())
            thread.join(20)
    assert not thread.is_alive()


def ask(port: int, path: str = "/readyz", timeout: str = "5s") -> ExecResult:
    seen = Observation(runtime_key(ONE), "memory", Owner.OURS, Fields.of({}), "Running", 0.0, address=LOOPBACK)
    spec = {"http": {"port": port, "path": path}, "timeout": timeout}
    return probe(spec, HealthTarget(ONE, seen))


def answers(status: int, body: bytes = b"x", *headers: str) -> Talk:
    def talk(connection: socket.socket, over: threading.Event) -> None:
        reads_request(connection)
        lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(body)}", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode() + body)

    return talk


@pytest.mark.parametrize(("status", "ok"), [(200, True), (204, True), (302, True), (404, False), (500, False)])
def test_the_status_decides(status: int, ok: bool) -> None:
    with serving(answers(status, b"")) as port:
        found = ask(port)
    assert found == ExecResult(ok, f"GET :{port}/readyz: {status}")


def test_a_redirect_is_not_followed() -> None:
    """Otherwise an agent could send us anywhere."""
    with serving(answers(302, b"", "Location: http://127.0.0.1:1/elsewhere")) as port:
        assert ask(port).ok


def test_the_request_says_who_asks_and_carries_nothing_else() -> None:
    got: list[bytes] = []

    def talk(connection: socket.socket, over: threading.Event) -> None:
        got.append(reads_request(connection))
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")

    with serving(talk) as port:
        assert ask(port, "/healthz?deep=1").ok
    head = got[0].decode().split("\r\n")
    assert head[0] == "GET /healthz?deep=1 HTTP/1.1"
    assert "User-Agent: gitops-agent-probe" in head
    assert not [line for line in head if line.lower().startswith(("authorization", "cookie"))]


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        found = ask(port)
    assert not found.ok
    assert "refused" in found.message
    assert f"GET :{port}" in found.message


def hangs(connection: socket.socket, over: threading.Event) -> None:
    reads_request(connection)
    over.wait(60)


def drips_headers(connection: socket.socket, over: threading.Event) -> None:
    reads_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not over.wait(0.02):
        connection.sendall(b"X-Drip: 1\r\n")


def drips_body(connection: socket.socket, over: threading.Event) -> None:
    reads_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while not over.wait(0.02):
        connection.sendall(b"x")


def drips_status(connection: socket.socket, over: threading.Event) -> None:
    reads_request(connection)
    while not over.wait(0.02):
        connection.sendall(b"H")


def hangs_up(connection: socket.socket, over: threading.Event) -> None:
    reads_request(connection)


def talks_nonsense(connection: socket.socket, over: threading.Event) -> None:
    reads_request(connection)
    connection.sendall(b"\x00\xff" * 5000 + b"\r\n\r\n")


def lies_about_length(connection: socket.socket, over: threading.Event) -> None:
    reads_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: -7\r\n\r\nx")


def sends_endless_headers(connection: socket.socket, over: threading.Event) -> None:
    reads_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n")


@pytest.mark.parametrize("talk", [hangs, drips_headers, drips_body, drips_status], ids=lambda talk: talk.__name__)
def test_who_takes_too_long_fails_and_does_not_hold_us(talk: Talk) -> None:
    with serving(talk) as port:
        began = time.monotonic()
        found = ask(port, timeout="200ms")
        # The servers would go on until the test ends; that we are here is the point, the bound is generous.
        assert time.monotonic() - began < 15
    assert not found.ok
    assert found.message.startswith(f"GET :{port}/readyz: ")


@pytest.mark.parametrize("talk", [hangs_up, talks_nonsense, sends_endless_headers], ids=lambda talk: talk.__name__)
def test_what_is_no_answer_is_a_failure(talk: Talk) -> None:
    with serving(talk) as port:
        found = ask(port)
    assert not found.ok
    assert found.message.startswith(f"GET :{port}/readyz: ")


def test_an_odd_length_does_not_break_us() -> None:
    with serving(lies_about_length) as port:
        assert ask(port).message


@pytest.mark.parametrize("path", ["/a b", "/ünï", "/x\r\nX-Evil: 1", "/\x00"])
def test_a_path_that_no_document_may_have_is_a_failure_and_sends_nothing(path: str) -> None:
    got: list[bytes] = []

    def talk(connection: socket.socket, over: threading.Event) -> None:
        got.append(reads_request(connection))

    with serving(talk) as port:
        found = ask(port, path, timeout="1s")
    assert not found.ok
    assert got in ([], [b""])


def test_every_instance_must_answer_at_its_own_address() -> None:
    copies = tuple(AgentInstance(host, 1.0, address=host) for host in (LOOPBACK, "127.0.0.2"))
    seen = Observation(runtime_key(ONE), "m", Owner.OURS, Fields.of({}), "Running", 0.0, instances=copies)
    with serving(answers(200)) as port:  # on the first address only
        found = probe({"http": {"port": port}, "timeout": "5s"}, HealthTarget(ONE, seen))
    assert not found.ok
    assert found.message.startswith(f"GET 127.0.0.2:{port}/: ")


def test_a_runtime_without_an_address_cannot_be_probed_by_http() -> None:
    found = probe({"http": {"port": 80}}, HealthTarget(ONE, None))
    assert found == ExecResult(False, "GET :80/: the runtime reports no address to probe")
