"""Terms of a shared journal: one writer at a time, and whose term is over writes nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.errors import JournalError, JournalTaken, LockHeld
from gitops_agent.journal.place import SharedJournal
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.fields import Fields
from tests.servers.postgres import Postgres

from .values import RUNTIME, SHA, a_base, an_intent, an_outcome, with_head

pytestmark = pytest.mark.servers
numbers = count(1)


@pytest.fixture
def place(postgres: Postgres) -> SharedJournal:
    return SharedJournal(postgres.url(), postgres.unique())


def test_a_term_grows_with_every_writer(place: SharedJournal) -> None:
    for expected in (1, 2, 3):
        with open_journal(place, writer="test") as journal:
            assert journal.term == expected
    with open_journal(place) as operator, open_journal(place, read_only=True) as reader:
        assert (operator.term, reader.term) == (0, 0)


def test_a_second_writer_is_told_who_writes(place: SharedJournal) -> None:
    with open_journal(place, writer="pid 7 on mars") as journal:
        with pytest.raises(LockHeld, match=r"pid 7 on mars, since 20.* UTC") as caught:
            open_journal(place, writer="pid 8 on venus")
        assert caught.value.exit_code == 2
        assert journal.commit(with_head(journal.state(), SHA)).source.head == SHA, "the first is not disturbed"
        with open_journal(place, read_only=True) as reader:
            assert (reader.holder() or "").startswith("pid 7 on mars, since")
    with open_journal(place, read_only=True) as reader:
        assert reader.holder() is None


def test_whose_journal_was_taken_writes_nothing_more(place: SharedJournal) -> None:
    with open_journal(place, writer="old") as old:
        old.begin([an_intent()])
        known = old.commit(with_head(old.state(), SHA))
        with open_journal(place, writer="new", take_over=True) as new:
            assert new.state() == known
            writes = (
                lambda: old.commit(with_head(known, "b" * 40)),
                lambda: old.begin([an_intent("i2")]),
                lambda: old.finish([an_outcome()], bases=[a_base()]),
                lambda: old.control(Control(ControlVerb.FREEZE, "*", "guard", 1.0)),
                lambda: old.prune(1e12),
            )
            for write in writes:
                with pytest.raises(JournalTaken, match="taken over the journal: new, since"):
                    write()
            with pytest.raises(JournalTaken):
                old.state()
            with open_journal(place, read_only=True) as reader:
                assert reader.state() == known
            new.finish([an_outcome()], bases=[a_base()])


def test_operators_need_no_term(place: SharedJournal) -> None:
    with open_journal(place, writer="test") as journal, open_journal(place) as operator:
        operator.control(Control(ControlVerb.FREEZE, "*", "ada", 1.0))
        assert len(journal.state().control.controls) == 1
        for write in (lambda: operator.begin([an_intent()]), lambda: operator.prune(1.0)):
            with pytest.raises(JournalError, match="opened for controls only"):
                write()


def test_taking_over_waits_for_the_write_that_is_under_way(place: SharedJournal) -> None:
    inside, go_on, taken = Event(), Event(), list[SqlJournal]()
    with ExitStack() as stack:
        old = stack.enter_context(open_journal(place, writer="old"))
        old.state()

        def pause(_method: str) -> None:
            inside.set()
            go_on.wait()

        old.inside = pause
        writer = Thread(target=lambda: old.finish([], bases=[a_base()]))
        writer.start()
        inside.wait()
        heir = Thread(target=lambda: taken.append(open_journal(place, writer="new", take_over=True)))
        heir.start()
        time.sleep(0.2)
        assert taken == []
        go_on.set()
        writer.join()
        heir.join()
        (new,) = taken
        stack.enter_context(new)
        assert RUNTIME in new.state().reconcile.bases, "what was under way is there"


def test_who_was_stopped_between_its_election_and_the_journal_takes_it_from_nobody(place: SharedJournal) -> None:
    """It was elected, slept, another one leads; it goes on exactly where it opens the journal."""
    with open_journal(place, writer="leader", take_over=True) as leader:
        leader.finish([], bases=[a_base()])
        with pytest.raises(JournalTaken, match="leads no more"):
            open_journal(place, writer="slept", take_over=True, leading=lambda: False)
        assert leader.commit(with_head(leader.state(), SHA)).source.head == SHA, "the leader is not disturbed"
        with open_journal(place, read_only=True) as reader:
            assert (reader.holder() or "").startswith("leader, since")


def test_who_sleeps_while_it_takes_the_journal_is_asked_after_it_woke(place: SharedJournal) -> None:
    """It waits for a write that is under way, and loses its lease meanwhile."""
    inside, go_on, lost = Event(), Event(), list[Exception]()
    leads = True
    with open_journal(place, writer="leader", take_over=True) as leader:
        leader.inside = lambda _method: (inside.set(), go_on.wait(10))[0]
        writer = Thread(target=lambda: leader.finish([], bases=[a_base()]))
        writer.start()
        inside.wait()

        def take() -> None:
            try:
                open_journal(place, writer="slept", take_over=True, leading=lambda: leads)
            except JournalTaken as problem:
                lost.append(problem)

        heir = Thread(target=take)
        heir.start()
        leads = False
        go_on.set()
        writer.join()
        heir.join()
        assert len(lost) == 1
        leader.inside = lambda _method: None
        assert leader.commit(with_head(leader.state(), SHA)).source.head == SHA


# Each step: which of three writers acts, and whether it takes over or writes.
steps = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12)


@given(steps=steps)
def test_whatever_the_order_only_the_newest_term_is_written(
    postgres: Postgres, steps: list[tuple[int, bool]]
) -> None:
    place = SharedJournal(postgres.url(), postgres.unique())
    opened: dict[int, SqlJournal] = {}
    leader, written = None, None
    with ExitStack() as stack:
        for who, takes in steps:
            if takes:
                opened[who] = stack.enter_context(open_journal(place, writer=str(who), take_over=True))
                leader = who
            elif who in opened:
                value = Fields.of({"number": next(numbers)})
                base = replace(a_base(), fields=value)
                if who == leader:
                    opened[who].finish([], bases=[base])
                    written = value
                else:
                    with pytest.raises(JournalTaken):
                        opened[who].finish([], bases=[base])
        if opened:
            with open_journal(place, read_only=True) as reader:
                found = reader.state().reconcile.bases.get(RUNTIME)
                assert (found.fields if found else None) == written
                assert reader.holder() is not None
            terms = [opened[who].term for who in opened]
            assert max(terms) == opened[leader].term  # type: ignore[index]


WRITER = """
import sys
from dataclasses import replace
from gitops_agent.errors import JournalError, JournalTaken
from gitops_agent.journal import postgres
from gitops_agent.journal.place import SharedJournal
from gitops_agent.journal.store import open_journal
from gitops_agent.model.fields import Fields
from tests.journal.values import a_base
postgres._OPTIONS["idle_in_transaction_session_timeout"] = "1s"
with open_journal(SharedJournal(sys.argv[1], sys.argv[2]), writer="old") as journal:
    number = 0
    while True:
        number += 1
        try:
            journal.finish([], bases=[replace(a_base(), fields=Fields.of({"by": "old", "number": number}))])
        except JournalTaken as error:
            print(error.message, flush=True)
            break
        except JournalError:
            continue  # paused in the middle of a transaction, it lost its connection
        print(number, flush=True)
"""


def test_a_writer_that_was_paused_and_goes_on_writes_nothing(place: SharedJournal) -> None:
    """Paused anywhere, also in the middle of a transaction; what it was told is durable is there, and no more."""
    for _ in range(3):
        call = [sys.executable, "-c", WRITER, place.url, place.instance]
        with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as old:
            assert old.stdout is not None
            assert old.stdout.readline() == "1\n"
            time.sleep(0.1)
            os.kill(old.pid, signal.SIGSTOP)
            with open_journal(place, writer="new", take_over=True) as new:
                found = new.state().reconcile.bases[RUNTIME].fields
                os.kill(old.pid, signal.SIGCONT)
                *said, last = old.stdout.read().splitlines()
                acknowledged = int(said[-1]) if said else 1
                assert new.state().reconcile.bases[RUNTIME].fields == found
                assert found.value["by"] == "old"
                assert found.value["number"] >= acknowledged
                new.finish([], bases=[replace(a_base(), fields=Fields.of({"by": "new"}))])
        assert "taken over the journal: new" in last


def test_a_killed_writer_holds_nothing(place: SharedJournal) -> None:
    call = [sys.executable, "-c", WRITER, place.url, place.instance]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == "1\n"
        old.kill()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gitops_agent.journal.postgres.MAX_TRIES", 100)
        with open_journal(place, writer="new") as new:
            assert RUNTIME in new.state().reconcile.bases
