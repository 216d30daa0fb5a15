"""The records of commits that a pass needs, and what they cost however long the history is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitops_agent.journal.place import Place
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.state import MAX_RECORDS, CommitsState, State, trimmed
from gitops_agent.model.status import CommitRecord, Phase
from tests.support.statements import statements

from .conftest import only_sqlite
from .values import a_commit, with_records

pytestmark = pytest.mark.unit


def commit(number: int, phase: Phase = Phase.SUPERSEDED, **more: Any) -> CommitRecord:
    return a_commit(f"c{number}", number, phase, **more)


def held(state: State) -> list[int]:
    return [record.position for record in state.commits.newest_first]


def test_it_reaches_back_to_the_last_that_converged_before_the_head(state: Place, journal: SqlJournal) -> None:
    converged = [commit(number, Phase.CONVERGED) for number in (1, 4, 7)]
    others = [commit(number) for number in (2, 3, 5, 6)]
    now = journal.commit(with_records(journal.state(), *converged, *others, head="c7"))
    assert held(now) == [7, 6, 5, 4]
    with open_journal(state) as again:
        assert held(again.state()) == [7, 6, 5, 4]
    now = journal.commit(with_records(now, commit(8, Phase.PENDING), head="c8"))
    assert held(now) == [8, 7]
    assert journal.commit_record("c1") == commit(1, Phase.CONVERGED)


def test_what_is_rolled_back_by_one_of_them_belongs_to_them(state: Place, journal: SqlJournal) -> None:
    undone = commit(1, Phase.CONVERGED, rolled_back_by="c3")
    older = commit(0, Phase.CONVERGED, rolled_back_by="c1")
    now = journal.commit(
        with_records(journal.state(), older, undone, commit(2, Phase.CONVERGED), commit(3), head="c3")
    )
    assert held(now) == [3, 2, 1]
    with open_journal(state) as again:
        assert again.state() == now


def test_a_branch_that_goes_back_finds_what_is_no_longer_in_memory(state: Place, journal: SqlJournal) -> None:
    now = with_records(journal.state(), *(commit(number, Phase.CONVERGED) for number in range(5)), head="c4")
    now = journal.commit(now)
    assert held(now) == [4, 3]
    now = journal.commit(with_records(now, commit(4), commit(3), head="c3"))
    assert held(now) == [4, 3, 2]
    with open_journal(state) as again:
        assert again.state() == now


def test_it_is_bounded_and_keeps_head_and_converged() -> None:
    records = [commit(0, Phase.CONVERGED), *(commit(number) for number in range(1, MAX_RECORDS + 50))]
    found = trimmed(CommitsState({record.sha: record for record in records}), "c1")
    assert len(found.records) == MAX_RECORDS + 2
    assert {"c0", "c1"} < found.records.keys()
    assert trimmed(found, "c1") is found


def cost(place: Place, count: int) -> tuple[int, int]:
    """How many statements, and how many records, the first and a later look at the commits take."""
    with open_journal(place, writer="test") as journal:
        records = (commit(number, Phase.CONVERGED if number % 3 else Phase.DEGRADED) for number in range(count))
        journal.commit(with_records(journal.state(), *records, head=f"c{count - 1}"))
    with open_journal(place, writer="test") as journal:
        sent = statements(journal)
        now = journal.state()
        records_held = len(now.commits.records)
        journal.commit(with_records(now, commit(count, Phase.CONVERGED), head=f"c{count}"))
        return len(sent), records_held


def test_five_thousand_commits_cost_what_ten_do(new_place: Callable[[], Place]) -> None:
    assert cost(new_place(), 5000) == cost(new_place(), 11)


@only_sqlite
def test_the_questions_are_answered_by_indexes(journal: SqlJournal) -> None:
    journal.commit(with_records(journal.state(), *(commit(number) for number in range(20)), head="c19"))
    plans = []
    with journal._database.reading() as connection:
        for words in (
            "phase = 'Converged' AND sha != 'c19' ORDER BY position DESC LIMIT 1",
            "position >= 7 ORDER BY position DESC LIMIT 500",
            "rolled_back_by IN ('c1', 'c2') ORDER BY position DESC",
            "tree = 't' ORDER BY position DESC",
        ):
            found = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN SELECT value FROM commits WHERE {words}")
            plans.append(found.all()[0][-1])
    assert [plan.split("INDEX ")[-1].split(" ")[0] for plan in plans] == [
        "ix_commits_phase",
        "ix_commits_position",
        "ix_commits_rolled_back_by",
        "ix_commits_tree",
    ]
    assert all(plan.startswith("SEARCH") for plan in plans)
