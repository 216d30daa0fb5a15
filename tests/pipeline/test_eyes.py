"""Eyes that are closed, wrong or slow: nothing is deleted, nothing is started twice, and people are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from gitops_agent.drivers.api import Driver, ObserveRequest
from gitops_agent.errors import ObserveError
from gitops_agent.model.observation import Observation
from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action, Verb
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.observe.observer import ask_drivers as observe
from gitops_agent.support.bounded_calls import BoundedCalls
from gitops_agent.testing.faults import (
    Crash,
    FaultInjector,
    Lie,
    LyingDriver,
    WrappedDriver,
    sees_half,
    sees_nothing,
)
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key
from tests.support.plugins import connect, connected

from .repository import key
from .world import World, verbs

ONE, TWO = runtime_key(key("one")), runtime_key(key("two"))


class Raising(WrappedDriver):
    def __init__(self, driver: Driver, problem: BaseException) -> None:
        super().__init__(driver)
        self.problem = problem

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        raise self.problem


CLOSED = [ObserveError("cannot list /proc"), RuntimeError("bug"), MemoryError(), SystemExit(3)]


@pytest.mark.parametrize("problem", CLOSED, ids=lambda problem: type(problem).__name__)
def test_what_cannot_be_seen_is_not_touched(world: World, problem: BaseException) -> None:
    world.commit("one", "two")
    world.converge()
    before = dict(world.live.live)
    world.driver = Raising(world.live, problem)
    world.boot()
    # Nor when a commit changes, adds and removes agents.
    sha = world.repository.commit({"one": {"runtime": {"command": ["new"]}}, "three": {}})
    result = world.run()
    assert result.executed == []
    assert world.live.live == before
    assert not result.state.status.agents[key("one")].ready
    ready = world.condition("one")
    assert ready is not None
    assert ready.reason == "ObserveFailed"
    assert world.phase(sha) is Phase.RECONCILING, "what nobody can see has not converged"
    # And when the eyes open again, all of it happens.
    world.driver = None
    world.boot()
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(sha)


def test_a_first_commit_does_not_converge_unseen(world: World) -> None:
    world.commit("one")
    world.live.unreachable_next(3)
    for _ in range(3):
        assert world.run().phase is Phase.RECONCILING
        world.clock.advance(5)
    assert world.converge().phase is Phase.CONVERGED


def test_a_blink_leaves_no_trace(world: World) -> None:
    good = world.commit("one", "two")
    world.converge()
    starts = world.live.starts.copy()
    world.live.unreachable_next()
    assert not world.run().state.status.agents[key("one")].ready
    result = world.run()
    assert result.executed == []
    assert result.state.status.agents[key("one")].ready
    assert (world.live.starts, world.phase(good)) == (starts, Phase.CONVERGED)


def test_an_agent_that_left_git_unseen_is_deleted_when_it_is_seen(world: World) -> None:
    world.commit("one", "two")
    world.converge()
    world.live.unreachable_next()
    sha = world.commit("one")
    world.run()
    assert TWO in world.live.live
    assert TWO in world.journal.state().reconcile.bases, "what could not be seen is not forgotten"
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(sha)


def test_closed_eyes_of_one_driver_are_no_matter_of_the_others(world: World) -> None:
    """Each driver's answer counts whole or not at all, and for itself."""
    one, two = MemoryDriver("first"), MemoryDriver("second")
    for driver in (one, two):
        driver.plant(runtime_key(key(driver.name)), {})
    one.unreachable_next()
    with ThreadPoolExecutor(2) as pool:
        found = observe(connect([one.plugin, two.plugin]), None, {}, BoundedCalls(pool))
    assert set(found.seen) == {runtime_key(key("second"))}
    assert found.unreachable == {"first": "the live system does not answer; scripted by the test"}


def test_an_answer_that_breaks_off_counts_for_nothing() -> None:
    live = MemoryDriver()
    for name in ("one", "two"):
        live.plant(runtime_key(key(name)), {})

    class BreaksOff:
        def observe(self, *_: object) -> Iterator[Observation]:
            yield live.observe(ObserveRequest())[0]
            raise ConnectionResetError

    with ThreadPoolExecutor(1) as pool:
        found = observe(connected({"memory": BreaksOff()}), None, {}, BoundedCalls(pool))  # type: ignore[dict-item]
    assert found.seen == {}
    assert "ConnectionResetError" in found.unreachable["memory"]


# -- eyes that are closed for some


def test_an_agent_that_cannot_be_looked_at_is_left_alone_and_the_others_go_on(world: World) -> None:
    good = world.commit("one", "two")
    world.converge()
    world.live.hide(key("one"), message="no right to list pods in namespace one")
    world.live.remove(ONE)
    world.live.remove(TWO)
    result = world.run()
    assert verbs(result.executed) == [("create", str(TWO))], "two is repaired, of one nothing is concluded"
    ready = world.condition("one")
    assert ready is not None
    assert (ready.reason, ready.message) == ("ObserveFailed", "no right to list pods in namespace one")
    assert {each.state for each in world.status("one").resources} == {"Unknown"}
    world.clock.advance(1)
    world.run()
    assert world.status("two").ready
    world.live.heal()
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(good)


def test_a_commit_about_others_is_followed_and_says_who_could_not_be_looked_at(world: World) -> None:
    world.commit("one", "two")
    world.converge()
    world.live.hide(key("one"))
    sha = world.repository.commit({"one": {}, "two": {"runtime": {"command": ["new"]}}})
    result = world.converge()
    assert world.live.live[TWO].fields.value["command"] == ["new"]
    assert (world.phase(sha), world.record(sha).cause) == (Phase.DEGRADED, "Inherited")
    assert "one ObserveFailed" in world.record(sha).summary
    world.live.heal()
    world.run()
    assert world.phase(sha) is Phase.CONVERGED
    assert result.state.status.agents[key("two")].ready


def test_what_a_commit_changes_or_removes_unseen_waits_until_it_is_seen(world: World) -> None:
    world.commit("one", "two", "three")
    world.converge()
    before = world.live.live[ONE]
    world.live.hide(key("one"), key("three"))
    sha = world.repository.commit({"one": {"runtime": {"command": ["new"]}}, "two": {}})
    for _ in range(3):
        world.clock.advance(300)
        assert world.run().executed == []
    assert world.live.live[ONE] == before
    assert runtime_key(key("three")) in world.live.live
    assert world.phase(sha) is Phase.RECONCILING, "no time runs out for what nobody can see"
    world.live.heal()
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(sha)


def test_an_interrupted_action_on_what_cannot_be_looked_at_is_settled_when_it_can(world: World) -> None:
    world.commit("one", "two")
    world.converge()
    world.live.remove(ONE)
    world.boot(FaultInjector("apply:after"))
    with pytest.raises(Crash):
        world.run()
    world.boot()
    world.live.hide(key("one"))
    world.run()
    (open_,) = world.journal.state().reconcile.open_intents.values()
    assert open_.action.key == ONE, "neither done nor given up: nobody can tell"
    world.live.heal()
    assert world.converge().phase is Phase.CONVERGED
    assert world.journal.state().reconcile.open_intents == {}
    assert world.live.starts[ONE] == 2, "it was started again once, before the crash"


# -- eyes that lie


@pytest.mark.parametrize("lie", [sees_nothing, sees_half], ids=lambda lie: lie.__name__)
def test_eyes_that_miss_things_start_nothing_twice_and_delete_nothing(world: World, lie: Lie) -> None:
    """The precheck looks once more before it acts, so a wrong picture costs a pass and no agent."""
    good = world.commit("one", "two", "three")
    world.converge()
    before = dict(world.live.live)
    world.driver = LyingDriver(world.live, lie)
    world.boot()
    for _ in range(4):
        world.clock.advance(60)
        result = world.run()
        assert not [verb for verb, _ in verbs(result.executed) if verb in (Verb.DELETE, Verb.STOP)]
    assert world.live.live == before
    assert set(world.live.starts.values()) == {1}
    world.driver = None
    world.boot()
    world.converge()
    assert world.live.live == before
    assert world.running == world.wanted(good)


def test_eyes_that_miss_what_a_commit_removes_lose_track_but_delete_nothing(world: World) -> None:
    """What a driver does not return does not exist: our claim ends, and the object is reported as an orphan."""
    world.commit("one", "two")
    world.converge()
    world.driver = LyingDriver(world.live, sees_nothing)
    world.boot()
    world.commit("one")
    world.run()
    assert TWO in world.live.live
    world.driver = None
    world.boot()
    result = world.run()
    assert TWO in world.live.live
    assert result.record is not None
    assert {"Orphan"} <= {action.reason for action in result.record.plan.actions}


def test_things_of_others_are_left_alone(world: World) -> None:
    world.live.plant(ONE, {"command": ["by hand"]})
    world.commit("one", "two")
    world.run()
    world.clock.advance(1)
    world.run()
    assert world.live.live[ONE].fields.value == {"command": ["by hand"]}
    assert not world.status("one").ready
    assert world.status("two").ready


# -- drivers that break


class Broken(WrappedDriver):
    """A driver with a bug, for one agent."""

    def apply(self, action: Action, key: str) -> Applied:
        if action.key == ONE:
            raise ZeroDivisionError("bug")
        return super().apply(action, key)


def test_a_bug_in_a_driver_is_reported_and_stops_nobody_else(world: World) -> None:
    world.driver = Broken(world.live)
    world.boot()
    world.commit("one", "two")
    for _ in range(5):
        world.run()
        world.clock.advance(20)
    assert {type(problem) for problem in world.unexpected} == {ZeroDivisionError}
    assert [world.status(name).ready for name in ("one", "two")] == [False, True]
    stalled = world.condition("one", ConditionType.STALLED)
    assert stalled is not None
    assert "unexpected ZeroDivisionError in driver memory" in stalled.message
    assert "bug" not in stalled.message, "text of foreign exceptions may hold anything"


# -- clocks that jump


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_between_passes_restarts_nobody(world: World, jump: float) -> None:
    good = world.commit("one", "two")
    world.converge()
    before = dict(world.live.live)
    world.clock.jump(jump)
    result = world.run()
    assert result.executed == []
    assert world.live.live == before
    assert result.state.status.agents[key("one")].ready
    assert world.phase(good) is Phase.CONVERGED


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_does_not_degrade_a_commit(world: World, jump: float) -> None:
    world.repository.commit({"one": {"runtime": {"minUptime": "10s"}, "rollout": {"healthTimeout": "60s"}}})
    world.run()
    world.clock.jump(jump)
    assert world.run().phase is Phase.RECONCILING
    world.clock.advance(11)
    assert world.run().phase is Phase.CONVERGED


def test_a_clock_set_back_does_not_keep_a_repair_waiting(world: World) -> None:
    """The next try is at most the longest delay away, whatever clock it was written down under."""
    good = world.commit("one")
    world.converge()
    world.live.remove(ONE)
    world.live.fail_next(3, "no room", key=ONE)
    for _ in range(3):
        world.clock.advance(10)
        world.run()
    world.clock.jump(-3600)
    world.clock.advance(301)
    world.run()
    assert world.running == world.wanted(good)
