"""What every demo agent shares: the bundle it reads, the door it answers at, the pulse it writes, a clean end."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gitops_agent.heartbeat import Heartbeat

Question = Mapping[str, str]
Route = Callable[[Question], object]
Turn = Callable[[int], None]


def log(message: str) -> None:
    """One line on stdout: gitops-agent keeps it in a rotated file, ``gitops-agent logs`` shows it."""
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


class _Bundle:
    """The bundle as it was last read: a file that is away for a while does not end an agent that has read it."""

    def __init__(self) -> None:
        self._last: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        path = os.environ.get("MANAGED_AGENT_CONFIG")
        if not path:
            return {}
        try:
            self._last = json.loads(Path(path).read_bytes())
        except OSError:
            if self._last is None:
                raise
        return self._last or {}


_BUNDLE = _Bundle()


def bundle() -> dict[str, Any]:
    """What Git says about this agent's brain: model, instructions, tools, mcpServers, limits."""
    return _BUNDLE.read()


def instructions() -> str:
    """The instructions now in the bundle; empty when there are none."""
    return str(bundle().get("instructions") or "")


def serve(routes: Mapping[str, Route]) -> None:
    """Answer GET on ``PORT`` (loopback only) from a thread of its own; ``/readyz`` is always there."""
    known: dict[str, Route] = {"/readyz": lambda _: "ready", **routes}

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = urlsplit(self.path)
            route = known.get(target.path)
            question = {name: values[-1] for name, values in parse_qs(target.query).items()}
            self._send(200, route(question)) if route else self._send(404, f"nothing at {target.path}")

        def _send(self, code: int, answer: object) -> None:
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Probes come every second; a line for each would bury what the agent has to say."""

    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Door)
    Thread(target=server.serve_forever, daemon=True).start()


def live(turn: Turn, *, every: float = 1.0, heartbeat: Heartbeat | None = None) -> None:
    """Take turns, with a heartbeat for each, until SIGTERM; return then, so that the turn in hand is finished."""
    asked: SimpleQueue[int] = SimpleQueue()  # its put is safe in a signal handler, which Event.set is not
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.put(number))
    pulse = heartbeat or Heartbeat()
    for number in count(1):
        pulse.beat(turn=number)
        turn(number)
        try:
            asked.get(timeout=every)
        except Empty:
            continue
        log("asked to stop: leaving")
        return
