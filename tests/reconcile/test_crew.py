"""Who is slow keeps nobody else waiting, and what it did is recorded all the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from gitops_agent.errors import JournalError
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.outcome import Applied, Result
from gitops_agent.model.plan import Action, Verb
from gitops_agent.reconcile.executor import ActionExecutor
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import config_key, runtime_key

from .make import ONE, TWO, action, base, bring_up, plan
from .test_execute import Doing, Rig, results

pytestmark = pytest.mark.unit


class Slow:
    """An applier that is slow for one agent until it is told to go on."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.go_on = Event()
        self.begun: list[str] = []

    def unchanged(self, action: Action) -> bool:
        return True

    def apply(self, action: Action, intent: str) -> Applied:
        self.begun.append(str(action.key))
        if action.key.agent == ONE:
            self.go_on.wait(30)
        return self.rig.live.apply(action, intent)


@pytest.fixture
def rig(journal: SqlJournal, clock: FrozenClock, pool: ThreadPoolExecutor) -> Rig:
    made = Rig(journal, clock, pool)
    made.bench = replace(made.bench, patience=0.05)
    return made


def test_a_slow_agent_is_left_behind_and_collected_later(rig: Rig) -> None:
    slow = Slow(rig)
    rig.using(slow)
    crew = ActionExecutor(rig.bench)
    done = crew.execute(plan(*bring_up(ONE), *bring_up(TWO)), "test")
    assert {action.key.agent for action, _ in done} == {TWO}
    assert runtime_key(TWO) in rig.live.live
    assert [action.key for action in crew.busy] == [config_key(ONE)]
    assert crew.collect() == []
    slow.go_on.set()
    crew.close()
    assert crew.busy == ()
    assert config_key(ONE) in rig.journal.state().reconcile.bases
    assert rig.journal.state().reconcile.open_intents == {}
    assert str(runtime_key(ONE)) not in slow.begun, "what came next in its lane is planned again"


def test_no_more_lanes_than_hands_are_begun(rig: Rig) -> None:
    rig.bench = replace(rig.bench, hands=1)
    slow = Slow(rig)
    rig.using(slow)
    crew = ActionExecutor(rig.bench)
    assert crew.execute(plan(action(config_key(ONE)), action(config_key(TWO))), "test") == []
    assert slow.begun == [str(config_key(ONE))]
    assert [intent.action.key for intent in rig.journal.state().reconcile.open_intents] == [config_key(ONE)]
    slow.go_on.set()
    crew.close()


def test_what_takes_away_goes_before_what_builds(rig: Rig) -> None:
    order: list[str] = []
    rig.using(Doing(lambda each: order.append(f"{each.verb} {each.key.agent.name}")))
    rig.journal.finish((), bases=[base(runtime_key(TWO))])
    done = rig.run(action(runtime_key(ONE)), action(runtime_key(TWO), Verb.DELETE, desired=None))
    assert set(results(done).values()) == {Result.DONE}
    assert order == [f"delete {TWO.name}", f"create {ONE.name}"]


def test_nobody_acts_any_more_when_the_journal_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Event()

    def slowly(each: Action) -> None:
        if each.key.agent == ONE:
            assert not ended.wait(0.2)
            ended.set()

    rig.using(Doing(slowly))

    def full(*_: object, **__: object) -> None:
        raise JournalError("the disk is full")

    monkeypatch.setattr(rig.journal, "finish", full)
    with pytest.raises(JournalError):
        rig.run(action(config_key(TWO)), action(config_key(ONE)))
    assert ended.is_set()
