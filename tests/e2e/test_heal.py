"""Drift: somebody or something else moved what runs, and a pass puts it back. Or rightly does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, alive, environment_of, reasons, signal_pid, state, until


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes a test starts by hand; they are ended by their pid."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for child in made:
        child.kill()
        child.wait()


def test_drift_of_every_kind_is_seen_and_healed(fleet: Fleet, started: list[subprocess.Popen[bytes]]) -> None:
    agents = fleet.agents("config", "extra", "stopped", "lost", instructions="Be kind.")
    fleet.commit(agents | {"p.yaml": fleet.policy(orphans={"minAge": "1h"})})
    fleet.once()
    pids = {name: fleet.pid(name) for name in ("config", "extra", "stopped", "lost")}

    bundle = fleet.folder("config") / "config.json"
    good = bundle.read_bytes()
    bundle.write_bytes(good.replace(b"kind", b"rude"))
    (fleet.folder("lost") / "config.json").unlink()
    signal_pid(pids["stopped"], signal.SIGSTOP)
    marks = environment_of(pids["extra"])
    started.append(
        subprocess.Popen(["sleep", "600"], env=marks, cwd=f"/proc/{pids['extra']}/cwd", start_new_session=True)
    )

    seen = reasons(fleet.ask("plan"))
    assert seen["config:config/bundle"] == "ConfigEdited"
    assert seen["lost:config/bundle"] == "ConfigLost"
    assert seen["stopped:runtime/process"] == "Suspended"
    assert seen["extra:runtime/process"] == "ExtraReplica"
    fleet.call("once")
    assert started[0].poll() is None, "what is not in Git is not ended while it is young"
    fleet.commit({"p.yaml": fleet.policy(orphans={"minAge": "0s"})})
    fleet.call("once")  # of two policies the stricter holds until the newer one has converged
    answer = fleet.once()

    assert all(row["ready"] for row in answer["agents"])
    assert bundle.read_bytes() == good
    assert json.loads((fleet.folder("lost") / "config.json").read_text())["instructions"] == "Be kind."
    assert fleet.pid("config") == pids["config"], "a config file is healed in place, without a restart"
    assert fleet.pid("lost") == pids["lost"]
    assert fleet.pid("extra") == pids["extra"], "the one that was there first stays"
    assert until(lambda: started[0].poll()) == -signal.SIGTERM
    assert fleet.pid("stopped") != pids["stopped"] or state(pids["stopped"]) == "S"
    assert fleet.ask("plan")["actions"] == []


def test_a_foreign_process_is_reported_and_never_touched(
    fleet: Fleet, started: list[subprocess.Popen[bytes]]
) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    lost = fleet.kill("a")
    plain = {"PATH": os.environ["PATH"]}
    stranger = subprocess.Popen(
        ["sleep", "600"], env=plain, cwd=fleet.folder("a") / "work", start_new_session=True
    )
    started.append(stranger)

    plan = fleet.ask("plan")
    (action,) = plan["actions"]
    assert (action["class"], action["decision"]) == ("UnsafeAmbiguity", "alert")
    assert str(stranger.pid) in json.dumps(plan)
    fleet.kill("b")
    answer = fleet.once(code=5)
    assert fleet.row(answer, "b")["ready"], "its neighbour is repaired all the same"
    drifted = fleet.condition(answer, "a", "Drifted")
    assert drifted is not None
    assert drifted["reason"] == "NotMarked"
    assert not fleet.row(answer, "a")["ready"]
    assert alive(stranger.pid)
    assert (fleet.pids("a"), alive(lost)) == ([], False)
    assert "NotMarked" in fleet.call("explain", "a").out


def test_an_agent_of_another_instance_is_left_alone(fleet: Fleet, tmp_path: Path) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    pid = fleet.pid("a")
    other = Fleet(tmp_path / "other")
    other.tenant, other.repo = fleet.tenant, fleet.repo
    try:
        answer = other.once("--timeout", "2s", code=5)
        assert other.pids() == []
    finally:
        other.end()
    ready = other.condition(answer, "a")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == (False, "MarkedByOther")
    assert fleet.pid("a") == pid


def test_agents_outlive_us_and_the_whole_state_directory(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b", runtime={"replicas": 2}))
    fleet.once()
    before = fleet.pids()
    assert len(before) == 4
    shutil.rmtree(fleet.state)
    adopted = fleet.ask("plan")
    assert {action["verb"] for action in adopted["actions"] if ":runtime" in action["resource"]} == {"adopt"}
    answer = fleet.once()
    assert answer["phase"] == "Converged"
    assert fleet.pids() == before, "the same processes, none twice, none lost"
    assert (fleet.folder("a") / "config.json").exists()
    fleet.kill("a")
    fleet.once()
    assert len(fleet.pids()) == 4, "adopted agents are looked after like any other"


def test_stopped_stays_stopped(fleet: Fleet, started: list[subprocess.Popen[bytes]]) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    marks = environment_of(fleet.pid("a"))
    fleet.commit(fleet.agents("a", lifecycle="Stopped"))
    answer = fleet.once()
    assert fleet.pids("a") == []
    assert fleet.row(answer, "a")["ready"]
    started.append(
        subprocess.Popen(["sleep", "600"], env=marks, cwd=fleet.folder("a") / "work", start_new_session=True)
    )
    assert reasons(fleet.ask("plan"))["a:runtime/process"] == "UnexpectedlyRunning"
    fleet.once()
    assert until(lambda: started[0].poll()) == -signal.SIGTERM
    fleet.commit(fleet.agents("a"))
    fleet.once()
    assert fleet.pid("a")


def test_a_second_once_on_the_same_state_directory_is_told_who_holds_it(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    with fleet.running() as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        answer = fleet.call("once", "-o", "json")
        assert (answer.code, answer.out) == (2, "")
        assert str(daemon.pid) in answer.err
        assert str(fleet.state) in answer.err
        assert fleet.ask("status")["phase"] == "Converged", "those who only read are welcome"
        assert fleet.ask("plan")["actions"] == []


def test_a_damaged_mirror_is_rebuilt_by_itself(fleet: Fleet) -> None:
    first = fleet.commit(fleet.agents("a"))
    fleet.once("--no-push")
    before = fleet.pids()
    for path in (fleet.state / "mirror.git" / "objects").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"")
    second = fleet.commit(fleet.agents("b"))
    answer = fleet.once()
    assert (answer["phase"], answer["commit"]) == ("Converged", second)
    assert set(before) < set(fleet.pids())
    assert {commit["commit"] for commit in fleet.ask("history")["commits"]} == {first, second}
