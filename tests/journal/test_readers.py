"""Readers beside a writer: always a whole state, never in the way."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gitops_agent.errors import JournalError
from gitops_agent.journal.place import Place
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.journal.tables import MAX_SINGLE_READS
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey
from tests.support.statements import statements

from .conftest import only_sqlite
from .values import BOT, a_base, a_commit, a_status, with_controls, with_head, with_records, with_statuses

WRITER = """
import sys
from pathlib import Path
from gitops_agent.journal.store import open_journal
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import Base

def bases(number):
    for name in ("one", "two"):
        key = ResourceKey(AgentKey("acme", name), "runtime", "main")
        yield Base(key, "memory", Fields.of({"number": number}), "abc", float(number))

with open_journal(Path(sys.argv[1])) as journal:
    journal.finish([], bases=list(bases(0)))
    print("ready", flush=True)
    number = 0
    while not Path(sys.argv[2]).exists():
        number += 1
        journal.finish([], bases=list(bases(number)))
    print(number, flush=True)
"""


@only_sqlite
def test_a_reader_sees_whole_transactions_while_another_process_writes(state: Path, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(state), str(enough)], stdout=subprocess.PIPE, text=True
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        seen: set[bytes] = set()
        with open_journal(state, read_only=True) as reader:
            while len(seen) < 20 and writer.poll() is None:
                one, two = reader.state().reconcile.bases.values()
                assert one.fields == two.fields
                seen.add(one.fields.raw)
        enough.touch()
        written = int(writer.stdout.readline())
    assert writer.returncode == 0
    assert written >= len(seen) - 1 >= 19


@pytest.mark.unit
def test_a_reader_follows_the_writer(state: Place, journal: SqlJournal) -> None:
    with open_journal(state, read_only=True) as reader:
        before = reader.state()
        assert before.reconcile.bases == {}
        journal.finish([], bases=[a_base()])
        now = journal.commit(with_records(journal.state(), a_commit()), owed_to=["notes"])
        assert reader.state() == now
        assert before.reconcile.bases == {}, "a state that was given out does not change"
        assert reader.state() is reader.state()
        assert [record.sha for record in reader.commits()] == [a_commit().sha]
        assert reader.owed() == journal.owed() == {"notes": {a_commit().sha: 1}}
        journal.delivered("notes", {a_commit().sha: 1})
        assert reader.owed() == {}


@pytest.mark.unit
def test_a_reader_pays_for_what_it_looks_at(state: Place, journal: SqlJournal) -> None:
    journal.finish([], bases=[a_base()])
    journal.commit(with_statuses(with_records(journal.state(), a_commit()), a_status()))
    with open_journal(state, read_only=True) as reader:
        sent = statements(reader)
        found = reader.state()
        read = [words for words in sent if words.startswith("SELECT") and "FROM writer" not in words]
        assert len(read) == 2, "fields and controls"
        sent.clear()
        assert found.status.agents[BOT].ready
        assert ["statuses" in words for words in sent if words.startswith("SELECT")] == [True]
        assert (AgentKey("acme", "none") in found.status.agents, found.status.agents.not_ready) == (False, set())
        assert found.status.agents[BOT] is found.status.agents[BOT]
        sent.clear()
        assert list(found.status.agents) == list(found.status.agents) == [BOT]
        assert ["statuses" in words for words in sent if words.startswith("SELECT")] == [True], "read once"


@pytest.mark.unit
def test_statuses_are_read_one_by_one_or_all_at_once(state: Place, journal: SqlJournal) -> None:
    keys = [AgentKey("acme", f"bot-{number}") for number in range(50)]
    journal.commit(with_statuses(journal.state(), *map(a_status, keys)))
    with open_journal(state, read_only=True) as reader:
        agents = reader.state().status.agents
        sent = statements(reader)
        assert [agents[key].agent for key in keys] == keys
        assert len([words for words in sent if words.startswith("SELECT")]) == MAX_SINGLE_READS + 1


@pytest.mark.unit
def test_controls_of_other_processes_are_noticed(state: Place, journal: SqlJournal) -> None:
    before = journal.commit(with_statuses(journal.state(), a_status()))
    freeze, retry = (
        Control(ControlVerb.FREEZE, "*", "ada", 1.0),
        Control(ControlVerb.RETRY, "acme/bot", "ada", 2.0),
    )
    with open_journal(state) as operator:
        operator.control(freeze)
        assert journal.state().control.controls == (replace(freeze, seq=1),)
        operator.control(retry)
        assert [control.seq for control in operator.state().control.controls] == [1, 2]
    tripped = Control(ControlVerb.FREEZE, "acme", "mass_drift", 3.0)
    now = journal.commit(with_controls(before, tripped))
    assert now.control.controls == (replace(freeze, seq=1), replace(retry, seq=2), replace(tripped, seq=3))
    assert journal.state() is now
    assert now.status is before.status, "the rest stays in memory"


@pytest.mark.unit
@only_sqlite
def test_a_control_between_two_passes_costs_two_statements(state: Path, journal: SqlJournal) -> None:
    journal.state()
    with open_journal(state) as operator:
        operator.control(Control(ControlVerb.FREEZE, "*", "ada", 1.0))
    sent = statements(journal)
    journal.state()
    assert [words.split()[0] for words in sent] == ["BEGIN", "SELECT"]
    sent.clear()
    journal.state()
    assert sent == []


@pytest.mark.unit
def test_a_reader_cannot_write(state: Place, journal: SqlJournal) -> None:
    with open_journal(state, read_only=True) as reader, pytest.raises(JournalError, match="for reading only"):
        reader.commit(with_head(reader.state(), "moved"))
    assert journal.state().source.head is None


@pytest.mark.unit
def test_a_reader_works_after_the_writer_has_left(state: Place) -> None:
    with open_journal(state, writer="test") as journal:
        journal.commit(with_head(journal.state(), "abc"))
    with open_journal(state, read_only=True) as reader:
        assert reader.state().source.head == "abc"


@pytest.mark.unit
def test_names_with_special_characters_are_only_names(tmp_path: Path) -> None:
    odd = tmp_path / "a?mode=memory#b %41"
    with open_journal(odd) as journal:
        journal.commit(with_head(journal.state(), "abc"))
    assert (odd / "journal.db").is_file()
    with open_journal(odd, read_only=True) as reader:
        assert reader.state().source.head == "abc"
