"""``kill -9`` at any point leaves a journal that is readable and correct."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.journal.store import open_journal

from .campaign import POINTS_PER_STEP, STEPS


def campaign(kind: str, folder: Path, every: int = 1) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.journal.campaign", kind, str(folder), str(every)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_at_every_write_exactly_the_finished_writes_are_there(tmp_path: Path) -> None:
    found = campaign("writes", tmp_path)
    assert len(found) == len(POINTS_PER_STEP) * len(STEPS)
    assert [item for item in found if not (item["killed"] and item["sound"] and item["exact"])] == []


@pytest.mark.parametrize(("kind", "least"), [("statements", 30), ("migration", 15)])
def test_at_any_statement_all_of_a_write_is_there_or_none(tmp_path: Path, kind: str, least: int) -> None:
    """At every third one: all of them take a minute (``tests.journal.campaign`` with 1)."""
    found = campaign(kind, tmp_path, every=3)
    assert len(found) > least
    assert [item["killed"] for item in found] == [True] * (len(found) - 1) + [False]
    assert [item for item in found if not (item["sound"] and item["exact"])] == []


ENDLESS = """
import sys
from dataclasses import replace
from pathlib import Path
from gitops_agent.journal.store import open_journal
with open_journal(Path(sys.argv[1])) as journal:
    state, number = journal.state(), 0
    while True:
        number += 1
        source, status = replace(state.source, head=str(number)), replace(state.status, last_pass=number)
        state = journal.commit(replace(state, source=source, status=status))
        print(number, flush=True)
"""


@pytest.mark.parametrize("after", [1, 7, 20])
def test_what_was_acknowledged_is_there(tmp_path: Path, after: int) -> None:
    """A kill from outside, at whatever instruction it finds."""
    writer = subprocess.Popen([sys.executable, "-c", ENDLESS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with writer:
        assert writer.stdout is not None
        for _ in range(after):
            writer.stdout.readline()
        writer.kill()
        acknowledged = [after, *(int(line) for line in writer.stdout if line.endswith("\n"))][-1]
    with open_journal(tmp_path) as journal:
        found = journal.state()
        number = int(found.source.head or 0)
        assert acknowledged <= number <= acknowledged + 1
        assert found.status.last_pass == number
