"""Alive, and no progress: every surface says the same, nothing is cut off, and what is seen is on record first."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.fleet import GONE, Fleet, signal_pid, state, until

from .test_metrics import HERE, Voice

AGENT = """
import sys, time
from pathlib import Path
from gitops_agent.heartbeat import Heartbeat
heartbeat, open_ = Heartbeat(), Path(sys.argv[1])
heartbeat.beat(turn=7)
while True:
    if open_.exists():
        with heartbeat.tool_call("crm.lookup"):
            while open_.exists():
                time.sleep(0.1)
                heartbeat.beat()
    time.sleep(0.1)
    heartbeat.beat()
"""


def test_a_tool_call_that_is_open_for_too_long_is_stuck_on_every_surface(fleet: Fleet, tmp_path: Path) -> None:
    call = tmp_path / "call"
    heartbeat = {"staleAfter": "30s", "maxToolCall": "2s"}
    fleet.commit({"a.yaml": fleet.agent("a", sys.executable, "-c", AGENT, str(call), heartbeat=heartbeat)})
    with fleet.running(**HERE) as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        voice, pid = Voice(fleet, daemon), fleet.pid("a")
        call.touch()
        stuck = until(lambda: fleet.condition(fleet.status(), "a", "Stuck"), "it is stuck")
        assert stuck["reason"] == "ToolCallStuck"
        assert "crm.lookup is open for more than 2 s" in stuck["message"]
        assert not fleet.row(fleet.status(), "a")["ready"]
        until(lambda: voice.value("gitops_agent_drift_standing{StuckProgress}") == 1, "the metric")
        assert voice.value("gitops_agent_agents{Stuck}") == 1

        # Another process counts by the moment on record, which is kept to the second.
        (found,) = until(lambda: fleet.ask("drift")["drifts"], "drift sees it too")
        assert (found["class"], found["reason"], found["decision"]) == ("StuckProgress", "ToolCallStuck", "ask")
        (flow,) = (each for each in fleet.ask("workflows")["workflows"] if each["kind"] == "agent")
        assert (flow["stuck"], flow["reason"]) == (True, "ToolCallStuck")
        assert "gitops-agent approve " in flow["wayOut"]
        told = fleet.call("explain", "a").out
        assert "turn 7 for" in told
        assert "tool calls in progress: crm.lookup for" in told
        assert "In the way\n  Stuck since" in told
        assert "Next\n  It is left alone until it makes progress again, or people decide as said above.\n" in told
        assert fleet.pid("a") == pid, "it was left alone"

        call.unlink()
        until(lambda: fleet.row(fleet.status(), "a")["ready"], "the call ended")
        assert fleet.condition(fleet.status(), "a", "Stuck") is None


def test_a_suspended_agent_is_never_ready_and_once_does_not_wait_for_it(fleet: Fleet) -> None:
    """Its probes pass, because they do not ask the agent."""
    probe = {"exec": {"command": ["true"]}, "period": "1s"}
    fleet.commit({"a.yaml": fleet.agent("a", probes={"readiness": probe, "liveness": probe})} | fleet.agents("b"))
    fleet.once()
    pids = [fleet.pid(name) for name in "ab"]
    for pid in pids:
        signal_pid(pid, signal.SIGSTOP)
    began = time.monotonic()
    answer = fleet.once("--timeout", "60s", code=5)
    assert time.monotonic() - began < 30
    ready = fleet.condition(answer, "a")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == (False, "SourcesDisagree")
    assert fleet.condition(answer, "a", "Stuck") is not None
    assert state(pids[0]) == "T", "its probes say that it is well: that is for people"
    assert fleet.row(answer, "b")["ready"]
    assert state(pids[1]) != "T"
    resumed = fleet.ask("explain", "b")["actions"][0]
    assert resumed["outcome"] == f"resumed (SIGCONT) replica 0 (pid {pids[1]})"
    signal_pid(pids[0], signal.SIGCONT)
    fleet.once()


def test_an_agent_that_lost_its_runner_goes_on_and_explain_says_so(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    pid, (runner,) = fleet.pid("a"), fleet.runners("a")
    assert "runner" not in fleet.call("explain", "a").out
    signal_pid(runner, signal.SIGKILL)
    until(lambda: not fleet.runners("a"), "its runner is gone")
    answer = fleet.once()
    assert fleet.row(answer, "a")["ready"]
    assert fleet.pids("a") == [pid], "it is not restarted for that"
    told = fleet.call("explain", "a").out
    assert f"pid {pid} runs without a runner" in told
    assert "may not be found until its next restart." in told


def test_what_is_seen_is_on_record_before_its_repair_and_only_when_it_is_news(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()

    def rows(query: str) -> list[Any]:
        with sqlite3.connect(fleet.state / "journal.db") as journal:
            return journal.execute(query).fetchall()

    count = "SELECT count(*) FROM observations"
    before = rows(count)
    fleet.once()
    fleet.once()
    assert rows(count) == before, "a start of ours is no news of agents that run on"
    with fleet.running():
        until(fleet.daemon_log, "it runs")
        fleet.kill("a")
        until(lambda: fleet.pids("a"), "a is back")
        until(lambda: fleet.row(fleet.status(), "a")["ready"], "a is ready")
    mine = f"key = '{fleet.key('a')}:runtime/process'"
    seen = [
        (json.loads(value)["state"], at)
        for value, at in rows(f"SELECT value, observed_at FROM observations WHERE {mine} ORDER BY seq")
    ]
    assert [word for word, _ in seen] == ["Running", "Missing", "Running"]
    ((begun, reason),) = rows(f"SELECT at, reason FROM intents WHERE {mine} ORDER BY seq DESC LIMIT 1")
    assert reason in GONE
    assert seen[1][1] <= begun, "in a pass over this agent alone, too"


def test_a_suspension_an_edited_bundle_and_a_heartbeat_are_noticed_without_a_resync(fleet: Fleet) -> None:
    """The daemon looks at everything once an hour."""
    late = (
        "import time; from gitops_agent.heartbeat import Heartbeat; beat = Heartbeat().beat\n"
        "beat(); time.sleep(4)\n"
        "while True: beat(); time.sleep(0.1)"
    )
    heartbeat = {"staleAfter": "1s", "onStale": "Report"}
    fleet.commit(
        fleet.agents("a", "b") | {"c.yaml": fleet.agent("c", sys.executable, "-c", late, heartbeat=heartbeat)}
    )
    with fleet.running():
        fleet.await_phase(fleet.head(), "Converged")
        until(lambda: fleet.condition(fleet.status(), "c", "Stuck"), "c is stale")
        pid, bundle = fleet.pid("a"), fleet.folder("b") / "config.json"
        written = bundle.read_text()
        signal_pid(pid, signal.SIGSTOP)
        bundle.write_text("{}")
        until(lambda: state(pid) != "T", "a is resumed")
        until(lambda: bundle.read_text() == written, "the bundle of b is written again")
        until(lambda: fleet.row(fleet.status(), "c")["ready"], "c goes on")
