"""The made-up remote system, simulated: an HTTP server in a thread that keeps workers, mailboxes and leases."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class RemoteSystem:
    """What the server holds. Tests read it and drift it."""

    def __init__(self) -> None:
        self.url = ""
        self.workers: dict[str, dict[str, Any]] = {}
        self.mailboxes: dict[str, dict[str, Any]] = {}
        self.leases: dict[str, str] = {}
        self.commands: list[list[str]] = []
        self.failing: set[str] = set()  # commands that exit with 1
        self.calls: Counter[str] = Counter()
        self.keys: dict[str, Any] = {}
        self.ready = True
        self.active = True
        self.probed_by_us = False
        self.lost_nodes: list[str] = []
        self._started = 0

    def handle(self, method: str, path: str, body: Any, key: str) -> Any:
        """The answer to one request; a change is made once for each key."""
        parts = urlsplit(path)
        what, _, name = parts.path[1:].partition("/")
        owner = parse_qs(parts.query).get("owner", [""])[0]
        self.calls[f"{method} {what}"] += 1
        if key and key in self.keys:
            return self.keys[key]
        answer = getattr(self, f"_{method.lower()}_{what}")(name, body, owner)
        if key:
            self.keys[key] = answer
        return answer

    def _get_workers(self, _name: str, _body: Any, owner: str) -> Any:
        found = [
            {**each, "running": self._running(each)} for each in self.workers.values() if each["owner"] == owner
        ]
        return {"workers": found, "lostNodes": self.lost_nodes}

    def _running(self, worker: dict[str, Any]) -> list[dict[str, Any]]:
        number = worker["copies"]
        return [{"id": f"copy-{n}", "startedAt": worker["startedAt"], "ready": self.ready} for n in range(number)]

    def _put_workers(self, name: str, body: Any, _owner: str) -> Any:
        known = self.workers.get(name)
        if known is None or body.pop("restart", False):
            self._started += 1
        made = {"id": f"w-{name}", "agent": name, "startedAt": 1_000.0 + self._started, **body}
        self.workers[name] = {**made, "start": self._started, "probedByUs": self.probed_by_us}
        return {"id": made["id"], "copies": made["copies"]}

    def _delete_workers(self, name: str, _body: Any, _owner: str) -> Any:
        self.workers.pop(name, None)

    def _get_mailboxes(self, _name: str, _body: Any, owner: str) -> Any:
        return [{**each, "active": self.active} for each in self.mailboxes.values() if each["owner"] == owner]

    def _put_mailboxes(self, name: str, body: Any, _owner: str) -> Any:
        self.mailboxes[name] = {"agent": name, **body}

    def _delete_mailboxes(self, name: str, _body: Any, _owner: str) -> Any:
        self.mailboxes.pop(name, None)

    def _post_exec(self, _name: str, body: Any, _owner: str) -> Any:
        self.commands.append(body["command"])
        failed = body["command"][0] in self.failing
        return {"code": int(failed), "output": "failed" if failed else "fine"}

    def _get_logs(self, name: str, _body: Any, _owner: str) -> Any:
        return [{"copy": "copy-0", "text": f"{name} says hello"}]

    def _post_leases(self, _name: str, body: Any, _owner: str) -> Any:
        refused = {}
        for agent in body["agents"]:
            holder = self.leases.setdefault(agent, body["holder"])
            if holder != body["holder"]:
                refused[agent] = holder
        return refused

    def _get_leases(self, name: str, _body: Any, _owner: str) -> Any:
        return self.leases.get(name)


@contextmanager
def remote_system() -> Iterator[RemoteSystem]:
    """A running server on a free loopback port."""
    system, lock = RemoteSystem(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                found = system.handle(
                    self.command, self.path, json.loads(data or b"null"), self.headers.get("Idempotency-Key", "")
                )
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names of the standard library

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        system.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield system
        finally:
            server.shutdown()
            thread.join()
