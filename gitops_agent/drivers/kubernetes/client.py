"""Requests to one API server: JSON in, JSON out, each with a time limit, and ApiError for all that goes wrong.

No typed models of the ``kubernetes`` package: they take three times as long as the JSON. Its pool of connections,
its TLS settings and its tokens are used (``config.Connection``).
"""

from __future__ import annotations

import copy
import io
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import orjson

from gitops_agent.drivers.kubernetes.config import ClusterConfig, Connection
from gitops_agent.drivers.kubernetes.errors import CUT, REFUSED, TIMEOUT, TLS, UNREACHABLE, ApiError, from_status

JSON_TYPE = "application/json"
APPLY_PATCH = "application/apply-patch+yaml"
"""JSON is YAML, so what we send under this name is JSON."""

MERGE_PATCH = "application/merge-patch+json"
CREATED = 201
USER_AGENT = "gitops-agent"
TERM_HEADER = "Impersonate-Extra-Gitops-Agent-Term"
TIMEOUT_SECONDS = 10.0
CONNECT_SECONDS = 5.0
_READ_BYTES = 2**16
_READS = ("GET", "HEAD")
_REPEATABLE = (*_READS, "PUT", "DELETE", "PATCH")  # our patches say what is to be, so twice is as once

Query = Mapping[str, str | int | bool]


def _no_fence() -> None:
    """Nothing stands before a write."""


class Client:
    """The way to one cluster for any number of threads. ``timeout``: seconds for one request, answer included.
    ``before_write``: called right before every request that changes something leaves; what it raises ends it."""

    def __init__(
        self,
        config: ClusterConfig | Connection,
        *,
        user_agent: str = USER_AGENT,
        timeout: float = TIMEOUT_SECONDS,
        before_write: Callable[[], None] = _no_fence,
    ) -> None:
        self._connection = config if isinstance(config, Connection) else config.connect()
        # Not compressed: that takes both sides longer than the network saves, and a watch would not come by line.
        self._headers = {"User-Agent": user_agent, "Accept": JSON_TYPE, "Accept-Encoding": "identity"}
        self._timeout = timeout
        self._before_write = before_write

    @property
    def host(self) -> str:
        """The address of the API server."""
        return self._connection.host

    def as_user(self, name: str) -> Client:
        """A client that acts as another user, on the same connections and behind the same fence."""
        other = copy.copy(self)
        other._headers = {**self._headers, "Impersonate-User": name}
        return other

    def in_term(self, name: str, term: int) -> Client:
        """A client whose every request says of which leadership it is, to admission policies that ask for it. Only
        the user of a request can say so, also for a deletion; hence it acts as itself, by ``name``."""
        other = self.as_user(name)
        other._headers = {**other._headers, TERM_HEADER: str(term)}
        return other

    def close(self) -> None:
        """Close the connections that are kept; those in use end with their answers."""
        self._connection.pool.clear()

    def get(self, path: str, **query: str | int | bool) -> dict[str, Any]:
        """What is at a path."""
        return self.request("GET", path, query=query)

    def apply(
        self, path: str, manifest: Mapping[str, Any], *, manager: str, force: bool, dry_run: bool = False
    ) -> dict[str, Any]:
        """The object after a server-side apply. ``force``: take over fields that other managers own."""
        query: dict[str, str | bool] = {"fieldManager": manager, "force": force}
        if dry_run:
            query["dryRun"] = "All"
        return self.request("PATCH", path, body=manifest, content_type=APPLY_PATCH, query=query)

    def put(
        self, path: str, manifest: Mapping[str, Any], *, manager: str, force: bool
    ) -> tuple[bool, dict[str, Any]]:
        """Whether a server-side apply made the object, and the object after it."""
        query: dict[str, str | bool] = {"fieldManager": manager, "force": force}
        status, answer = self._answered("PATCH", path, body=manifest, content_type=APPLY_PATCH, query=query)
        return status == CREATED, answer

    def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str = "Background",
    ) -> dict[str, Any]:
        """The object as it goes, or a Status once it is gone. ``uid`` and ``resource_version``: only if it is
        still that one."""
        asked = {"uid": uid, "resourceVersion": resource_version}
        only_if = {key: value for key, value in asked.items() if value is not None}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if only_if:
            body["preconditions"] = only_if
        return self.request("DELETE", path, body=body)

    def request(self, method: str, path: str, **asked: Any) -> dict[str, Any]:
        """The JSON that the API server answers; ApiError for any other outcome. ``asked``: ``body``,
        ``content_type``, ``query``, ``timeout`` (seconds) and ``headers`` of the request."""
        return self._answered(method, path, **asked)[1]

    def _answered(  # noqa: PLR0913 - what a request is made of
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON_TYPE,
        query: Query | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        limit = timeout or self._timeout
        end = time.monotonic() + limit
        data = None if body is None else orjson.dumps(body)
        asked = {**self._headers, **({"Content-Type": content_type} if data else {}), **(headers or {})}
        response = self._send(method, path, query or {}, data, asked, limit)
        content = _content(response, end, limit)
        if response.status >= 300:
            raise from_status(response.status, content, response.headers)
        try:
            answer = orjson.loads(content) if content else {}
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise ApiError(response.status, "NoJson", f"{self.host} answered something else than a JSON object")
        return response.status, answer

    def stream(
        self,
        method: str,
        path: str,
        query: Query,
        read_timeout: float,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> LineStream:
        """The lines of an answer as they come. ``read_timeout``: seconds of silence after which it is cut."""
        asked = {**self._headers, **(headers or {})}
        limit = min(self._timeout, read_timeout)
        response = self._send(method, path, query, None, asked, limit)
        if response.status >= 300:
            content = _content(response, time.monotonic() + self._timeout, self._timeout)
            raise from_status(response.status, content, response.headers)
        # A stream begins as soon as any answer does, and only then may it be silent for longer.
        sock = getattr(response.connection, "sock", None)
        if sock is not None:
            sock.settimeout(read_timeout)
        return LineStream(response, limit if sock is None else read_timeout)

    def websocket(self, path: str, protocol: str, limit: float) -> Any:
        """An open websocket to a path, such as for a command in a pod."""
        import websocket

        headers = {
            name: value for name, value in self._headers.items() if name.startswith(("User-", "Impersonate-"))
        }
        headers |= self._authorization()
        self._before_write()
        # What ended before anything was sent is told apart from what may have begun.
        try:
            return self._connection.websocket(path, headers, protocol, min(limit, CONNECT_SECONDS))
        except websocket.WebSocketBadStatusException as problem:
            raise from_status(problem.status_code, bytes(problem.resp_body or b""), {}) from None
        except (
            ConnectionRefusedError,
            websocket.WebSocketAddressException,
            websocket.WebSocketProxyException,
        ) as problem:
            raise ApiError(0, REFUSED, f"{_innermost(problem)} ({self.host})") from problem
        except (ssl.SSLCertVerificationError, FileNotFoundError) as problem:  # theirs, or a file of ours
            raise ApiError(0, TLS, f"{_innermost(problem)} ({self.host})") from problem
        except (websocket.WebSocketException, OSError) as problem:
            raise _transport_error(problem, limit) from problem

    def _send(
        self, method: str, path: str, query: Query, data: bytes | None, headers: Mapping[str, str], limit: float
    ) -> Any:
        """The response, its body still to be read."""
        changes = method not in _READS and "dryRun" not in query
        url = f"{self.host}{path}" + (f"?{urlencode({k: _text(v) for k, v in query.items()})}" if query else "")
        for attempt in (1, 2):
            sent = {**headers, **self._authorization()}
            body: bytes | _Guarded | None = data
            if changes:
                self._before_write()
            if changes and data is not None:
                body = _Guarded(data, self._before_write)
                sent["Content-Length"] = str(len(data))
            try:
                return self._urlopen(method, url, body, sent, limit)
            except ApiError as problem:
                # A kept connection that the server closed just now: once more, on another one.
                if problem.reason != CUT or attempt == 2 or method not in _REPEATABLE:
                    raise
        raise AssertionError("unreachable")

    def _urlopen(
        self, method: str, url: str, data: bytes | _Guarded | None, headers: Mapping[str, str], limit: float
    ) -> Any:
        import urllib3  # late, with the kubernetes package

        timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, limit), read=limit)
        try:
            return self._connection.pool.urlopen(
                method,
                url,
                body=data,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise _transport_error(problem, limit, self.host) from problem

    def _authorization(self) -> Mapping[str, str]:
        try:
            return self._connection.authorization()
        except Exception as problem:  # a token file that is gone, a program that fails; its text may hold secrets
            raise ApiError(401, "Unauthorized", f"no credentials: {type(problem).__name__}") from None


class _Guarded(io.BytesIO):
    """The body of a request that changes something: ``before_write`` is asked once more when it is about to leave.
    Until then a new connection may have taken seconds, or this process may have been paused."""

    def __init__(self, data: bytes, before_write: Callable[[], None]) -> None:
        super().__init__(data)
        self._before_write = before_write

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() == 0:
            self._before_write()
        return super().read(size)


class LineStream:
    """The lines of one answer. Closed from any thread, after which the iteration just ends."""

    def __init__(self, response: Any, read_timeout: float) -> None:
        self._response = response
        self._read_timeout = read_timeout
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        """The lines without their ends; ApiError when it was cut or silent for too long."""
        parts: list[bytes] = []
        try:
            while chunk := self._read():
                *lines, rest = chunk.split(b"\n")
                for line in lines:
                    parts.append(line)
                    yield b"".join(parts)
                    parts.clear()
                if rest:
                    parts.append(rest)
            if parts and not self._closed:
                yield b"".join(parts)
        finally:
            self._closed = True
            self._response.close()  # not given back: there may be more to come on it

    def _read(self) -> bytes:
        import urllib3  # late, with the kubernetes package

        try:
            return b"" if self._closed else bytes(self._response.read1(_READ_BYTES))
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as problem:
            if self._closed:  # then anything may be found missing
                return b""
            raise _transport_error(problem, self._read_timeout) from problem

    def close(self) -> None:
        """End it, also while another thread waits for the next line."""
        if self._closed:
            return
        self._closed = True
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            pass  # it is over already


def _content(response: Any, end: float, limit: float) -> bytes:
    """The whole body, unless it takes longer than until ``end``."""
    import urllib3  # late, with the kubernetes package

    parts = []
    try:
        while part := response.read1(_READ_BYTES):
            parts.append(part)
            if time.monotonic() > end:
                response.close()
                raise ApiError(0, TIMEOUT, f"the answer was not complete within {limit:g} s")
    except (urllib3.exceptions.HTTPError, OSError) as problem:
        response.close()
        raise _transport_error(problem, limit) from problem
    response.release_conn()
    return b"".join(parts)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _transport_error(problem: BaseException, limit: float, host: str = "") -> ApiError:
    """The error of a request without an answer, in the words of the operating system where it has any.
    ``host``: the address that was asked, which says of several clusters which one is meant."""
    from urllib3 import exceptions  # late, with the kubernetes package

    at = f" ({host})" if host else ""
    if isinstance(problem, exceptions.ProxyError):
        return ApiError(0, UNREACHABLE, f"by the proxy: {_innermost(problem)}{at}")
    if isinstance(problem, exceptions.SSLError):
        return ApiError(0, TLS, f"{_innermost(problem)}{at}")
    if isinstance(problem, exceptions.ReadTimeoutError | TimeoutError):
        return ApiError(0, TIMEOUT, f"no answer within {limit:g} s")
    if isinstance(problem, exceptions.NewConnectionError):
        refused = isinstance(_cause(problem), ConnectionRefusedError)
        return ApiError(0, REFUSED if refused else UNREACHABLE, f"{_innermost(problem)}{at}")
    if isinstance(problem, exceptions.ConnectTimeoutError):
        return ApiError(0, UNREACHABLE, f"no connection within {min(CONNECT_SECONDS, limit):g} s{at}")
    if isinstance(problem, exceptions.ProtocolError | OSError):
        return ApiError(0, CUT, f"the connection was cut: {_innermost(problem)}")
    return ApiError(0, UNREACHABLE, f"{_innermost(problem)}{at}")


def _cause(problem: BaseException) -> BaseException:
    """What began it: the last of the exceptions that each stand behind another."""
    while (behind := problem.__cause__ or problem.__context__ or _argument(problem)) is not None:
        problem = behind
    return problem


def _argument(problem: BaseException) -> BaseException | None:
    return next((each for each in problem.args if isinstance(each, BaseException)), None)


def _innermost(problem: BaseException) -> str:
    cause = _cause(problem)
    return (
        getattr(cause, "verify_message", "")
        or getattr(cause, "strerror", None)
        or str(cause)
        or type(cause).__name__
    )
