"""A proxy in front of the API server that fails on command, and counts what goes through it.

It takes TLS from clients and speaks TLS to the server, hands on requests and answers as they are, and does nothing
of its own. Protocol upgrades (``exec``, ``attach``, ``port-forward``) do not go through it. Faults hold until
``heal``, or as often as they say.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.servers.certificates import write_certificates
from tests.servers.kubeconfig import write_kubeconfig

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}
REASONS = {403: "Forbidden", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 503: "ServiceUnavailable"}
CHUNK = 65536


@dataclass(frozen=True)
class Seen:
    """A request as it came to the proxy."""

    method: str
    path: str
    query: str
    watch: bool


Match = Callable[[Seen], bool]


def any_request(_: Seen) -> bool:
    """Match everything."""
    return True


@dataclass
class Fault:
    """What happens to the requests that match, in this order: a delay, ``meanwhile``, then one of the others."""

    match: Match = any_request
    delay: float = 0
    meanwhile: Callable[[], object] | None = None
    """What is done in the world while the request is held back; it reaches the server after that."""
    status: int | None = None
    """Answer this and do not ask the server."""
    retry_after: int | None = None
    refuse: bool = False
    """Close the connection, the server is not asked."""
    lose_answer: bool = False
    """The server does what it was asked, and the client never learns: the connection closes."""
    times: int | None = None
    """How many requests it still happens to; None: all."""


class FaultProxy:
    """A proxy that runs from construction until ``stop``; a context manager."""

    def __init__(self, url: str, ca: Path) -> None:
        parts = urllib.parse.urlsplit(url)
        assert parts.hostname is not None
        self._upstream = (parts.hostname, parts.port or 443)
        self._trust = ssl.create_default_context(cafile=str(ca))
        self._folder = Path(tempfile.mkdtemp(prefix="gitops-agent-proxy-"))
        certificates = write_certificates(self._folder)
        self.ca = certificates.ca
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._seen: list[Seen] = []
        self._watches: set[_Watch] = set()
        self._silent = False
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.certificate, certificates.private_key)
        self._server.socket = context.wrap_socket(  # each connection shakes hands in its own thread
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take no more connections and cut what is open."""
        self._server.shutdown()
        self._server.server_close()
        self._server.cut_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kubeconfig(self, path: Path, user: str, token: str, context: str = "default") -> Path:
        """Write a kubeconfig that goes through the proxy, and return its path."""
        return write_kubeconfig(path, self.url, self.ca, user, token, context)

    # Faults.

    def inject(self, fault: Fault) -> None:
        """Let a fault happen; of several that match, the oldest does."""
        with self._lock:
            self._faults.append(fault)

    def fail(
        self, status: int, match: Match = any_request, retry_after: int | None = None, times: int | None = None
    ) -> None:
        """Answer with a status as the API server words it, without asking it."""
        self.inject(Fault(match, status=status, retry_after=retry_after, times=times))

    def delay(self, seconds: float, match: Match = any_request, times: int | None = None) -> None:
        """Hold requests back before they reach the server."""
        self.inject(Fault(match, delay=seconds, times=times))

    def heal(self) -> None:
        """End all faults; watches that went silent stay so until their client gives up."""
        with self._lock:
            self._faults.clear()
            self._silent = False

    def cut_watches(self) -> int:
        """Close all open watches in the middle, as a network does; return how many."""
        return self._each_watch(_Watch.cut)

    def expire_watches(self) -> int:
        """Tell all open watches that their version is too old (410), as the API server does; return how many."""
        return self._each_watch(_Watch.expire)

    def silence_watches(self) -> int:
        """Let open watches, and new ones until ``heal``, hear nothing more and stay open; return how many."""
        with self._lock:
            self._silent = True
        return self._each_watch(_Watch.silence)

    def _each_watch(self, what: Callable[[_Watch], None]) -> int:
        with self._lock:
            watches = list(self._watches)
        for one in watches:
            what(one)
        return len(watches)

    # Counting.

    def requests(self, method: str | None = None, path: str = "", watch: bool | None = None) -> list[Seen]:
        """Return the requests since ``forget``, in order: of a method, with this in the path, watches or not."""
        with self._lock:
            seen = list(self._seen)
        return [
            one for one in seen if method in (None, one.method) and path in one.path and watch in (None, one.watch)
        ]

    def forget(self) -> None:
        """Count from here."""
        with self._lock:
            self._seen.clear()

    @property
    def open_watches(self) -> int:
        """How many watches are open; one whose client went away counts until the next event."""
        with self._lock:
            return len(self._watches)

    # What a connection asks for.

    def note(self, request: Seen) -> Fault | None:
        """Count a request; return the fault that happens to it, if any."""
        with self._lock:
            self._seen.append(request)
            for fault in self._faults:
                if fault.times != 0 and fault.match(request):
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None

    def connect(self) -> http.client.HTTPSConnection:
        """Return a fresh connection to the server: none is kept, so none is stale."""
        connection = http.client.HTTPSConnection(*self._upstream, context=self._trust)
        connection.connect()
        return connection

    def opened(self, watch: _Watch) -> None:
        """Enter a watch; it is silent from the start while watches are."""
        with self._lock:
            self._watches.add(watch)
            if self._silent:
                watch.silence()

    def closed(self, watch: _Watch) -> None:
        """Forget a watch."""
        with self._lock:
            self._watches.discard(watch)


class _Watch:
    """An open watch: two connections, and what may still be written to the client."""

    def __init__(self, handler: BaseHTTPRequestHandler, upstream: socket.socket) -> None:
        self._handler, self._upstream = handler, upstream
        self._writing = threading.Lock()
        self._silent = False

    def send(self, data: bytes) -> None:
        with self._writing:
            if not self._silent:
                _write_chunk(self._handler, data)

    def silence(self) -> None:
        with self._writing:
            self._silent = True

    @property
    def silent(self) -> bool:
        return self._silent

    def expire(self) -> None:
        event = {"type": "ERROR", "object": _status(410, "too old resource version")}
        try:
            self.send(json.dumps(event).encode() + b"\n")
            self.send(b"")  # the end of a chunked answer
        except OSError:
            pass  # the client is gone already
        self.cut()

    def cut(self) -> None:
        _shut(self._upstream)
        _shut(self._handler.connection)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        for one in list(self._open):
            _shut(one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that go away, and those we cut, are what we are for."""


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Write nothing."""

        def handle_any(self) -> None:
            _serve(self, proxy)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = handle_any  # noqa: N815

    return Handler


def _serve(handler: BaseHTTPRequestHandler, proxy: FaultProxy) -> None:
    body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    parts = urllib.parse.urlsplit(handler.path)
    watching = urllib.parse.parse_qs(parts.query).get("watch", ["false"])[0].lower() in ("true", "1")
    request = Seen(handler.command, parts.path, parts.query, watching)
    fault = proxy.note(request) or Fault()
    time.sleep(fault.delay)
    if fault.meanwhile is not None:
        fault.meanwhile()
    if fault.refuse:
        _hang_up(handler)
    elif fault.status is not None:
        _answer(handler, fault.status, fault.retry_after)
    else:
        _forward(handler, proxy, request, body, fault)


def _forward(handler: BaseHTTPRequestHandler, proxy: FaultProxy, request: Seen, body: bytes, fault: Fault) -> None:
    try:
        connection = proxy.connect()
    except OSError:  # the server is down: so are we
        _hang_up(handler)
        return
    upstream = connection.sock
    try:
        connection.request(handler.command, handler.path, body or None, _end_to_end(handler.headers.items()))
        response = connection.getresponse()
        if fault.lose_answer:
            response.read()
            _hang_up(handler)
        elif request.watch and response.status == 200:
            _relay_watch(handler, proxy, response, _Watch(handler, upstream))
        else:
            _relay(handler, response)
    except (OSError, http.client.HTTPException):
        _hang_up(handler)
    finally:
        connection.close()


def _relay(handler: BaseHTTPRequestHandler, response: http.client.HTTPResponse) -> None:
    length = response.getheader("Content-Length")
    _send_head(handler, response, None if length is None else int(length))
    while data := response.read1(CHUNK):
        if length is None:
            _write_chunk(handler, data)
        else:
            handler.wfile.write(data)
    if length is None and handler.command != "HEAD":
        _write_chunk(handler, b"")


def _relay_watch(
    handler: BaseHTTPRequestHandler, proxy: FaultProxy, response: http.client.HTTPResponse, watch: _Watch
) -> None:
    proxy.opened(watch)
    try:
        if not watch.silent:
            _send_head(handler, response, None)
        while data := response.read1(CHUNK):
            watch.send(data)
        watch.send(b"")
        if watch.silent:  # the server ended it, and the client must not learn that either
            handler.connection.recv(1)
            _hang_up(handler)
    finally:
        proxy.closed(watch)


def _send_head(handler: BaseHTTPRequestHandler, response: http.client.HTTPResponse, length: int | None) -> None:
    handler.send_response_only(response.status)
    for name, value in _end_to_end(response.getheaders()).items():
        handler.send_header(name, value)
    if length is None:
        handler.send_header("Transfer-Encoding", "chunked")
    else:
        handler.send_header("Content-Length", str(length))
    handler.end_headers()


def _write_chunk(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    handler.wfile.flush()


def _answer(handler: BaseHTTPRequestHandler, code: int, retry_after: int | None) -> None:
    body = json.dumps(_status(code, f"injected by the test: {code}")).encode()
    handler.send_response_only(code)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    if retry_after is not None:
        handler.send_header("Retry-After", str(retry_after))
    handler.end_headers()
    handler.wfile.write(body)


def _status(code: int, message: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(code, "InternalError"),
        "code": code,
    }


def _end_to_end(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in HOP_BY_HOP}


def _hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    _shut(handler.connection)


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # closed already
