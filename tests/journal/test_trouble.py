"""Full disks, damaged files, closed doors: each its own sentence, an address and a way out; nothing is deleted."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from gitops_agent.errors import JournalError
from gitops_agent.journal.sqlite import FILE_NAME, translated
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.fields import Fields

from .values import RUNTIME, a_base, an_intent, an_outcome, with_head

BIG = Fields.of({"instructions": "x" * 200_000})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def fill(journal: SqlJournal) -> None:
    """No more pages than there are now: SQLite says that the disk is full."""
    with journal._database.writing() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")


def test_a_full_disk_loses_nothing_and_passes(journal: SqlJournal, state: Path) -> None:
    journal.begin([an_intent()])
    fill(journal)
    with pytest.raises(JournalError, match="disk is full") as caught:
        journal.finish([an_outcome()], bases=[a_base(fields=BIG)])
    assert str(state / FILE_NAME) in caught.value.message
    assert "free some space" in caught.value.hint
    assert caught.value.__cause__ is not None
    assert journal.state().reconcile.bases == {}
    assert list(journal.state().reconcile.open_intents) == ["i1"]
    with journal._database.writing() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    journal.finish([an_outcome()], bases=[a_base(fields=BIG)])
    assert journal.state().reconcile.bases[RUNTIME].fields == BIG
    assert journal.state().reconcile.open_intents == {}


def test_a_lock_that_is_kept_too_long_costs_one_write(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops_agent.journal.sqlite.BUSY_SECONDS", 0.05)
    with open_journal(state) as journal:
        before = journal.state()
        other = sqlite3.connect(state / FILE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="locked for too long"):
            journal.commit(with_head(before, "abc"))
        assert journal.state() == before
        other.execute("ROLLBACK")
        other.close()
        assert journal.commit(with_head(before, "abc")).source.head == "abc"


QUOTA = """
import resource, sys
from pathlib import Path
from gitops_agent.errors import JournalError
from gitops_agent.journal.store import open_journal
from dataclasses import replace
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
journal = open_journal(Path(sys.argv[1]))
state = journal.state()
journal.commit(replace(state, source=replace(state.source, head="before")))
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    for number in range(100):
        key = ResourceKey(AgentKey("acme", f"bot-{number}"), "config", "bundle")
        journal.finish([], bases=[Base(key, "memory", Fields.of({"x": "x" * 50_000}), "abc", 1.0)])
except JournalError as error:
    print(error.message, "|", error.hint)
    print("kept", journal.state().source.head, 0 < len(journal.state().reconcile.bases) < 100)
"""


def test_a_file_that_may_not_grow_is_told_and_survived(state: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUOTA, str(state)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "input/output error" in done.stdout or "disk is full" in done.stdout
    assert "kept before True" in done.stdout
    with open_journal(state) as journal:
        assert journal.state().source.head == "before"
        journal.commit(with_head(journal.state(), "after"))


@pytest.mark.parametrize("read_only", [False, True])
def test_something_that_is_no_database_is_refused_and_kept(state: Path, read_only: bool) -> None:
    state.mkdir()
    (state / FILE_NAME).write_bytes(b"this is not a database" * 500)
    with pytest.raises(JournalError, match="damaged") as caught:
        open_journal(state, read_only=read_only)
    assert "move" in caught.value.hint
    assert "found again by their marks" in caught.value.hint
    assert (state / FILE_NAME).read_bytes().startswith(b"this is not")


def test_a_damaged_page_is_told_when_it_is_read(state: Path) -> None:
    with open_journal(state) as journal:
        journal.finish([], bases=[a_base(fields=BIG)])
    path = state / FILE_NAME
    content = bytearray(path.read_bytes())
    # Everything but the first page (header and schema) and the page with the version.
    content[4096 * 4 :] = b"\xa5" * (len(content) - 4096 * 4)
    path.write_bytes(content)
    with pytest.raises(JournalError, match="damaged") as caught, open_journal(state) as journal:
        dict(journal.state().reconcile.bases)
    assert "move" in caught.value.hint
    assert path.exists()


def test_a_row_that_does_not_decode_is_damage_too(journal: SqlJournal, state: Path) -> None:
    journal.finish([], bases=[a_base()])
    with journal._database.writing() as connection:
        connection.exec_driver_sql("UPDATE bases SET deletion_policy = 'Perhaps'")
    with pytest.raises(JournalError, match="damaged"), open_journal(state) as again:
        dict(again.state().reconcile.bases)


def test_a_field_that_does_not_decode_is_damage_too(journal: SqlJournal, state: Path) -> None:
    with journal._database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO state VALUES ('rollout.rollout', '7')")
    with pytest.raises(JournalError, match="damaged"), open_journal(state) as again:
        again.state()


@pytest.mark.unit
def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(JournalError, match="cannot be opened") as caught:
        open_journal(tmp_path / "state")
    assert "--state-dir" in caught.value.hint
    with pytest.raises(JournalError, match="no journal yet"):
        open_journal(tmp_path / "state", read_only=True)


@pytest.mark.unit
def test_no_journal_yet(state: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal yet") as caught:
        open_journal(state, read_only=True)
    assert "once" in caught.value.hint
    assert not state.exists()


@pytest.mark.unit
def test_a_full_file_system_seen_by_the_operating_system(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="disk is full"), translated(tmp_path / FILE_NAME):
        raise OSError(28, "No space left on device")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder every user can reach (those of pytest are for their owner only)."""
    folder = Path(tempfile.mkdtemp(prefix="gitops-agent-"))
    folder.chmod(0o755)
    yield folder
    rmtree(folder)


CLOSED_DOOR = """
import os, sys
from pathlib import Path
from gitops_agent.errors import GitopsAgentError
from gitops_agent.journal.lock import state_lock
from gitops_agent.journal.store import open_journal
from gitops_agent.model.control import Control, ControlVerb
state, extra = Path(sys.argv[1]), sys.argv[2]
with open_journal(state) as journal:
    journal.control(Control(ControlVerb.FREEZE, "*", "ada", 1.0))
for path in state.iterdir():
    path.chmod(0o444)
state.chmod(0o555)
if os.geteuid() == 0:
    os.seteuid(65534)  # permissions do not bind root
try:
    with open_journal(state, read_only=True) as journal:
        print("read", journal.state().control.controls[0].target)
    with (state_lock(state) if extra == "lock" else open_journal(state)):
        print("opened")
except GitopsAgentError as error:
    print(error.message, "|", error.hint)
"""


@pytest.mark.parametrize("extra", ["journal", "lock"])
def test_a_read_only_directory_can_be_read_and_says_why_not_written(open_folder: Path, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED_DOOR, str(open_folder / "state"), extra],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        umask=0o022,
    )
    (open_folder / "state").chmod(0o755)
    read, told = done.stdout.splitlines()
    assert read == "read *"
    assert "read-only" in told or "cannot be locked" in told
    assert "--state-dir" in told
