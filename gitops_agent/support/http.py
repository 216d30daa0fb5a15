"""One HTTP request, of which it is known afterwards whether it left us.

No redirect is followed, no proxy is asked and no credential of the environment is used: the request goes to the
host in its address, or nowhere. The caller decides which hosts may be called (``endpoint`` names host and port).
"""

import http.client
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from gitops_agent.support.deadline import deadline

_PORTS = {"http": 80, "https": 443}


class HttpError(Exception):
    """No complete answer came; ``NotSent`` and ``NotAnswered`` say what that means."""


class NotSent(HttpError):
    """The request never left us, so it may be tried again."""


class NotAnswered(HttpError):
    """The request left us and no complete answer came in time: whether it had an effect is unknown."""


class Answer(NamedTuple):
    """What the server answered. ``body`` is cut at the cap that was given."""

    status: int
    body: bytes = b""


def endpoint(url: str) -> tuple[str, int]:
    """Host and port of an ``http`` or ``https`` address; ValueError when it has none."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("this is not an http or https address")
    return parts.hostname.lower(), parts.port or _PORTS[parts.scheme]


def request(
    method: str,
    url: str,
    *,
    timeout: float,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    body_cap: int = 0,
) -> Answer:
    """The answer to one request, with at most ``body_cap`` bytes; NotSent or NotAnswered when there is none.

    ``timeout``: seconds to connect, and again for the whole exchange.
    """
    parts = urlsplit(url)
    with closing(_connection(parts, timeout)) as connection:
        try:
            connection.connect()
        except (OSError, http.client.HTTPException, ValueError) as problem:
            raise NotSent(reason(problem)) from problem
        with deadline(timeout, partial(_cut, connection.sock)) as late:
            try:
                answer = _exchange(connection, method, parts, headers or {}, body, body_cap)
            except (OSError, http.client.HTTPException) as problem:
                in_time = not late.is_set() and not isinstance(problem, TimeoutError)
                raise NotAnswered(reason(problem) if in_time else _too_late(timeout)) from problem
        if late.is_set():  # what was cut off may look complete
            raise NotAnswered(_too_late(timeout))
        return answer


def reason(problem: Exception) -> str:
    """Why a connection failed, without the address: that may hold a token."""
    return (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__


def _too_late(timeout: float) -> str:
    return f"no complete answer within {timeout:g} s"


def _connection(parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=timeout)


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    parts: SplitResult,
    headers: Mapping[str, str],
    body: bytes | None,
    body_cap: int,
) -> Answer:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request(method, target, body, {"Connection": "close", **headers})
    response = connection.getresponse()
    return Answer(response.status, response.read(body_cap) if body_cap else b"")


def _cut(connected: socket.socket) -> None:
    """End an exchange, even while an answer drips in."""
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it ended at the same moment
