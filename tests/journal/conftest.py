"""Journals on both databases: what a journal does, it does on SQLite and on PostgreSQL.

``state`` is where the journal is: a folder, or a schema of its own in the session's PostgreSQL. A module that is
about one of them says so with a ``state`` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_agent.journal import postgres as postgres_journal
from gitops_agent.journal.place import Place, SharedJournal
from gitops_agent.journal.store import SqlJournal, open_journal
from tests.servers.postgres import Postgres
from tests.support.fast_disk import fast_disk

__all__ = ["fast_disk"]

BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.servers)]

only_sqlite = pytest.mark.parametrize("new_place", ["sqlite"], indirect=True)
"""For a test of what only SQLite has."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that all tests of the session share; nobody stops it."""
    with Postgres() as started:
        yield started


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits until the server is asked again."""
    monkeypatch.setattr(postgres_journal, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(postgres_journal, "MAX_TRIES", 2)


@pytest.fixture(scope="session", params=BOTH)
def new_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    """What gives a place in which there is no journal yet."""
    if request.param == "sqlite":
        return lambda: tmp_path_factory.mktemp("journal") / "state"
    server: Postgres = request.getfixturevalue("postgres")
    return lambda: SharedJournal(server.url(), server.unique())


@pytest.fixture
def state(new_place) -> Place:  # type: ignore[no-untyped-def]
    place: Place = new_place()
    return place


@pytest.fixture
def journal(state: Place) -> Iterator[SqlJournal]:
    with open_journal(state, writer="test") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state directory, for what is about SQLite alone."""
    return tmp_path / "state"
