"""What a pass without news costs: few reads of the journal, and as many whatever the history holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event

from gitops_agent.journal import rows, schema
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.status import Phase

from .world import World

pytestmark = pytest.mark.unit

MOST_READS = 5
LONG_HISTORY = 5_000


@contextmanager
def statements(journal: SqlJournal) -> Iterator[list[str]]:
    """The statements that the journal executes meanwhile, through SQLAlchemy and beside it."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    database, engine = journal._database, journal._database.engine
    others_wrote = database.others_wrote

    def ask() -> bool:
        seen.append("PRAGMA data_version")
        return others_wrote()

    database.others_wrote = ask  # type: ignore[method-assign]
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)
        del database.others_wrote  # type: ignore[method-assign]


def reads(seen: list[str]) -> list[str]:
    return [statement for statement in seen if statement.lstrip().upper().startswith(("SELECT", "PRAGMA"))]


def quiet(folder: Path, commits: int) -> World:
    """A fleet at rest, after so many commits more than its own."""
    world = World(folder)
    world.commit("one", "two", "three")
    assert world.converge().phase is Phase.CONVERGED
    record = world.journal.commit_record(world.repository.head or "")
    assert record is not None
    past = [
        replace(record, sha=name, tree=name, position=number - commits, phase=phase, now=None)
        for number in range(commits)
        for name, phase in [(f"{number:040x}", Phase.SUPERSEDED if number % 10 else Phase.CONVERGED)]
    ]
    if past:
        with world.journal._database.writing() as connection:
            connection.execute(schema.commits.insert(), [rows.commit_row(each) for each in past])
    world.boot()
    return world


def first_pass(world: World) -> list[str]:
    world.boot()
    with statements(world.journal) as seen:
        world.run()
    return seen


def quiet_pass(world: World) -> list[str]:
    for _ in range(2):
        world.clock.advance(30.0)
        world.run()
    world.clock.advance(30.0)
    with statements(world.journal) as seen:
        assert world.run().executed == []
    return seen


def quiet_event(world: World) -> list[str]:
    world.run()
    world.clock.advance(1.0)
    with statements(world.journal) as seen:
        world.run("one", fetch=False)
    return seen


@pytest.mark.parametrize("cost", [quiet_pass, quiet_event, first_pass], ids=lambda cost: cost.__name__)
def test_a_long_history_costs_no_statement_more(tmp_path: Path, cost: Callable[[World], list[str]]) -> None:
    found = []
    for commits in (0, LONG_HISTORY):
        world = quiet(tmp_path / str(commits), commits)
        found.append(cost(world))
        world.shut()
    assert len(found[1]) <= len(found[0]), found
    if cost is not first_pass:
        assert len(reads(found[1])) <= MOST_READS, found[1]


def test_a_quiet_pass_holds_few_records_of_a_long_history(tmp_path: Path) -> None:
    world = quiet(tmp_path / "state", LONG_HISTORY)
    world.run()
    assert len(world.journal.state().commits.records) < 20
    world.shut()
