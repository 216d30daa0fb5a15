"""``run``: what happens is noticed by event. Polling is set to an hour, so that nothing else could explain it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from tests.support.fleet import Fleet, alive, until


def test_exits_and_commits_are_noticed_by_event(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    with fleet.running() as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        other = fleet.pid("b")

        lost = fleet.kill("a")
        until(lambda: fleet.pids("a") not in ([], [lost]), "a comes back")
        explained = fleet.ask("explain", "a")
        assert explained["actions"][0]["actor"] == "run"

        sha = fleet.commit(fleet.agents("a", runtime={"replicas": 2}), "Two of them")
        fleet.await_phase(sha, "Converged")
        assert len(fleet.pids("a")) == 2
        assert fleet.pid("b") == other

        bad = fleet.commit({"a.yaml": "kind: Agent\napiVersion: gitops-agent.dev/v1\n"}, "Oops")
        status = fleet.await_phase(bad, "Invalid")
        assert status["enforced"] == sha
        fleet.kill("a")
        until(lambda: len(fleet.pids("a")) == 2, "the last good commit is still repaired")

        back = fleet.revert("HEAD")
        fleet.await_phase(back, "Converged")
        until(lambda: fleet.note(back).startswith(f"{fleet.instance}: Converged"), "the note is pushed")
        assert fleet.note(bad).startswith(f"{fleet.instance}: Invalid")
        before = fleet.pids()

        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(20) == 0
    assert fleet.pids() == before, "agents outlive us"


def test_a_daemon_that_is_killed_leaves_agents_that_the_next_one_finds(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    with fleet.running() as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        before = fleet.pids()
        assert fleet.status()["running"]
        daemon.kill()
        daemon.wait()
        assert not fleet.status()["running"]
        assert "no gitops-agent is running" in fleet.call("status").out
    lost = fleet.kill("a")
    with fleet.running():
        until(lambda: fleet.pids("a"), "a is back")
        assert fleet.pid("a") != lost
        kept = fleet.pid("b")
        assert kept in before
        until(lambda: fleet.row(fleet.status(), "a")["ready"], "a is Ready")
        fleet.kill("b")
        until(lambda: fleet.pids("b"), "adopted agents are watched as well")
        assert fleet.pid("b") != kept


def test_a_remote_that_goes_and_comes_back(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    with fleet.running(GITOPS_AGENT_POLL_INTERVAL="200ms"):
        good = fleet.await_phase(fleet.head(), "Converged")["enforced"]
        pid = fleet.pid("a")
        away = fleet.bare.with_name("away.git")
        fleet.bare.rename(away)
        until(lambda: fleet.status()["findings"], "the problem is said")
        assert fleet.status()["enforced"] == good
        assert fleet.pid("a") == pid
        away.rename(fleet.bare)
        until(lambda: not fleet.status()["findings"], "the problem is over")
        sha = fleet.commit(fleet.agents("a", "b"))
        fleet.await_phase(sha, "Converged")
        assert fleet.pid("a") == pid


def test_dependants_follow_as_soon_as_what_they_wait_for_is_ready(fleet: Fleet) -> None:
    fleet.repo = str(fleet.work)  # somebody's working copy: its commits count, its files do not
    fleet.commit(fleet.agents("base"))
    with fleet.running():
        fleet.await_phase(fleet.head(), "Converged")
        gate = fleet.state.parent / "gate"
        probe = {"readiness": {"exec": {"command": ["test", "-e", str(gate)]}, "period": "200ms"}}
        sha = fleet.commit(
            fleet.agents("first", probes=probe) | fleet.agents("next", rollout={"dependsOn": [fleet.key("first")]})
        )
        until(lambda: fleet.pids("first"), "first starts")
        assert fleet.pids("next") == []
        gate.touch()
        fleet.await_phase(sha, "Converged")
        assert alive(fleet.pid("next"))


def test_logs_on_stderr_are_structured_and_stdout_is_silent(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    daemon = subprocess.Popen(
        fleet.command("run"),
        cwd=fleet.work,
        env=fleet.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        fleet.await_phase(fleet.head(), "Converged")
    finally:
        daemon.terminate()
        out, err = daemon.communicate(timeout=20)
    assert (daemon.returncode, out) == (0, b"")
    events = [json.loads(line) for line in err.decode().splitlines()]
    assert {event["event"] for event in events} >= {"action", "pass"}
    assert all("timestamp" in event and "level" in event for event in events)


def test_logs_can_be_followed(fleet: Fleet) -> None:
    talk = "import itertools, time\nfor n in itertools.count(): print('turn', n, flush=True); time.sleep(0.05)"
    fleet.commit({"a.yaml": fleet.agent("a", sys.executable, "-c", talk)})
    fleet.once()
    words = fleet.command("logs", "a", "--follow", "-n", "1")
    reader = subprocess.Popen(words, env=fleet.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert reader.stdout is not None
    try:
        lines = [reader.stdout.readline().decode() for _ in range(8)]
    finally:
        reader.terminate()
        reader.communicate(timeout=20)
    numbers = [int(line.removeprefix("turn ")) for line in lines]
    assert numbers == list(range(numbers[0], numbers[0] + 8)), "none twice, none left out"
