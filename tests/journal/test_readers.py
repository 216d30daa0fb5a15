"""Readers beside a writer: always a whole state, never in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gitops_agent.errors import JournalError
from gitops_agent.journal.store import SqlJournal, open_journal

from .values import RUNTIME, a_base, a_commit

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
                one, two = reader.bases().values()
                assert one.fields == two.fields
                seen.add(one.fields.raw)
        enough.touch()
        written = int(writer.stdout.readline())
    assert writer.returncode == 0
    assert written >= len(seen) - 1 >= 19


@pytest.mark.unit
def test_a_reader_follows_the_writer(state: Path, journal: SqlJournal) -> None:
    with open_journal(state, read_only=True) as reader:
        assert dict(reader.bases()) == {}
        journal.finish([], bases=[a_base()])
        journal.put_commits([a_commit()])
        assert list(reader.bases()) == [RUNTIME]
        assert [record.sha for record in reader.commits()] == [a_commit().sha]


@pytest.mark.unit
def test_a_reader_cannot_write(state: Path, journal: SqlJournal) -> None:
    with open_journal(state, read_only=True) as reader, pytest.raises(JournalError, match="for reading only"):
        reader.put({"head": "moved"})
    assert journal.get("head") is None


@pytest.mark.unit
def test_a_reader_works_after_the_writer_has_left(state: Path) -> None:
    with open_journal(state) as journal:
        journal.put({"head": "abc"})
    with open_journal(state, read_only=True) as reader:
        assert reader.get("head") == "abc"


@pytest.mark.unit
def test_names_with_special_characters_are_only_names(tmp_path: Path) -> None:
    odd = tmp_path / "a?mode=memory#b %41"
    with open_journal(odd) as journal:
        journal.put({"head": "abc"})
    assert (odd / "journal.db").is_file()
    with open_journal(odd, read_only=True) as reader:
        assert reader.get("head") == "abc"
