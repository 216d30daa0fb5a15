"""The HTTP API of the made-up system. Foreign errors become ours here, and nowhere else."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from gitops_agent.drivers.api import ApplyError, Context, ObserveError

TIMEOUT_SECONDS = 5.0


class Client:
    """JSON requests to one server."""

    def __init__(self, context: Context) -> None:
        self._url = getattr(context.settings, "url", "")

    def read(self, path: str) -> Any:
        """The answer to a question; ObserveError when there is none."""
        try:
            return self._send("GET", path, None, "")
        except (OSError, ValueError) as problem:
            raise ObserveError(
                f"the remote system does not answer: {problem}", hint="check drivers.*.url"
            ) from None

    def write(self, method: str, path: str, body: Any, key: str) -> Any:
        """The answer to a change, which the server makes once for each key; ApplyError when there is none."""
        try:
            return self._send(method, path, body, key)
        except (OSError, ValueError) as problem:
            raise ApplyError(f"the remote system refused {method} {path}: {problem}") from None

    def _send(self, method: str, path: str, body: Any, key: str) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return json.loads(answer.read() or b"null")
