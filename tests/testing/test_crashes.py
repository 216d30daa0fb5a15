"""The fakes together: crash at every point of a pass, look, settle, go on; nothing is lost or made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_agent.drivers.api import Driver, ObserveRequest
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Intent, Outcome, Result
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb
from gitops_agent.reconcile.recovery import settle_intents
from gitops_agent.testing.faults import Crash, FaultInjector, FaultyDriver, crash
from gitops_agent.testing.faulty_journal import FaultyJournal
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key

pytestmark = pytest.mark.unit
WANTED = {runtime_key(AgentKey("acme", name)): Fields.of({"name": name}) for name in ("one", "two", "three")}
WORDS = (Class.CHANGE, "Created", "new in Git", Confidence.HIGH, Decision.REPAIR)


def one_pass(journal: SqlJournal, driver: Driver) -> None:
    """The smallest reconciler: settle, then create what is missing."""
    known = journal.state().reconcile
    seen = {item.key: item for item in driver.observe(ObserveRequest(None, known.bases))}
    outcomes, bases, forgotten = settle_intents(tuple(known.open_intents.values()), seen, 5.0, known.bases)
    journal.finish(outcomes, bases=bases, forgotten=forgotten)
    for key, fields in WANTED.items():
        if key not in seen or seen[key].fields is None:
            create(journal, driver, key, fields)


def create(journal: SqlJournal, driver: Driver, key: ResourceKey, fields: Fields) -> None:
    action = Action(key, "memory", Verb.CREATE, *WORDS, desired=fields)
    intent = Intent(f"{key}-{len(journal.entries())}", action, "abc", "digest", "once", 1.0)
    journal.begin([intent])
    applied = driver.apply(action, intent.id)
    base = Base(key, "memory", fields, "abc", 2.0, handle=applied.handle)
    journal.finish([Outcome(intent.id, Result.DONE, applied.message, 2.0, 1.0, applied.handle)], bases=[base])


def run(folder: Path, memory: MemoryDriver, injector: FaultInjector) -> None:
    with open_journal(folder) as journal:
        one_pass(FaultyJournal(journal, injector), FaultyDriver(memory, injector))


def test_a_crash_at_any_point_is_healed_by_one_pass(tmp_path: Path) -> None:
    counted = FaultInjector()
    run(tmp_path / "counted", MemoryDriver(), counted)
    assert len(counted.points()) == 2 + 8 * len(WANTED), "nothing is written when nothing was settled"
    for number, point in enumerate(counted.points()):
        folder, memory = tmp_path / str(number), MemoryDriver()
        with pytest.raises(Crash):
            run(folder, memory, FaultInjector.at(point, crash))
        run(folder, memory, FaultInjector())
        assert {key: thing.fields for key, thing in memory.live.items()} == WANTED, point
        assert set(memory.starts.values()) == {1}, point
        with open_journal(folder) as journal:
            assert {key: base.fields for key, base in journal.state().reconcile.bases.items()} == WANTED, point
            assert journal.state().reconcile.open_intents == {}, point
