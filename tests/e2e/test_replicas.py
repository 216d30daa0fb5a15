"""Replicas of an agent follow a commit one after the other, whatever happens to gitops-agent meanwhile."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.support.fleet import Fleet, signal_pid, until

# Writes down when it starts, is ready (a moment later) and ends; its probe looks at the file of its own replica.
AGENT = """
import os, pathlib, signal, sys, time
folder, replica, version = pathlib.Path(sys.argv[1]), os.environ["MANAGED_AGENT_REPLICA"], sys.argv[2]
ready = folder / f"ready-{replica}"
def note(word):
    with (folder / "events").open("a") as events:
        events.write(f"{word} {version} {replica}\\n")
def end(*_):
    ready.unlink(missing_ok=True)
    note("end")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
note("start")
time.sleep(0.3)
if version != "broken":
    ready.touch()
    note("ready")
while True:
    signal.pause()
"""


def agent(fleet: Fleet, folder: Path, version: str) -> dict[str, str]:
    command = (sys.executable, "-c", AGENT, str(folder), version)
    probe = {"exec": {"command": ["sh", "-c", f"test -e {folder}/ready-$MANAGED_AGENT_REPLICA"]}, "period": "1s"}
    return {"a.yaml": fleet.agent("a", *command, probes={"readiness": probe}, runtime={"replicas": 3})}


def events(folder: Path) -> list[str]:
    return (folder / "events").read_text().splitlines()


def in_turn(old: str, new: str) -> list[str]:
    return [f"{word} {v} {n}" for n in range(3) for word, v in (("end", old), ("start", new), ("ready", new))]


def test_each_replica_is_ready_before_the_next_goes_also_across_a_kill(fleet: Fleet, tmp_path: Path) -> None:
    fleet.commit(agent(fleet, tmp_path, "one"))
    fleet.once()
    (tmp_path / "events").unlink()
    sha = fleet.commit(agent(fleet, tmp_path, "two"))
    with fleet.running() as daemon:
        until(
            lambda: (tmp_path / "events").exists() and "start two 1" in events(tmp_path), "the second one starts"
        )
        daemon.kill()
        daemon.wait()
    with fleet.running():
        fleet.await_phase(sha, "Converged")
    assert events(tmp_path) == in_turn("one", "two")
    shown = fleet.ask("explain", "a")["actions"]
    assert "2 to follow" in str(shown)
    # How many steps there were depends on whether the killed one had been recorded.
    assert "ReplicasFollow" in {each["reason"] for each in shown[:2]}
    assert fleet.ask("drift")["drifted"] == 0

    (tmp_path / "events").unlink()
    broken = fleet.commit(agent(fleet, tmp_path, "broken"))
    with fleet.running():
        until(
            lambda: "start broken 0" in events(tmp_path) if (tmp_path / "events").exists() else False, "it starts"
        )
        assert fleet.status()["commit"] == broken
        good = fleet.revert("HEAD")
        fleet.await_phase(good, "Converged")
    assert events(tmp_path) == ["end two 0", "start broken 0", "end broken 0", "start two 0", "ready two 0"]


# On SIGUSR1 it takes more memory than it may have.
LEAK = "held = []\nsignal.signal(signal.SIGUSR1, lambda *_: held.append(bytearray(96 * 2**20)))\n"
LEAKING = AGENT.replace("while True:", f"{LEAK}while True:")


def test_replicas_that_all_use_too_much_memory_are_replaced_one_after_the_other(
    fleet: Fleet, tmp_path: Path
) -> None:
    """And one that was replaced and is not ready yet is not replaced again for its siblings."""
    command = (sys.executable, "-c", LEAKING, str(tmp_path), "one")
    runtime = {"replicas": 3, "minUptime": "2s", "resources": {"limits": {"memory": "64Mi"}}}
    fleet.commit({"a.yaml": fleet.agent("a", *command, runtime=runtime)})
    fleet.once()
    (tmp_path / "events").unlink()
    for pid in fleet.pids("a"):
        signal_pid(pid, signal.SIGUSR1)
    with fleet.running():
        until(lambda: (tmp_path / "events").exists() and len(events(tmp_path)) >= 9, "all are replaced")
    assert events(tmp_path) == in_turn("one", "one")
