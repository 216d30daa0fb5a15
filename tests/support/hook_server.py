"""Somebody who is called by hooks, on loopback: remembers every request and answers as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Called:
    """What came in, and what is answered: a status, or nothing at all until the server ends."""

    port: int = 0
    status: int | None = 200
    keys: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/hooks?from=fleet"


@contextmanager
def hook_server(status: int | None = 200) -> Iterator[Called]:
    """A server for the time of a test."""
    called = Called(status=status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            called.bodies.append(json.loads(self.rfile.read(length)))
            called.keys.append(self.headers["Idempotency-Key"])
            called.methods.append(f"{self.command} {self.path}")
            called.headers.append(dict(self.headers))
            if called.status is None:
                called.over.wait(60)
                return
            self.send_response(called.status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_PUT(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    called.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield called
    finally:
        called.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
