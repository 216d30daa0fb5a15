"""The server on a thread of its own: the address it listens on, and the three paths ``/metrics``, ``/livez`` and
``/readyz``. Text, small, and read-only."""

import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gitops_agent.errors import UsageError
from gitops_agent.web.connections import MAX_CONNECTIONS, bounded_protocol

_GRACE_SECONDS = 2  # that answers under way get when we end

Check = Callable[[], tuple[bool, str]]
"""Gives whether all is well, and a text about it."""

_FRESH = {"Cache-Control": "no-store"}
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

log = structlog.get_logger(__name__)


@contextmanager
def serving(address: str, metrics: Callable[[], bytes], live: Check, ready: Check) -> Iterator[str]:
    """Answer on this address while the block runs; gives the address in force. UsageError when it is not free.
    Each callable returns at once, from any thread, and takes no lock a pass may hold."""
    listening = listen(address)
    where = shown(listening)
    # Plain HTTP/1.1 and nothing that is not needed; logs go where those of all libraries go.
    config = uvicorn.Config(
        _app(metrics, live, ready),
        http=bounded_protocol(),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    # The thread is not the main one, so uvicorn leaves the signals to us.
    thread = threading.Thread(target=server.run, args=([listening],), name="web", daemon=True)
    thread.start()
    log.info("listening", address=where, paths=["/metrics", "/livez", "/readyz"])
    if not is_loopback(parse(address)[0]):
        log.warning(
            "metrics and health are served beyond this machine, without a password; "
            "listen on 127.0.0.1 unless a network policy protects this address",
            address=where,
        )
    try:
        yield where
    finally:
        server.should_exit = True
        thread.join(_GRACE_SECONDS + 3)
        listening.close()


def _app(metrics: Callable[[], bytes], live: Check, ready: Check) -> Starlette:
    """The application; whatever is not one of its paths is 404, whatever is not GET (or HEAD) is 405."""

    # On the event loop itself, not on a pool of threads: nothing here waits for anything.
    async def all_metrics(_: Request) -> Response:
        return Response(metrics(), media_type=_METRICS_TYPE, headers=_FRESH)

    paths = {"/metrics": all_metrics, "/livez": _checked(live), "/readyz": _checked(ready)}
    return Starlette(routes=[Route(path, answer, methods=["GET"]) for path, answer in paths.items()])


def _checked(check: Check) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        ok, text = check()
        return PlainTextResponse(text + "\n", 200 if ok else 503, headers=_FRESH)

    return answer


def parse(address: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:9733`` or ``[::1]:9733``; UsageError otherwise."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise _wrong(address, "it is not a host and a port up to 65535")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name other than localhost is taken to reach further."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(address: str) -> socket.socket:
    """A socket that listens on the address; UsageError when it is wrong or taken, before anything else begins."""
    host, port = parse(address)
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as problem:
        raise _wrong(address, f"the host is not known: {problem.strerror or problem}") from problem
    try:
        # The next run can have it at once; a listener of another process is still in the way.
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # [::] is every address, as elsewhere
        return socket.create_server(where, family=family, backlog=MAX_CONNECTIONS, dualstack_ipv6=both)
    except OSError as problem:
        taken = problem.errno == errno.EADDRINUSE
        why = "something else listens there" if taken else os.strerror(problem.errno or 0)
        raise _wrong(address, why) from problem


def shown(listening: socket.socket) -> str:
    """The address as a URL has it; with port 0, the port that was chosen."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _wrong(address: str, why: str) -> UsageError:
    hint = (
        "give every run on a machine an address of its own: `listen: 127.0.0.1:PORT` in the settings or "
        "GITOPS_AGENT_LISTEN=127.0.0.1:PORT (port 0 takes any free one); GITOPS_AGENT_LISTEN= serves nothing"
    )
    return UsageError(f"listen: cannot listen on {address}: {why}", hint=hint)
