"""One source that lies about a living process restarts nothing; two that agree do."""

from __future__ import annotations

import socket
import sys

from tests.support.fleet import Fleet, until

AGENT = """
import http.server, pathlib, sys
from gitops_agent.heartbeat import Heartbeat
folder, heartbeat = pathlib.Path(sys.argv[2]), Heartbeat()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/alive":
            with (folder / "asked").open("a") as asked:
                asked.write("x")
        dead = self.path == "/alive" and (folder / "dead").exists()
        self.send_response(503 if dead else 200)
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.timeout = 0.1
while True:
    if not (folder / "still").exists():
        heartbeat.beat()
    server.handle_request()
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def test_a_liveness_probe_that_is_alone_in_its_opinion_restarts_nothing(fleet: Fleet) -> None:
    port, folder = free_port(), fleet.work.parent / "signs"
    folder.mkdir()
    patient = {"period": "100ms", "timeout": "5s"}
    probes = {
        "liveness": {"http": {"port": port, "path": "/alive"}, **patient},
        "readiness": {"http": {"port": port, "path": "/ready"}, **patient},
    }
    command = (sys.executable, "-c", AGENT, str(port), str(folder))
    fleet.commit({"a.yaml": fleet.agent("a", *command, probes=probes, heartbeat={"staleAfter": "4s"})})
    with fleet.running():
        fleet.await_phase(fleet.head(), "Converged")
        pid = fleet.pid("a")

        (folder / "dead").touch()
        until(lambda: "SourcesDisagree" in str(fleet.condition(fleet.status(), "a")), "the dispute to be shown")
        ready = fleet.condition(fleet.status(), "a")
        assert ready is not None
        assert ready["status"], "readiness says so"
        for word in ("liveness probe: fails (GET", "heartbeat: written within 4 s", "readiness probe: passes"):
            assert word in ready["message"]
        (folder / "asked").unlink()
        until(lambda: (folder / "asked").exists() and (folder / "asked").stat().st_size > 10, "it to be asked on")
        assert fleet.pids("a") == [pid]

        (folder / "still").touch()
        until(lambda: fleet.pids("a") not in ([], [pid]), "a is restarted once two agree")
    restart = next(each for each in fleet.ask("explain", "a")["actions"] if each["verb"] == "restart")
    assert restart["reason"] in ("LivenessFailed", "HeartbeatStale")
    heard = {each["source"]: each["said"] for each in restart["evidence"]}
    assert heard["heartbeat"] == "none within 4 s"
    assert heard["liveness probe"].startswith("fails")
    assert "Evidence at" in fleet.call("explain", "a").out
