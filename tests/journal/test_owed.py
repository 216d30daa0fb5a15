"""What sinks owe: durable, per sink and commit, and forgotten only up to the version that was delivered."""

from __future__ import annotations

from threading import Thread

import pytest

from gitops_agent.journal.place import Place
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.status import Phase

from .values import a_commit, with_head, with_records

pytestmark = pytest.mark.unit
ONE, TWO = a_commit("1", 1), a_commit("2", 2)
SINKS = ("notes", "sentry")


def test_every_sink_owes_every_record_that_changed(state: Place, journal: SqlJournal) -> None:
    now = journal.commit(with_records(journal.state(), ONE, TWO), owed_to=SINKS)
    assert journal.owed() == {sink: {"1": 1, "2": 1} for sink in SINKS}
    journal.commit(with_records(now, ONE, a_commit("2", 2, Phase.DEGRADED)), owed_to=SINKS)
    assert journal.owed() == {sink: {"1": 1, "2": 2} for sink in SINKS}
    with open_journal(state) as again:
        assert again.owed() == journal.owed()


def test_what_no_record_changed_is_not_owed(journal: SqlJournal) -> None:
    now = journal.commit(with_records(journal.state(), ONE))
    journal.commit(with_head(now, "1"), owed_to=SINKS)
    assert journal.owed() == {}


def test_what_was_delivered_is_forgotten_and_what_changed_meanwhile_is_not(
    state: Place, journal: SqlJournal
) -> None:
    now = journal.commit(with_records(journal.state(), ONE, TWO), owed_to=SINKS)
    under_way = journal.owed()["notes"]
    journal.commit(with_records(now, a_commit("2", 2, Phase.DEGRADED)), owed_to=SINKS)
    journal.delivered("notes", under_way)
    assert journal.owed() == {"notes": {"2": 2}, "sentry": {"1": 1, "2": 2}}
    journal.delivered("notes", journal.owed()["notes"])
    assert journal.owed() == {"sentry": {"1": 1, "2": 2}}
    with open_journal(state) as again:
        assert again.owed() == journal.owed()


def test_a_version_is_never_given_twice(state: Place, journal: SqlJournal) -> None:
    now = journal.commit(with_records(journal.state(), ONE), owed_to=["notes"])
    stale = journal.owed()["notes"]
    journal.delivered("notes", stale)
    with open_journal(state, writer="again", take_over=True) as again:
        again.commit(with_records(again.state(), a_commit("1", 1, Phase.DEGRADED)), owed_to=["notes"])
        assert again.owed() == {"notes": {"1": 2}}
        again.delivered("notes", stale)
        assert again.owed() == {"notes": {"1": 2}}
    assert now.commits.records["1"] == ONE


def test_threads_deliver_while_a_pass_commits(journal: SqlJournal) -> None:
    def deliver(sink: str) -> None:
        while not done or journal.owed().get(sink):
            journal.delivered(sink, journal.owed().get(sink, {}))

    done: list[bool] = []
    threads = [Thread(target=deliver, args=(sink,)) for sink in SINKS]
    for thread in threads:
        thread.start()
    for number in range(20):
        journal.commit(with_records(journal.state(), a_commit(f"{number}", number)), owed_to=SINKS)
    done.append(True)
    for thread in threads:
        thread.join()
    assert journal.owed() == {}
