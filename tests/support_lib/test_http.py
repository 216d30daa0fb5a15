"""One HTTP request: to the host in its address or nowhere, in time, and known whether it was sent."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gitops_agent.support.http import Answer, NotAnswered, NotSent, endpoint, request


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that answers one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                try:
                    answer(connection)
                except OSError:
                    pass  # the client has gone, which is what some tests want

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(5)


def test_the_answer_is_cut_at_its_cap() -> None:
    with server(lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef")) as url:
        assert request("GET", url + "/x?y=1", timeout=5, body_cap=3) == Answer(200, b"abc")


def test_a_redirect_is_an_answer_like_any_other() -> None:
    reply = b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n"
    with server(lambda c: c.sendall(reply)) as url:
        assert request("POST", url, timeout=5, body=b"{}", headers={"X": "1"}).status == 302


def test_a_server_that_drips_is_cut_off() -> None:
    def drip(connection: socket.socket) -> None:
        for _ in range(100):
            connection.sendall(b"H")
            time.sleep(0.05)

    started = time.monotonic()
    with server(drip) as url, pytest.raises(NotAnswered, match=r"within 0\.2 s"):
        request("GET", url, timeout=0.2)
    assert time.monotonic() - started < 4


def test_a_closed_connection_and_a_closed_port_are_told_apart() -> None:
    with server(lambda c: c.close()) as url, pytest.raises(NotAnswered):
        request("GET", url, timeout=5)
    with pytest.raises(NotSent, match="refused"):
        request("GET", url, timeout=5)


@pytest.mark.unit
def test_host_and_port_are_named_for_the_caller_to_check() -> None:
    assert endpoint("https://Hooks.Example/x") == ("hooks.example", 443)
    assert endpoint("http://127.0.0.1:8080/readyz") == ("127.0.0.1", 8080)
    for bad in ("ftp://host/", "http:///path", "http://host:99999/", "readyz"):
        with pytest.raises(ValueError):  # noqa: PT011 - the standard library has words of its own
            endpoint(bad)
