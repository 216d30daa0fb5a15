"""Ready means healthy: probes, uptime, heartbeats, and agents that cannot, will not or should not run."""

from __future__ import annotations

import socket
import sys
from datetime import UTC, datetime

from tests.support.fleet import Fleet, alive, until

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 500)
        self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ignoring", flush=True)
time.sleep(600)
"""
BEATS = """
import contextlib, sys, time
from gitops_agent.heartbeat import Heartbeat
heartbeat = Heartbeat()
heartbeat.beat(turn=1)
with heartbeat.tool_call(sys.argv[1]) if sys.argv[1:] else contextlib.nullcontext():
    time.sleep(600)
"""
FLOOD = "import os, time\nwhile os.write(1, b'x' * 1023 + b'\\n'): pass"


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def test_readiness_gates_the_commit_and_a_timeout_degrades_it(fleet: Fleet) -> None:
    port = free_port()
    readyz, never = ({"http": {"port": port, "path": path}, "period": "200ms"} for path in ("/readyz", "/never"))
    command = (sys.executable, "-c", SERVER, str(port))
    fleet.commit({"web.yaml": fleet.agent("web", *command, probes={"readiness": readyz})})
    assert fleet.row(fleet.once(), "web")["ready"]

    bad = fleet.commit(
        {
            "web.yaml": fleet.agent(
                "web", *command, probes={"readiness": never}, rollout={"healthTimeout": "1s"}, instructions="New."
            )
        }
        | fleet.agents("other")
    )
    answer = fleet.once(code=5)
    assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Degraded", bad, bad)
    stalled = fleet.condition(answer, "web", "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "HealthTimeout"
    assert "GET" in stalled["message"], "what the probe said"
    assert fleet.row(answer, "other")["ready"], "its siblings are not held up"
    assert fleet.note(bad).startswith(f"{fleet.instance}: Degraded, 2 agents")
    assert "not Ready" in fleet.note(bad).splitlines()[0]
    assert "HealthTimeout" in fleet.call("explain", "web").out


def test_out_of_time_is_said_and_the_next_once_goes_on(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", runtime={"minUptime": "3s"}))
    answer = fleet.call("once", "--timeout", "1s")
    assert answer.code == 5
    assert "not converged within 1 s" in answer.err
    assert fleet.key("a") in answer.err
    pid = fleet.pid("a")
    assert fleet.once()["phase"] == "Converged"
    assert fleet.pid("a") == pid


def test_a_command_that_is_not_found_stalls_and_says_so(fleet: Fleet) -> None:
    timeout = {"healthTimeout": "1s"}
    fleet.commit({"a.yaml": fleet.agent("a", "no-such-program-anywhere", rollout=timeout)} | fleet.agents("b"))
    answer = fleet.once(code=5)
    stalled = fleet.condition(answer, "a", "Stalled")
    assert stalled is not None
    assert "no-such-program-anywhere" in stalled["message"]
    assert fleet.row(answer, "b")["ready"]
    next_try = fleet.row(answer, "a")["nextTryAt"]
    assert datetime.fromisoformat(next_try) > datetime.now(UTC)
    text = fleet.call("explain", "a").out
    assert "no-such-program-anywhere" in text
    assert "nothing is noticed or done until one is" in text, "once has ended, and nothing else runs"

    fleet.commit(fleet.agents("a"), "A command that exists")
    assert fleet.once()["phase"] == "Converged", "a commit is a fresh start"


def test_a_command_that_exits_at_once_backs_off_and_stalls(fleet: Fleet) -> None:
    # Alive for a second, not for a moment: on a busy machine to exit takes longer than that.
    spec = {"rollout": {"healthTimeout": "2s"}, "runtime": {"minUptime": "1s"}}
    dies = fleet.agent("dies", "sh", "-c", "echo dying; exit 3", **spec)
    fleet.commit({"dies.yaml": dies} | fleet.agents("b"))
    pid_b = 0
    answer = fleet.once(code=5)
    assert answer["phase"] == "Degraded"
    pid_b = fleet.pid("b")
    assert not fleet.row(answer, "dies")["ready"]
    assert fleet.condition(answer, "dies", "Stalled")
    explained = fleet.ask("explain", "dies")
    (attempt,) = explained["attempts"]
    assert attempt["failures"] >= 1
    assert attempt["nextTryAt"] is not None
    assert "exited with code 3" in str(explained["actions"]) + str(explained["attempts"])
    tries = len(fleet.ask("logs", "dies")["logs"][0]["lines"])
    assert tries < 10, "it backs off"
    assert fleet.pid("b") == pid_b


def test_a_command_that_ignores_sigterm_is_killed_after_its_grace(fleet: Fleet) -> None:
    spec = {"runtime": {"stop": {"grace": "300ms"}}}
    fleet.commit({"a.yaml": fleet.agent("a", sys.executable, "-c", STUBBORN, **spec)} | fleet.agents("b"))
    fleet.once()
    pid = fleet.pid("a")
    until(lambda: fleet.ask("logs", "a")["logs"][0]["lines"], "it to ignore the signal")
    fleet.commit({"a.yaml": None}, "Away with it")
    assert fleet.once()["phase"] == "Converged"
    assert not alive(pid)
    assert len(fleet.pids()) == 1


def test_a_log_flood_is_rotated_while_run_is_up(fleet: Fleet) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", sys.executable, "-c", FLOOD)})
    with fleet.running():
        fleet.await_phase(fleet.head(), "Converged")
        logs = fleet.folder("a") / "logs"
        until(lambda: (logs / "0.log.1").exists() or len(list(logs.iterdir())) > 1, "a rotated log")
        fleet.kill("a")
    total = sum(path.stat().st_size for path in logs.iterdir())
    assert total < 400 * 2**20
    shown = fleet.call("logs", "a", "-n", "2")
    assert shown.code == 0
    assert shown.out.count("\n") <= 2


def test_a_stale_heartbeat_restarts_unless_a_tool_call_is_in_progress(fleet: Fleet) -> None:
    heartbeat = {"staleAfter": "1s"}
    fleet.commit(
        {
            "idle.yaml": fleet.agent("idle", sys.executable, "-c", BEATS, heartbeat=heartbeat),
            "calling.yaml": fleet.agent("calling", sys.executable, "-c", BEATS, "crm.search", heartbeat=heartbeat),
        }
    )
    with fleet.running():
        fleet.await_phase(fleet.head(), "Converged")
        idle, calling = fleet.pid("idle"), fleet.pid("calling")
        until(lambda: fleet.pids("idle") not in ([], [idle]), "idle is restarted")
        reported = until(
            lambda: (
                (said := fleet.condition(fleet.status(), "calling")) and "crm.search" in said["message"] and said
            ),
            "calling is reported",
        )
        assert (reported["status"], reported["reason"]) == (True, "ToolCallInProgress")
        assert fleet.pid("calling") == calling
    reasons = [action["reason"] for action in fleet.ask("explain", "idle")["actions"]]
    assert "HeartbeatStale" in reasons
