"""A slow driver holds up no other agent, and what it did is recorded all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from gitops_agent.drivers.api import Observation, ObserveRequest
from gitops_agent.errors import JournalError
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.outcome import Applied, Result
from gitops_agent.model.plan import Action, Verb
from gitops_agent.reconcile.executor import Executor
from gitops_agent.reconcile.lanes import MAX_SLOW
from gitops_agent.support.daemon_pool import DaemonPool
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import config_key, runtime_key

from .make import ONE, TWO, action, base, bring_up, plan
from .test_executor import Doing, Rig, results

pytestmark = pytest.mark.unit


class Slow:
    """A driver that is slow for one agent until it is told to go on."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.go_on = Event()
        self.begun: list[str] = []

    def unchanged(self, action: Action) -> bool:
        return True

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        return ()

    def apply(self, action: Action, key: str) -> Applied:
        self.begun.append(str(action.key))
        if action.key.agent == ONE:
            self.go_on.wait(30)
        return self.rig.live.apply(action, key)


@pytest.fixture
def rig(journal: SqlJournal, clock: FrozenClock, pool: ThreadPoolExecutor) -> Rig:
    made = Rig(journal, clock, pool)
    made.context = replace(made.context, patience=0.05)
    return made


def test_a_slow_agent_is_left_behind_and_collected_later(rig: Rig) -> None:
    slow = Slow(rig)
    rig.using(slow)
    executor = Executor(rig.context)
    done = rig.execute(executor, plan(*bring_up(ONE), *bring_up(TWO)))
    assert {action.key.agent for action, _ in done} == {TWO}
    assert runtime_key(TWO) in rig.live.live
    assert [action.key for action in executor.running] == [config_key(ONE)]
    executor.collect_finished()
    assert rig.execute(executor, plan()) == [], "it has not ended yet"
    slow.go_on.set()
    executor.close()
    assert executor.running == ()
    assert config_key(ONE) in rig.journal.state().reconcile.bases
    assert rig.journal.state().reconcile.open_intents == {}
    assert str(runtime_key(ONE)) not in slow.begun, "what came next in its lane is planned again"


def test_what_ended_late_is_returned_by_the_next_execution(rig: Rig) -> None:
    slow = Slow(rig)
    rig.using(slow)
    executor = Executor(rig.context)
    assert rig.execute(executor, plan(action(config_key(ONE)))) == []
    slow.go_on.set()
    wait(executor._running)
    executor.collect_finished()
    assert config_key(ONE) in rig.journal.state().reconcile.bases
    assert results(rig.execute(executor, plan())) == {str(config_key(ONE)): Result.DONE}


def test_no_more_lanes_than_workers_are_begun(rig: Rig) -> None:
    rig.context = replace(rig.context, workers=1)
    slow = Slow(rig)
    rig.using(slow)
    executor = Executor(rig.context)
    assert rig.execute(executor, plan(action(config_key(ONE)), action(config_key(TWO)))) == []
    assert slow.begun == [str(config_key(ONE))]
    assert [intent.action.key for intent in rig.journal.state().reconcile.open_intents.values()] == [
        config_key(ONE)
    ]
    slow.go_on.set()
    executor.close()


# -- places: who hangs waits alone


MANY = [AgentKey("acme", f"slow-{number}") for number in range(20)]


def hook(agent: AgentKey) -> Action:
    return action(ResourceKey(agent, Kind.HOOK.value, "onProvisioned"))


def stop(agent: AgentKey) -> Action:
    return action(runtime_key(agent), Verb.STOP, desired=None)


@pytest.mark.parametrize("hang", [hook, stop])
def test_as_many_that_hang_as_there_are_workers_keep_no_agent_from_being_started(
    journal: SqlJournal, clock: FrozenClock, hang: Callable[[AgentKey], Action]
) -> None:
    rig = Rig(journal, clock, DaemonPool("apply", 64))
    rig.context = replace(rig.context, patience=0.05, workers=2)
    over, started = Event(), list[AgentKey]()

    def do(step: Action) -> None:
        if step.key.agent in MANY:
            over.wait(30)
        started.append(step.key.agent)

    rig.using(Doing(do))
    executor = Executor(rig.context)
    rig.execute(executor, plan(*(hang(agent) for agent in MANY[:2])))
    assert len(executor.running) == 2
    rig.execute(executor, plan(*(hang(agent) for agent in MANY[2:]), action(runtime_key(TWO))))
    assert started == [TWO]
    assert len(executor.running) == 2, "there is no more room among their own kind"
    clock.advance(1)
    rig.execute(executor, plan(*(hang(agent) for agent in MANY[2:])))
    assert len(executor.running) == 4, "those that take long have made room for the next"
    over.set()
    executor.close()
    assert executor.running == ()


def test_as_many_that_hang_in_one_live_system_keep_no_agent_of_another_from_being_started(
    journal: SqlJournal, clock: FrozenClock
) -> None:
    rig = Rig(journal, clock, DaemonPool("apply", 2 * (MAX_SLOW + 8)))
    over, started = Event(), list[AgentKey]()
    slow = Doing(lambda _: over.wait(30) and None)
    quick = Doing(lambda step: started.append(step.key.agent))
    rig.context = replace(rig.context, patience=0.05, drivers={"memory": slow, "other": quick})
    executor = Executor(rig.context)
    many = [AgentKey("acme", f"slow-{number}") for number in range(MAX_SLOW + 8)]
    for first in range(0, len(many), 8):
        rig.execute(executor, plan(*(action(runtime_key(agent)) for agent in many[first : first + 8])))
        clock.advance(1)
    assert len(executor.running) == MAX_SLOW, "there is no more room among the slow ones"
    rig.execute(executor, plan(replace(action(runtime_key(TWO)), driver="other")))
    assert started == [TWO]
    over.set()
    executor.close()


def test_the_end_does_not_wait_for_what_hangs_and_leaves_it_to_the_next_start(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Slow(rig)
    rig.using(slow)
    executor = Executor(rig.context)
    rig.execute(executor, plan(hook(ONE)))
    executor.close(timeout=0.05)
    (intent,) = rig.journal.state().reconcile.open_intents.values()
    assert intent.action.key == hook(ONE).key
    told = capsys.readouterr().out
    assert "waiting for what is under way" in told
    assert f"create {hook(ONE).key}" in told
    slow.go_on.set()


def test_a_freeze_is_obeyed_in_the_middle_of_a_pass(rig: Rig, tmp_path: Path) -> None:
    """Written by another process, and heard before the next action, not with the next pass."""
    rig.context = replace(rig.context, workers=1)
    begun: list[AgentKey] = []

    def do(step: Action) -> None:
        begun.append(step.key.agent)
        with open_journal(tmp_path / "state") as beside:
            beside.control(Control(ControlVerb.FREEZE, "*", "ada", 1.0))

    rig.using(Doing(do))
    done = rig.run(action(runtime_key(ONE)), action(runtime_key(TWO)))
    assert begun == [ONE]
    assert results(done) == {str(runtime_key(ONE)): Result.DONE}


def test_what_takes_away_goes_before_what_builds(rig: Rig) -> None:
    order: list[str] = []
    rig.using(Doing(lambda each: order.append(f"{each.verb} {each.key.agent.name}")))
    rig.journal.finish((), bases=[base(runtime_key(TWO))])
    done = rig.run(action(runtime_key(ONE)), action(runtime_key(TWO), Verb.DELETE, desired=None))
    assert set(results(done).values()) == {Result.DONE}
    assert order == [f"delete {TWO.name}", f"create {ONE.name}"]


def test_nothing_acts_any_more_when_the_journal_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
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
