"""The state directory over time: it does not grow for ever, and only its owner reads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.fleet import Fleet, until


def ask(fleet: Fleet, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(fleet.state / "journal.db")
    with connection:
        found = connection.execute(statement).fetchall()
    connection.close()
    return found


def test_once_drops_what_is_old(fleet: Fleet) -> None:
    own = {"GITOPS_AGENT_RETENTION": "1ms", "GITOPS_AGENT_FOLDER_RETENTION": "1ms"}
    fleet.commit(fleet.agents("a", "b"))
    fleet.once(**own)
    assert ask(fleet, "SELECT count(*) FROM intents") == [(0,)], "done, reported, and no longer wanted"
    assert fleet.folder("a").exists()
    fleet.commit({"a.yaml": None})
    fleet.once(**own)
    assert fleet.folder("a").exists(), "once an hour is enough"
    ask(fleet, "UPDATE state SET value = '1.0' WHERE part = 'journal.pruned_at'")
    fleet.once(**own)
    assert not fleet.folder("a").exists()
    assert fleet.folder("b").exists()
    assert fleet.pid("b")


def readable_by_others(fleet: Fleet) -> list[str]:
    """What of the state directory another user of this machine could get at."""
    found = [fleet.state, *fleet.state.iterdir()]
    return sorted(path.name for path in found if path.lstat().st_mode & 0o077)


def test_only_its_owner_reads_it_whoever_made_it(fleet: Fleet) -> None:
    fleet.state.mkdir(mode=0o755)  # as StateDirectory= of systemd does
    fleet.commit(fleet.agents("a"))
    first = fleet.call("once", "-o", "json")
    assert first.code == 0
    assert "other users could read the state directory" in first.err
    assert readable_by_others(fleet) == []

    fleet.state.chmod(0o755)
    for name in ("journal.db", "mirror.git"):
        (fleet.state / name).chmod(0o755)
    doctor = fleet.call("doctor")
    assert doctor.code != 0
    assert "other users may read: ., journal.db, mirror.git" in doctor.out
    assert "chmod -R go-rwx" in doctor.out
    assert readable_by_others(fleet), "to look changes nothing"
    again = fleet.call("once", "-o", "json")
    assert '"was": [".", "journal.db"' in again.err
    assert readable_by_others(fleet) == []
    assert "other users" not in fleet.call("once", "-o", "json").err, "said once"


def test_a_wrong_repository_gets_nothing_of_ours(make_fleet: Callable[..., Fleet]) -> None:
    ours, other = make_fleet(), make_fleet()
    ours.commit(ours.agents("a"))
    ours.once()
    pid = ours.pid("a")
    other.commit(other.agents("b"))
    right, ours.repo = ours.repo, other.repo
    for verb in ("once", "plan"):
        answer = ours.call(verb)
        assert answer.code == 2
        assert f"this state directory belongs to the repository {right}" in answer.err
        assert "correct --repo, or give this one its own --state-dir" in answer.err
    assert "Traceback" not in ours.call("run").err
    assert other.git("for-each-ref", "refs/notes", where=other.bare) == ""
    assert ours.pid("a") == pid

    ours.repo = right
    assert ours.once()["phase"] == "Converged", "and nothing was harmed"


def test_a_repository_that_has_moved_is_followed(fleet: Fleet, tmp_path: Path) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    moved = tmp_path / "elsewhere.git"
    fleet.git("clone", "-q", "--bare", str(fleet.bare), str(moved))
    fleet.git("remote", "set-url", "origin", str(moved))
    sha = fleet.commit(fleet.agents("b"))
    fleet.repo = str(moved)
    answer = fleet.once()
    assert (answer["commit"], answer["phase"]) == (sha, "Converged")
    assert (fleet.state / "repository").read_text() == f"{moved}\n"
    assert fleet.note(sha).startswith(f"{fleet.instance}: Converged")


@contextmanager
def held_lock(fleet: Fleet) -> Iterator[None]:
    """Another process keeps the journal locked for writing."""
    other = sqlite3.connect(fleet.state / "journal.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


IMPATIENT = [("tests.support.hardships", "set_busy_seconds", "0.2")]
"""What a call does first: wait for the lock of the journal only so long."""


def test_a_locked_journal_stops_all_acting_and_nothing_is_lost(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    with fleet.running(first=IMPATIENT):
        until(lambda: '"pass"' in fleet.daemon_log(), "it is at work")
        with held_lock(fleet):
            old = fleet.kill("a")
            until(lambda: "kept the journal locked" in fleet.daemon_log(), "it says so")
            assert fleet.pids("a") == [], "an effect without a record would be worse"
            assert fleet.call("status").code in (0, 5), "it can be read meanwhile"
        until(lambda: fleet.pids("a"), "it goes on by itself")
    assert fleet.pid("a") != old
    assert "Traceback" not in fleet.daemon_log()
    assert [len(fleet.pids(name)) for name in "ab"] == [1, 1]


def test_a_locked_journal_ends_once_with_the_way_out(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    fleet.kill("a")
    with held_lock(fleet):
        answer = fleet.call_after(IMPATIENT, "once")
    assert answer.code == 1
    assert "another process has kept the journal locked for too long" in answer.err
    assert "hint: find the process" in answer.err
    assert "Traceback" not in answer.err
    assert fleet.pids("a") == []
    fleet.once()
    assert fleet.pid("a")
