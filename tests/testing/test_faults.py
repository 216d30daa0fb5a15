from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from gitops_agent.drivers.api import ObserveRequest, is_unchanged
from gitops_agent.errors import JournalError
from gitops_agent.journal.store import open_journal
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Observation, Owner
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Plan, Verb
from gitops_agent.ports import Journal
from gitops_agent.testing.faults import (
    Crash,
    FaultInjector,
    FaultyDriver,
    LyingDriver,
    SlowDriver,
    crash,
    disk_full,
    sees_half,
    sees_nothing,
)
from gitops_agent.testing.faulty_journal import FaultyJournal
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key

RUNTIME = runtime_key(AgentKey("acme", "bot"))
WRITES = {"put", "put_commits", "record_plan", "record_observations", "begin", "finish", "put_statuses", "prune"}


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


def write_all(journal: Journal) -> None:
    journal.put({"head": "abc"})
    journal.put_commits([])
    journal.record_plan(Plan("abc", (), "digest"), 1.0)
    journal.record_observations([])
    journal.begin([])
    journal.finish([])
    journal.put_statuses([])
    journal.prune(0.0)


@pytest.mark.unit
def test_every_write_has_a_point_before_and_after(tmp_path: Path) -> None:
    injector = FaultInjector()
    with open_journal(tmp_path) as opened:
        write_all(FaultyJournal(opened, injector))
    assert set(injector.counts) == {f"journal.{name}:{when}" for name in WRITES for when in ("before", "after")}


@pytest.mark.unit
def test_the_points_stand_on_either_side_of_the_write(tmp_path: Path) -> None:
    with open_journal(tmp_path) as opened:
        for when, expected in (("before", None), ("after", "abc")):
            journal = FaultyJournal(opened, FaultInjector.at(f"journal.put:{when}:1", crash))
            with pytest.raises(Crash):
                journal.put({when: "abc"})
            assert journal.get(when) == expected


@pytest.mark.unit
def test_reads_pass_through_without_points(tmp_path: Path) -> None:
    injector = FaultInjector()
    with open_journal(tmp_path) as opened:
        journal: Journal = FaultyJournal(opened, injector)
        assert (dict(journal.bases()), dict(journal.attempts()), dict(journal.statuses())) == ({}, {}, {})
        assert (journal.open_intents(), journal.commits(), journal.entries()) == ([], [], [])
        assert (journal.commit("abc"), journal.get("head")) == (None, None)
    assert injector.points() == ()


@pytest.mark.unit
def test_a_full_disk_can_be_played(tmp_path: Path) -> None:
    with open_journal(tmp_path) as opened:
        journal = FaultyJournal(opened, FaultInjector("journal.put:before", 2, disk_full))
        journal.put({"head": "1"})
        with pytest.raises(JournalError, match="disk is full"):
            journal.put({"head": "2"})
        assert journal.get("head") == "1"


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


@pytest.mark.unit
def test_an_observer_can_be_slow() -> None:
    memory, gate = MemoryDriver(), Event()
    memory.plant(RUNTIME, {}, Owner.OURS)
    answers: list[Observation] = []
    slow = SlowDriver(memory, gate.wait)
    thread = Thread(target=lambda: answers.extend(slow.observe(ObserveRequest())))
    thread.start()
    assert memory.calls["observe"] == 0
    gate.set()
    thread.join()
    assert [item.key for item in answers] == [RUNTIME]
