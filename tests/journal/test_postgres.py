"""What can go wrong with a journal on PostgreSQL: each is one sentence with a way out, and none is for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread

import psycopg
import pytest

from gitops_agent.errors import JournalError, JournalTaken, NoJournal
from gitops_agent.journal import schema
from gitops_agent.journal.migrations import STEPS
from gitops_agent.journal.place import SharedJournal
from gitops_agent.journal.postgres import _OPTIONS
from gitops_agent.journal.store import has_journal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.state import State
from tests.servers.postgres import PASSWORD, USER, WRITTEN, Postgres

from .old import put_version_4, tables_of
from .values import RUNTIME, SHA, a_base, with_head

pytestmark = pytest.mark.servers


@pytest.fixture
def place(postgres: Postgres) -> SharedJournal:
    return SharedJournal(postgres.url(), postgres.unique())


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A server that the test may stop."""
    with Postgres() as started:
        yield started


def failure(place: SharedJournal, *, read_only: bool = True) -> JournalError:
    with pytest.raises(JournalError) as caught:
        open_journal(place, read_only=read_only)
    error = caught.value
    for text in (error.message, error.hint, str(place), repr(place)):
        assert PASSWORD not in text
        assert WRITTEN not in text
    assert str(place) in error.message
    assert error.hint
    return error


# -- being there


def test_instances_share_a_database_and_not_a_row(postgres: Postgres) -> None:
    one, two = (SharedJournal(postgres.url(), postgres.unique()) for _ in range(2))
    with open_journal(one, writer="a") as first, open_journal(two, writer="b") as second:
        first.commit(with_head(first.state(), SHA))
        assert second.state() == State()


@pytest.mark.parametrize("instance", ["prod-eu", "a" * 63, "a" * 62 + "b"])
def test_every_name_of_an_instance_has_a_schema_of_its_own(postgres: Postgres, instance: str) -> None:
    place = SharedJournal(postgres.url(), instance)
    with open_journal(place, writer="test") as journal:
        journal.commit(with_head(journal.state(), instance))
    with open_journal(place, read_only=True) as reader:
        assert reader.state().source.head == instance
    assert len(place.schema) <= 63


def test_no_journal_yet(place: SharedJournal) -> None:
    assert not has_journal(place)
    with pytest.raises(NoJournal, match="no journal yet"):
        open_journal(place, read_only=True)
    open_journal(place).close()
    assert has_journal(place)


def test_all_make_it_at_once(place: SharedJournal) -> None:
    """A freeze and a first start of two machines meet: the tables are made once."""
    start, failures = Barrier(4), list[BaseException]()

    def make() -> None:
        start.wait()
        try:
            open_journal(place).close()
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# -- trouble


def test_a_wrong_password(postgres: Postgres) -> None:
    error = failure(SharedJournal(postgres.url(password="wrong-canary"), "x"))
    assert "does not let us in" in error.message
    assert "wrong-canary" not in error.message + error.hint


def test_no_such_database(postgres: Postgres) -> None:
    error = failure(SharedJournal(postgres.url("nowhere"), "x"))
    assert "no such database" in error.message
    assert "createdb" in error.hint


def test_a_database_that_cannot_hold_all_text(postgres: Postgres) -> None:
    postgres.run("CREATE DATABASE narrow ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    error = failure(SharedJournal(postgres.url("narrow"), "x"), read_only=False)
    assert "encoding of the database is LATIN1" in error.message


def test_a_server_that_is_not_there(own: Postgres) -> None:
    own.stop()
    error = failure(SharedJournal(own.url(), "x"))
    assert "does not answer" in error.message


def test_no_right_to_create(postgres: Postgres) -> None:
    postgres.run(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    error = failure(SharedJournal(postgres.url(user="guest"), "x"), read_only=False)
    assert "GRANT CREATE" in error.hint


def test_a_schema_made_for_us_is_enough(postgres: Postgres) -> None:
    postgres.run(f"CREATE ROLE tenant LOGIN PASSWORD '{PASSWORD}'")
    postgres.run("CREATE SCHEMA gitops_agent_rented AUTHORIZATION tenant")
    with open_journal(SharedJournal(postgres.url(user="tenant"), "rented"), writer="test") as journal:
        assert journal.state() == State()


def test_a_server_that_comes_back_is_used_again(own: Postgres) -> None:
    """The journal is the same object all the time, as in ``run``."""
    with open_journal(SharedJournal(own.url(), "x"), writer="test") as journal:
        now = journal.commit(with_head(journal.state(), SHA))
        own.stop()
        for _ in range(3):
            with pytest.raises(JournalError, match=r"does not answer|was lost"):
                journal.commit(with_head(now, "b" * 40))
            with pytest.raises(JournalError, match=r"does not answer|was lost"):
                journal.state()
        own.start()
        assert journal.state() == now
        journal.commit(with_head(journal.state(), "c" * 40))
        assert journal.state().source.head == "c" * 40
        with open_journal(SharedJournal(own.url(), "x"), read_only=True) as reader:
            assert reader.holder() is not None, "it has its lock again"


@pytest.mark.parametrize("by_writing", [True, False])
def test_a_server_that_lost_the_last_transactions_is_noticed(own: Postgres, *, by_writing: bool) -> None:
    """A backup, or a replica that took over too early. What was in memory would be written on top of a hole."""
    place = SharedJournal(own.url(), "x")
    with open_journal(place, writer="test") as journal:
        journal.commit(with_head(journal.state(), SHA))
        kept = own.keep()
        known = journal.commit(with_head(journal.state(), "b" * 40))
        own.go_back(kept)
        for _ in range(2):
            with pytest.raises(JournalTaken, match="went back in time"):
                journal.commit(with_head(known, "c" * 40)) if by_writing else journal.state()
    with open_journal(place, writer="test") as anew:
        assert anew.state().source.head == SHA
        anew.commit(with_head(anew.state(), "d" * 40))


def test_a_connection_lost_in_the_middle_of_a_write(postgres: Postgres, place: SharedJournal) -> None:
    with open_journal(place, writer="test") as journal:
        before = journal.commit(with_head(journal.state(), SHA))
        ours = f"application_name LIKE '%{place.instance}'"
        cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}"
        journal.inside = lambda _method: next(None for _ in postgres.run(cut))
        with pytest.raises(JournalError, match="connection to the journal was lost"):
            journal.finish([], bases=[a_base()])
        journal.inside = lambda _method: None
        assert journal.state() == before
        assert RUNTIME in journal.finish([], bases=[a_base()]).reconcile.bases


def test_an_answer_that_was_lost(postgres: Postgres, place: SharedJournal) -> None:
    """The write is durable, and we do not know: memory is what the database says, not what we believe."""
    with open_journal(place, writer="test") as journal:
        journal.state()
        commit = psycopg.Connection.commit

        def lost(connection: psycopg.Connection) -> None:
            commit(connection)
            raise psycopg.OperationalError("the connection is closed")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(psycopg.Connection, "commit", lost)
            with pytest.raises(JournalError):
                journal.control(Control(ControlVerb.FREEZE, "*", "ada", 1.0))
        assert len(journal.state().control.controls) == 1


def test_a_standby_is_named(own: Postgres) -> None:
    place = SharedJournal(own.url(), "x")
    with open_journal(place, writer="test") as journal:
        journal.commit(with_head(journal.state(), SHA))
    own.run("ALTER DATABASE journal SET default_transaction_read_only = on")
    with open_journal(place, read_only=True) as reader:
        assert reader.state().source.head == SHA, "looking works"
    with pytest.raises(JournalError, match="read-only standby") as caught:
        open_journal(place, writer="test")
    assert "target_session_attrs" in caught.value.hint


def test_a_full_disk(place: SharedJournal, postgres: Postgres) -> None:
    """The server raises what it raises when the disk is full."""
    with open_journal(place, writer="test") as journal:
        now = journal.commit(with_head(journal.state(), SHA))
        postgres.run(
            f"CREATE FUNCTION {place.schema}.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
        )
        postgres.run(
            f"CREATE TRIGGER full_disk BEFORE INSERT ON {place.schema}.bases "
            f"EXECUTE FUNCTION {place.schema}.full()"
        )
        with pytest.raises(JournalError, match="disk of the journal's server is full"):
            journal.finish([], bases=[a_base()])
        assert journal.state() == now
        postgres.run(f"DROP TRIGGER full_disk ON {place.schema}.bases")
        journal.finish([], bases=[a_base()])


def test_no_text_stops_it(place: SharedJournal) -> None:
    """A NUL in JSON is something PostgreSQL cannot look into."""
    from .values import a_status, an_observation, with_statuses

    with open_journal(place, writer="test") as journal:
        status = a_status(ready=False)
        nul = type(status.conditions[0])(**{**_fields(status.conditions[0]), "message": "a\0b\udc80c"})
        journal.commit(
            with_statuses(journal.state(), type(status)(**{**_fields(status), "conditions": (nul,)})),
            observations=[an_observation(message="\0", live={"\0": "\0"})],
        )
        with open_journal(place, read_only=True) as reader:
            assert len(reader.state().status.agents.not_ready) == 1


def _fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}  # type: ignore[attr-defined]


# -- old and new versions


def version(postgres: Postgres, place: SharedJournal) -> object:
    return postgres.run(f"SELECT version FROM {place.schema}.schema_version")[0][0]


def test_an_old_journal_becomes_what_a_new_one_is(postgres: Postgres, place: SharedJournal) -> None:
    put_version_4(place)
    open_journal(place, writer="test").close()
    new = SharedJournal(postgres.url(), postgres.unique())
    open_journal(new, writer="test").close()
    assert tables_of(place) == tables_of(new)
    assert version(postgres, place) == schema.VERSION


def test_a_step_that_fails_leaves_the_old_version(
    postgres: Postgres, place: SharedJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_version_4(place)
    before = tables_of(place)
    monkeypatch.setattr("gitops_agent.journal.migrations.STEPS", {5: (*STEPS[5], "ALTER TABLE nowhere DROP x")})
    with pytest.raises(JournalError):
        open_journal(place)
    assert (tables_of(place), version(postgres, place)) == (before, 4)


KILLED = """
import os, sys, signal
from sqlalchemy import Engine, event
from gitops_agent.journal.place import SharedJournal
from gitops_agent.journal.store import open_journal
left = int(sys.argv[3])
def count(connection, cursor, statement, *rest):
    global left
    left -= statement.split()[0] in ("ALTER", "CREATE", "DROP", "INSERT", "UPDATE", "DELETE")
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
event.listen(Engine, "before_cursor_execute", count)
open_journal(SharedJournal(sys.argv[1], sys.argv[2]), writer="test").close()
"""


@pytest.mark.parametrize("after", [1, 8, 15, 25, 40])
def test_a_kill_in_the_middle_leaves_the_old_version_or_the_new_one(
    postgres: Postgres, place: SharedJournal, after: int
) -> None:
    put_version_4(place)
    before = tables_of(place)
    call = [sys.executable, "-c", KILLED, place.url, place.instance, str(after)]
    code = subprocess.run(call, check=False, timeout=60).returncode
    assert code in (0, -signal.SIGKILL)
    if version(postgres, place) == 4:
        assert tables_of(place) == before
    else:
        assert code == 0
    open_journal(place, writer="again", take_over=True).close()
    assert version(postgres, place) == schema.VERSION


@pytest.mark.parametrize("read_only", [False, True])
def test_a_journal_from_the_future_is_refused(postgres: Postgres, place: SharedJournal, read_only: bool) -> None:
    open_journal(place).close()
    postgres.run(f"UPDATE {place.schema}.schema_version SET version = 999")
    error = failure(place, read_only=read_only)
    assert "has schema 999" in error.message
    assert "newer gitops-agent" in error.hint


def test_something_else_in_our_schema_is_left_alone(postgres: Postgres, place: SharedJournal) -> None:
    postgres.run(f"CREATE SCHEMA {place.schema}")
    postgres.run(f"CREATE TABLE {place.schema}.notes (body text)")
    assert "not a journal of gitops-agent" in failure(place, read_only=False).message


def test_controls_get_their_numbers_in_the_order_they_are_seen(place: SharedJournal) -> None:
    """Operators write at the same time; the writer, which asks for newer numbers only, misses none."""
    with open_journal(place, writer="test") as journal:
        journal.state()

        def speak(name: str) -> None:
            with open_journal(place) as operator:
                for number in range(10):
                    operator.control(Control(ControlVerb.RETRY, f"acme/{name}-{number}", name, 1.0))

        threads = [Thread(target=speak, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            journal.state()
        for thread in threads:
            thread.join()
        assert len(journal.state().control.controls) == 30


def test_a_paused_process_in_a_transaction_keeps_nobody_waiting_for_ever(
    place: SharedJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_OPTIONS, "idle_in_transaction_session_timeout", "500ms")
    with open_journal(place, writer="old") as old:
        old.state()
        began, terms = time.monotonic(), list[int]()

        def take_over(_method: str) -> None:
            with open_journal(place, writer="new", take_over=True) as new:
                terms.append(new.term)

        old.inside = take_over
        with pytest.raises(JournalError, match="was lost"):
            old.finish([], bases=[a_base()])
        assert terms == [old.term + 1]
        assert time.monotonic() - began < 5
        with pytest.raises(JournalError, match="has taken over"):
            old.finish([], bases=[a_base()])


def test_the_password_of_a_file(postgres: Postgres, tmp_path: Path) -> None:
    from gitops_agent.journal.place import journal_place
    from gitops_agent.query.fleet import make_redactor
    from gitops_agent.settings import Settings

    kept = tmp_path / "url"
    kept.write_text(postgres.url() + "\n")
    settings = Settings(instance="kept", state_dir=str(tmp_path), journal_url_file=str(kept))
    place = journal_place(settings)
    assert isinstance(place, SharedJournal)
    assert str(place) == f"postgresql://{USER}@127.0.0.1:{postgres.port}/journal (schema gitops_agent_kept)"
    redactor = make_redactor(settings, {})
    assert redactor(f"{PASSWORD} and {WRITTEN}") == "*** and ***"
