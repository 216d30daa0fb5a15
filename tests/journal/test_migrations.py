"""Old journals become present ones, whole or not at all; newer ones and strangers are refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect

from gitops_agent.errors import JournalError
from gitops_agent.journal import schema
from gitops_agent.journal.migrations import STEPS
from gitops_agent.journal.sqlite import FILE_NAME
from gitops_agent.journal.store import has_journal, open_journal
from gitops_agent.model.state import State

pytestmark = pytest.mark.unit
VERSION_4 = (Path(__file__).parent / "version_4.sql").read_text()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def write(state: Path, script: str) -> Path:
    state.mkdir(exist_ok=True)
    path = state / FILE_NAME
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


def shape(path: Path) -> dict[str, Any]:
    """Columns (in any order), keys and indexes of every table."""
    engine = create_engine(f"sqlite:///{path}")
    found = inspect(engine)
    tables = {
        name: {
            "columns": {c["name"]: (str(c["type"]), c["nullable"]) for c in found.get_columns(name)},
            "key": found.get_pk_constraint(name)["constrained_columns"],
            "indexes": {i["name"]: i["column_names"] for i in found.get_indexes(name)},
        }
        for name in found.get_table_names()
    }
    engine.dispose()
    return tables


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT version FROM schema_version").fetchone()
    connection.close()
    return int(found)


def test_there_is_a_step_to_every_version() -> None:
    assert sorted(STEPS) == list(range(5, schema.VERSION + 1))


def test_an_old_journal_becomes_what_a_new_one_is(state: Path, tmp_path: Path) -> None:
    path = write(state, VERSION_4)
    open_journal(state).close()
    open_journal(tmp_path / "new").close()
    assert shape(path) == shape(tmp_path / "new" / FILE_NAME)
    assert version(path) == schema.VERSION


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("old", [1, 2, 3])
def test_a_journal_before_the_first_release_is_refused_with_the_way_out(
    state: Path, old: int, read_only: bool
) -> None:
    path = write(
        state, f"CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES ({old});"
    )
    with pytest.raises(JournalError, match=f"has schema {old}, .* before the first release") as caught:
        open_journal(state, read_only=read_only)
    assert f"move {path}" in caught.value.hint
    assert "none is started twice" in caught.value.hint
    assert version(path) == old


def test_a_reader_does_not_migrate(state: Path) -> None:
    path = write(state, VERSION_4)
    with pytest.raises(JournalError, match="has schema 4, this version reads") as caught:
        open_journal(state, read_only=True)
    assert "once or run" in caught.value.hint
    assert version(path) == 4


@pytest.mark.parametrize("read_only", [False, True])
def test_a_journal_from_the_future_is_refused(state: Path, read_only: bool) -> None:
    path = write(state, "CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES (999);")
    with pytest.raises(JournalError, match=r"has schema 999, .* knows up to") as caught:
        open_journal(state, read_only=read_only)
    assert "newer gitops-agent" in caught.value.hint
    assert version(path) == 999


@pytest.mark.parametrize(
    "script", ["CREATE TABLE notes (body TEXT);", "CREATE TABLE schema_version (version INTEGER);"]
)
@pytest.mark.parametrize("read_only", [False, True])
def test_the_database_of_another_program_is_left_alone(state: Path, read_only: bool, script: str) -> None:
    path = write(state, script)
    before = shape(path)
    with pytest.raises(JournalError, match="not a journal of gitops-agent"):
        open_journal(state, read_only=read_only)
    assert shape(path) == before


def test_a_step_that_fails_leaves_the_old_version(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(state, VERSION_4)
    before = shape(path)
    monkeypatch.setattr("gitops_agent.journal.migrations.STEPS", {5: (*STEPS[5], "ALTER TABLE nowhere DROP x")})
    with pytest.raises(JournalError):
        open_journal(state)
    assert (shape(path), version(path)) == (before, 4)


def test_an_empty_file_becomes_a_journal(state: Path) -> None:
    """What a kill between creating the file and creating the tables leaves."""
    state.mkdir()
    (state / FILE_NAME).touch()
    assert not has_journal(state)
    with pytest.raises(JournalError, match="no journal yet"):
        open_journal(state, read_only=True)
    with open_journal(state) as journal:
        assert has_journal(state)
        assert journal.state() == State()
