"""One HTTP request, of which it is known afterwards whether it left us.

No redirect is followed and no proxy is asked: the request goes to the host that was allowed, or nowhere. Of the
answer only the status is read, because what else it holds is not ours to repeat.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import SplitResult, urlsplit

from gitops_agent.errors import GitopsAgentError

AGENT = "gitops-agent"
_PORTS = {"http": 80, "https": 443}


class Unreached(GitopsAgentError):
    """The request never left us, so it may be tried again; ``permanent``: once a person has changed something."""

    def __init__(self, message: str, *, hint: str = "", permanent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.permanent = permanent


class Unsure(GitopsAgentError):
    """The request left us, and no answer came: whether it was carried out cannot be known."""


def send(
    method: str, url: str, headers: Mapping[str, str], body: bytes, limits: tuple[frozenset[str], float]
) -> int:
    """The status of the answer. ``limits``: the hosts that may be called, and seconds for all of it."""
    hosts, timeout = limits
    parts = urlsplit(url)
    _check_host(parts, hosts)
    with closing(_connection(parts, timeout)) as connection:
        _connect(connection, url)
        late = threading.Timer(timeout, _shut, [connection])
        late.start()
        try:
            return _exchange(connection, method, parts, {**_HEADERS, **headers}, body)
        except (OSError, http.client.HTTPException) as problem:
            why = (
                f"no answer within {timeout:g} s"
                if late.finished.is_set() or _is_late(problem)
                else _said(problem)
            )
            raise Unsure(f"{method} {shown(url)} was sent and not answered: {why}") from None
        finally:
            late.cancel()


_HEADERS = {"Content-Type": "application/json", "User-Agent": AGENT}


def shown(url: str) -> str:
    """An address as messages may hold it: people put tokens into queries."""
    return url.partition("?")[0]


def _check_host(parts: SplitResult, hosts: frozenset[str]) -> None:
    """A host is listed alone (any port) or as ``host:port``; loopback is a host like any other."""
    host = (parts.hostname or "").lower()
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        raise Unreached(f"{parts.netloc} has no valid port", permanent=True) from None
    if host not in hosts and f"{host}:{port}" not in hosts:
        listed = ", ".join(sorted({*hosts, host}))
        raise Unreached(
            f"{host} is not a host that hooks may call",
            hint=f"if it should be, set hookHosts (GITOPS_AGENT_HOOK_HOSTS={listed}) and restart gitops-agent",
            permanent=True,
        )


def _connection(parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=timeout)


def _connect(connection: http.client.HTTPConnection, url: str) -> None:
    try:
        connection.connect()
    except (OSError, http.client.HTTPException, UnicodeError) as problem:
        hint = "nothing was sent; it is tried again by itself"
        raise Unreached(f"{shown(url)} could not be reached: {_said(problem)}", hint=hint) from None


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    parts: SplitResult,
    headers: Mapping[str, str],
    body: bytes,
) -> int:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request(method, target, body, dict(headers))
    return connection.getresponse().status


def _shut(connection: http.client.HTTPConnection) -> None:
    """The time for all of it is up: an answer that trickles in byte by byte is none."""
    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it ended just now


def _is_late(problem: Exception) -> bool:
    return isinstance(problem, TimeoutError)


def _said(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__
