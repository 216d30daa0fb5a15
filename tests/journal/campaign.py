"""A program that kills itself at every point of a scripted run, and says what it found afterwards.

It forks once per point, so that the imports are paid for once. Run with ``python -m``; one JSON line per point.

- ``writes``: before and after every write of the journal (the points of the fault injector);
- ``statements``: before every SQL statement, so also in the middle of transactions and of the creation;
- ``migration``: before every statement of the migration from version 1.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from sqlalchemy import Engine, event

from gitops_agent.journal.schema import VERSION
from gitops_agent.journal.sqlite import FILE_NAME
from gitops_agent.journal.store import open_journal
from gitops_agent.model.outcome import Attempt
from gitops_agent.ports import Journal
from gitops_agent.testing.faults import FaultInjector, kill
from gitops_agent.testing.faulty_journal import FaultyJournal
from tests.support.fast_disk import hurry

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
)

FAILED = Attempt(1, 60.0, "exit 1")
STEPS: tuple[Callable[[Journal], object], ...] = (
    lambda journal: journal.put({"head": SHA}),
    lambda journal: journal.put_commits([a_commit()]),
    lambda journal: journal.record_plan(a_plan(an_action(), an_action(CONFIG)), 19.0),
    lambda journal: journal.begin([an_intent("i1"), an_intent("i2", an_action(CONFIG))]),
    lambda journal: journal.finish([an_outcome("i1")], bases=[a_base()], attempts={CONFIG: FAILED}),
    lambda journal: journal.begin([an_intent("i3", an_action(CONFIG), at=22.0)]),
    lambda journal: journal.finish(
        [an_outcome("i3")], bases=[a_base(CONFIG)], forgotten=[RUNTIME], attempts={CONFIG: None}
    ),
    lambda journal: journal.record_observations([an_observation(CONFIG)]),
    lambda journal: journal.put_statuses([a_status()]),
    lambda journal: journal.prune(25.0),
)


@dataclass(frozen=True)
class State:
    """All that the journal says, comparable."""

    values: tuple[Any, ...]

    @classmethod
    def of(cls, folder: Path) -> State:
        with open_journal(folder) as journal:
            seen = journal.observations(CONFIG.agent)
            handle = (journal.bases(), journal.attempts(), journal.statuses())
            records = (journal.open_intents(), journal.commits(), journal.entries(), journal.decisions(), seen)
            return cls((journal.get("head"), *map(dict, handle), *records))


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


def states(folder: Path) -> list[State]:
    """What the journal says after 0, 1, 2 ... steps of an undisturbed run."""
    found = [State.of(folder)]
    for number in range(len(STEPS)):
        with open_journal(folder) as journal:
            STEPS[number](journal)
        found.append(State.of(folder))
    return found


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def writes(folder: Path) -> None:
    expected, counted = states(folder / "undisturbed"), FaultInjector()
    run(folder / "counted", counted)
    for number, point in enumerate(counted.points()):
        place = folder / str(number)
        was_killed = killed(lambda p=point, f=place: run(f, FaultInjector.at(p, kill)))
        finished = (number + 1) // 2  # before the first: none; after the first and before the second: one ...
        say(point=point, killed=was_killed, sound=healthy(place), exact=State.of(place) == expected[finished])


def statements(folder: Path) -> None:
    expected = states(folder / "undisturbed")

    def die_at(nth: int, place: Path) -> None:
        listen(FaultInjector("statement", nth, kill))
        run(place, FaultInjector())

    nth, was_killed = 0, True
    while was_killed:
        nth += 1
        place = folder / str(nth)
        was_killed = killed(lambda n=nth, f=place: die_at(n, f))
        say(point=nth, killed=was_killed, sound=healthy(place), exact=State.of(place) in expected)
        rmtree(place)


def migration(folder: Path) -> None:
    script = (Path(__file__).parent / "version_1.sql").read_text()

    def die_at(nth: int, place: Path) -> None:
        listen(FaultInjector("statement", nth, kill))
        open_journal(place).close()

    nth, was_killed = 0, True
    while was_killed:
        nth += 1
        place = folder / str(nth)
        place.mkdir(parents=True)
        connection = sqlite3.connect(place / FILE_NAME)
        connection.executescript(script)
        connection.close()
        was_killed = killed(lambda n=nth, f=place: die_at(n, f))
        connection = sqlite3.connect(place / FILE_NAME)
        (version,) = connection.execute("SELECT version FROM schema_version").fetchone()
        columns = {row[1] for row in connection.execute("PRAGMA table_info(decisions)")}
        columns |= {row[1] for row in connection.execute("PRAGMA table_info(bases)")}
        indexes = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
        connection.close()
        steps = {"held", "established"}, {"ix_intents_commit", "ix_decisions_agent"}
        new = {
            version == VERSION,
            *(name in columns for name in steps[0]),
            *(name in indexes for name in steps[1]),
        }
        with open_journal(place) as journal:
            kept = RUNTIME in journal.bases() and len(journal.decisions()) == 1
        say(point=nth, killed=was_killed, sound=len(new) == 1, exact=kept)


if __name__ == "__main__":
    event.listen(Engine, "connect", hurry)
    {"writes": writes, "statements": statements, "migration": migration}[sys.argv[1]](Path(sys.argv[2]))
