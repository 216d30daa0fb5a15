"""Disks that are full, directories that cannot be, journals that are damaged: agents go on, people are told."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from gitops_agent.journal.sqlite import FILE_NAME
from tests.support.fleet import Answer, Fleet, alive, until
from tests.support.hardships import CANNOT_MOUNT

HARDSHIPS = "tests.support.hardships"
NO_ROOM = 12_288
"""No file may grow past this: a little more than the objects of a small commit, a lot less than the journal."""

NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Python does not notice a full disk while it writes compiled modules, and would leave broken ones behind."""


def once_without_room(fleet: Fleet) -> Answer:
    return fleet.call_after([(HARDSHIPS, "limit_files", str(NO_ROOM))], "once", "-o", "json", **NO_BYTECODE)


def refused(answer: Answer, code: int, *words: str) -> None:
    """An error for people: what is wrong, the way out, and nothing of our insides."""
    assert answer.code == code, answer.err
    assert "error: " in answer.err
    assert "hint: " in answer.err
    assert "Traceback" not in answer.err
    for word in words:
        assert word in answer.err, answer.err


def test_a_full_disk_stops_us_and_nobody_else(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("one", "two"))
    fleet.once()
    before = fleet.pids()
    sha = fleet.commit({"one.yaml": fleet.agent("one", "sleep", "601")})
    refused(once_without_room(fleet), 1, str(fleet.state / FILE_NAME))
    assert set(before) & set(fleet.pids()), "agents live on"
    assert all(len(fleet.pids(name)) == 1 for name in ("one", "two"))
    answer = fleet.once()
    assert (answer["commit"], answer["phase"]) == (sha, "Converged")
    assert all(len(fleet.pids(name)) == 1 for name in ("one", "two"))
    assert fleet.pids("two")[0] in before


def test_a_full_disk_at_the_very_beginning(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("one"))
    refused(once_without_room(fleet), 1, str(fleet.state))
    assert fleet.pids() == []
    assert fleet.once()["phase"] == "Converged"
    assert len(fleet.pids("one")) == 1


def test_the_daemon_outlives_a_full_disk(fleet: Fleet) -> None:
    first = fleet.commit(fleet.agents("one", "two"))
    with fleet.running("--no-push", **NO_BYTECODE) as daemon:
        fleet.await_phase(first, "Converged")
        other = fleet.pid("two")
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (NO_ROOM, resource.RLIM_INFINITY))
        fleet.kill("one")
        until(lambda: "the journal cannot be" in fleet.daemon_log(), "the complaint")
        assert "Traceback" not in fleet.daemon_log(), "a known condition, told as one"
        assert daemon.poll() is None
        assert alive(other)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until(lambda: fleet.pids("one"), "the repair", 60)
        second = fleet.commit(fleet.agents("three"))
        fleet.await_phase(second, "Converged")
    assert fleet.pid("two") == other
    assert len(fleet.pids("one")) == len(fleet.pids("three")) == 1


def once_read_only(fleet: Fleet, place: Path) -> Answer:
    # Root may write whatever the permissions say.
    first = [(HARDSHIPS, "mount_read_only", str(place))] if os.geteuid() == 0 else []
    before = place.stat().st_mode
    place.chmod(before & 0o555)
    try:
        answer = fleet.call_after(first, "once", "-o", "json")
    finally:
        place.chmod(before)
    if answer.code == CANNOT_MOUNT:
        pytest.skip("root may not mount here, and nothing else keeps root from writing")
    return answer


@pytest.mark.parametrize("work", ["a change", "a removal", "a dead agent"])
def test_a_read_only_state_directory_stops_us_and_nobody_else(fleet: Fleet, work: str) -> None:
    """What cannot be written down is not done: no intent, no effect."""
    fleet.commit(fleet.agents("one", "two", "three"))
    fleet.once()
    if work == "a change":
        fleet.commit(fleet.agents("one", "two", "three", instructions="New."))
    elif work == "a removal":
        fleet.commit({"two.yaml": None})
    else:
        fleet.kill("two")
    before = fleet.pids()
    for place, code in ((".", 2), (FILE_NAME, 1)):
        answer = once_read_only(fleet, fleet.state / place)
        refused(answer, code, str(fleet.state))
        assert fleet.pids() == before
    assert fleet.once()["phase"] == "Converged"
    wanted = ("one", "three") if work == "a removal" else ("one", "two", "three")
    assert [len(fleet.pids(name)) for name in wanted] == [1] * len(wanted)
    assert len(fleet.pids()) == len(wanted)


@pytest.mark.parametrize("where", ["a file", "below a file", "nowhere"])
def test_a_state_directory_that_cannot_be(fleet: Fleet, tmp_path: Path, where: str) -> None:
    fleet.commit(fleet.agents("one"))
    (tmp_path / "file").write_text("in the way")
    places = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "state",
        "nowhere": Path("/proc/none"),
    }
    fleet.state = places[where]
    answer = fleet.call("once")
    refused(answer, answer.code, str(places[where]), "--state-dir")
    assert answer.code in (1, 2)
    assert fleet.pids() == []
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_damaged_journal_is_told_and_the_way_out_works(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("one", "two"))
    fleet.once()
    before = fleet.pids()
    journal = fleet.state / FILE_NAME
    journal.write_bytes(b"this is not a database" * 1000)
    refused(fleet.call("once"), 1, str(journal), "damaged", "move")
    refused(fleet.call("status"), 1, "damaged")
    assert fleet.pids() == before
    for path in fleet.state.glob(f"{FILE_NAME}*"):
        path.unlink()
    assert fleet.once()["phase"] == "Converged"
    assert fleet.pids() == before, "found again by their marks"


def test_what_is_killed_leaves_a_lock_that_nobody_holds(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("one"))
    killed = fleet.call("once", GITOPS_FAULT_AT="journal.begin:after:1")
    assert killed.code == -9
    status = json.loads(fleet.call("status", "-o", "json").out)
    assert status["phase"] == "Pending"
    assert fleet.once()["phase"] == "Converged"
