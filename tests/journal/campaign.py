"""A program that kills itself at every point of a scripted run, and says what it found afterwards.

It forks once per point, so that the imports are paid for once. Run with ``python -m``, a kind, a folder and 1 for
every point, or 3 for every third one; one JSON line per point.

- ``writes``: before, inside and after every write of the journal (the points of the fault injector);
- ``statements``: before every SQL statement, so also in the middle of transactions and of the creation;
- ``migration``: before every statement of the migration from version 4.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any

from sqlalchemy import Engine, event

from gitops_agent.journal.schema import VERSION
from gitops_agent.journal.sqlite import FILE_NAME
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.status import Phase
from gitops_agent.testing.faults import FaultInjector, kill
from gitops_agent.testing.faulty_journal import FaultyJournal
from tests.support.decisions import decided
from tests.support.fast_disk import hurry
from tests.support.shared_statements import share_statements

from .values import (
    CONFIG,
    RUNTIME,
    SHA,
    a_base,
    a_commit,
    a_plan,
    a_status,
    an_action,
    an_intent,
    an_observation,
    an_outcome,
    with_controls,
    with_records,
    with_statuses,
)

FAILED = Attempt(1, 60.0, "exit 1")
FREEZE = Control(ControlVerb.FREEZE, "*", "ada", 24.0)


def _end_of_pass(journal: SqlJournal) -> object:
    state = with_controls(with_statuses(journal.state(), a_status()), FREEZE)
    state = replace(state, status=replace(state.status, last_pass=24.0))
    return journal.commit(with_records(state, a_commit(phase=Phase.BLOCKED)), owed_to=["notes"])


STEPS: tuple[Callable[[SqlJournal], object], ...] = (
    lambda journal: journal.commit(
        with_records(journal.state(), a_commit(phase=Phase.PENDING), head=SHA), owed_to=["notes", "sentry"]
    ),
    lambda journal: journal.commit(
        journal.state(),
        plans=[a_plan(an_action(), an_action(CONFIG))],
        observations=[an_observation(CONFIG)],
        at=19.0,
    ),
    lambda journal: journal.begin([an_intent("i1"), an_intent("i2", an_action(CONFIG))]),
    lambda journal: journal.finish([an_outcome("i1")], bases=[a_base()], attempts={CONFIG: FAILED}),
    lambda journal: journal.begin([an_intent("i3", an_action(CONFIG), at=22.0)]),
    lambda journal: journal.finish(
        [an_outcome("i3")], bases=[a_base(CONFIG)], forgotten=[RUNTIME], attempts={CONFIG: None}
    ),
    _end_of_pass,
    lambda journal: journal.control(replace(FREEZE, verb=ControlVerb.UNFREEZE)),
    lambda journal: journal.delivered("notes", {SHA: 2}),
    lambda journal: journal.prune(25.0),
)
POINTS_PER_STEP = ("before", "inside", "after")


@dataclass(frozen=True)
class Content:
    """All that the journal holds, comparable."""

    values: tuple[Any, ...]

    @classmethod
    def of(cls, folder: Path) -> Content:
        with open_journal(folder) as journal:
            seen = journal.observations(CONFIG.agent)
            records = (journal.commits(), journal.entries(), decided(journal), seen, journal.owed())
            found = journal.state()
            maps = (found.reconcile.bases, found.reconcile.attempts, found.reconcile.open_intents)
            # Looked at now: what is read later is what the journal holds then.
            assert all(len(each) >= 0 for each in (*maps, found.status.agents, found.commits.records))
            return cls((found, *records))


def run(folder: Path, injector: FaultInjector) -> None:
    with open_journal(folder) as opened:
        journal = FaultyJournal(opened, injector)
        for step in STEPS:
            step(journal)


def listen(injector: FaultInjector) -> None:
    """A point before every statement and every commit of any engine."""

    def statement(*_: Any) -> None:
        injector.reach("statement")

    event.listen(Engine, "before_cursor_execute", statement)
    event.listen(Engine, "commit", statement)


def killed(work: Callable[[], None]) -> bool:
    """Do it in a child; whether the child was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def healthy(folder: Path) -> bool:
    connection = sqlite3.connect(folder / FILE_NAME)
    (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return bool(answer == "ok")


def states(folder: Path) -> list[Content]:
    """What the journal says after 0, 1, 2 ... steps of an undisturbed run."""
    found = [Content.of(folder)]
    for number in range(len(STEPS)):
        with open_journal(folder) as journal:
            STEPS[number](journal)
        found.append(Content.of(folder))
    return found


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def writes(folder: Path, every: int) -> None:
    expected, counted = states(folder / "undisturbed"), FaultInjector()
    run(folder / "counted", counted)
    for number, point in list(enumerate(counted.points()))[::every]:
        place = folder / str(number)
        was_killed = killed(lambda p=point, f=place: run(f, FaultInjector.at(p, kill)))
        finished = (number + 1) // len(POINTS_PER_STEP)  # before and inside the first: none; after it: one ...
        say(point=point, killed=was_killed, sound=healthy(place), exact=Content.of(place) == expected[finished])


def statements(folder: Path, every: int) -> None:
    expected = states(folder / "undisturbed")

    def die_at(nth: int, place: Path) -> None:
        listen(FaultInjector("statement", nth, kill))
        run(place, FaultInjector())

    nth, was_killed = 1 - every, True
    while was_killed:
        nth += every
        place = folder / str(nth)
        was_killed = killed(lambda n=nth, f=place: die_at(n, f))
        say(point=nth, killed=was_killed, sound=healthy(place), exact=Content.of(place) in expected)
        rmtree(place)


def migration(folder: Path, every: int) -> None:
    script = (Path(__file__).parent / "version_4.sql").read_text()

    def die_at(nth: int, place: Path) -> None:
        listen(FaultInjector("statement", nth, kill))
        open_journal(place).close()

    original = folder / FILE_NAME
    connection = sqlite3.connect(original)
    connection.executescript(script)
    connection.close()

    def old(place: Path) -> Path:
        place.mkdir(parents=True)
        copyfile(original, place / FILE_NAME)
        return place

    expected = Content.of(old(folder / "undisturbed"))
    nth, was_killed = 1 - every, True
    while was_killed:
        nth += every
        place = old(folder / str(nth))
        was_killed = killed(lambda n=nth, f=place: die_at(n, f))
        connection = sqlite3.connect(place / FILE_NAME)
        (version,) = connection.execute("SELECT version FROM schema_version").fetchone()
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        columns = {row[1] for row in connection.execute("PRAGMA table_info(bases)")}
        connection.close()
        new = {version == VERSION, "meta" not in tables, "owed" in tables, "handle" in columns}
        say(point=nth, killed=was_killed, sound=len(new) == 1, exact=Content.of(place) == expected)
        rmtree(place)


if __name__ == "__main__":
    event.listen(Engine, "connect", hurry)
    share_statements()
    {"writes": writes, "statements": statements, "migration": migration}[sys.argv[1]](
        Path(sys.argv[2]), int(sys.argv[3])
    )
