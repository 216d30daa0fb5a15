from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gitops_agent.drivers.api import ObserveRequest, is_unchanged
from gitops_agent.errors import JournalError
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Owner
from gitops_agent.model.outcome import Outcome, Result
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb
from gitops_agent.model.state import State
from gitops_agent.testing.faults import (
    Crash,
    FaultInjector,
    FaultyDriver,
    LyingDriver,
    crash,
    disk_full,
    sees_half,
    sees_nothing,
)
from gitops_agent.testing.faulty_journal import FaultyJournal
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key
from tests.journal.values import a_commit, an_intent

RUNTIME = runtime_key(AgentKey("acme", "bot"))
WRITES = {"control", "commit", "begin", "finish", "take_back", "delivered", "prune"}


@pytest.mark.unit
def test_points_are_counted_and_one_of_them_strikes() -> None:
    injector = FaultInjector.at("b:2", crash)
    for point in ("a", "b", "a"):
        injector.reach(point)
    with pytest.raises(Crash):
        injector.reach("b")
    injector.reach("b")
    assert injector.points() == ("a:1", "b:1", "a:2", "b:2", "b:3")
    assert injector.counts == {"a": 2, "b": 3}


@pytest.mark.unit
def test_every_point_counted_can_be_struck() -> None:
    def run(injector: FaultInjector) -> None:
        for point in ("journal.begin:before", "journal.begin:after", "journal.begin:before"):
            injector.reach(point)

    counted = FaultInjector()
    run(counted)
    for number, point in enumerate(counted.points(), 1):
        struck = FaultInjector.at(point, crash)
        with pytest.raises(Crash):
            run(struck)
        assert len(struck.trace) == number


@pytest.mark.unit
@pytest.mark.parametrize("text", ["", "journal.begin", ":1", "a:0", "a:-1", "a:x", "a:", "a:²"])
def test_a_misspelt_point_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected something like"):
        FaultInjector.at(text)


@pytest.mark.unit
def test_no_handler_of_errors_survives_a_crash() -> None:
    assert not issubclass(Crash, Exception)


def test_kill_is_a_kill() -> None:
    code = (
        "from gitops_agent.testing.faults import FaultInjector; FaultInjector.at('x:1').reach('x'); print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def with_head(journal: SqlJournal, sha: str) -> State:
    state = journal.state()
    return replace(state, source=replace(state.source, head=sha))


def write_all(journal: SqlJournal) -> None:
    commit = a_commit("abc", 1)
    state = with_head(journal, "abc")
    journal.commit(replace(state, commits=state.commits.updated([commit])), owed_to=["notes"], at=1.0)
    intent = an_intent()
    journal.begin([intent])
    journal.finish([Outcome(intent.id, Result.DONE, "done", 2.0, 1.0)])
    journal.take_back([intent.id])
    journal.control(Control(ControlVerb.FREEZE, "*", "ada@host", 1.0))
    journal.delivered("notes", journal.owed()["notes"])
    journal.prune(0.0)


@pytest.mark.unit
def test_every_write_has_a_point_before_inside_and_after(tmp_path: Path) -> None:
    injector = FaultInjector()
    with open_journal(tmp_path) as opened:
        write_all(FaultyJournal(opened, injector))
    points = {f"journal.{name}:{when}" for name in WRITES for when in ("before", "inside", "after")}
    assert set(injector.counts) == points


@pytest.mark.unit
@pytest.mark.parametrize(("when", "durable"), [("before", None), ("inside", None), ("after", "abc")])
def test_the_points_stand_on_either_side_of_the_write(tmp_path: Path, when: str, durable: str | None) -> None:
    with open_journal(tmp_path) as opened:
        journal = FaultyJournal(opened, FaultInjector.at(f"journal.commit:{when}:1", crash))
        with pytest.raises(Crash):
            journal.commit(with_head(journal, "abc"))
        assert journal.state().source.head == durable, "memory follows what is written"
    with open_journal(tmp_path) as again:
        assert again.state().source.head == durable


@pytest.mark.unit
def test_reads_pass_through_without_points(tmp_path: Path) -> None:
    injector = FaultInjector()
    with open_journal(tmp_path) as opened:
        journal: SqlJournal = FaultyJournal(opened, injector)
        state = journal.state()
        assert (dict(state.reconcile.bases), dict(state.reconcile.attempts), dict(state.status.agents)) == (
            {},
            {},
            {},
        )
        assert (dict(state.reconcile.open_intents), journal.commits(), journal.entries()) == ({}, [], [])
        assert (journal.commit_record("abc"), state.source.head) == (None, None)
    assert injector.points() == ()


@pytest.mark.unit
def test_a_full_disk_can_be_played(tmp_path: Path) -> None:
    with open_journal(tmp_path) as opened:
        journal = FaultyJournal(opened, FaultInjector("journal.commit:before", 2, disk_full))
        journal.commit(with_head(journal, "1"))
        with pytest.raises(JournalError, match="disk is full"):
            journal.commit(with_head(journal, "2"))
        assert journal.state().source.head == "1"


@pytest.mark.unit
def test_effects_have_points_too() -> None:
    memory = MemoryDriver()
    words = (Class.CHANGE, "Test", "test", Confidence.HIGH, Decision.REPAIR)
    action = Action(RUNTIME, "memory", Verb.CREATE, *words, desired=Fields.of({"replicas": 1}))
    for when, there in (("before", False), ("after", True)):
        driver = FaultyDriver(memory, FaultInjector.at(f"apply:{when}:1", crash))
        assert is_unchanged(driver, action)
        with pytest.raises(Crash):
            driver.apply(action, "i1")
        assert (RUNTIME in memory.live) is there


@pytest.mark.unit
def test_an_observer_can_lie() -> None:
    memory = MemoryDriver()
    for name in ("one", "two", "three"):
        memory.plant(runtime_key(AgentKey("acme", name)), {}, Owner.OURS)
    assert LyingDriver(memory, sees_nothing).observe(ObserveRequest()) == ()
    assert len(LyingDriver(memory, sees_half).observe(ObserveRequest())) == 2
