"""Faults in the middle of a rollout: drivers that fail, hang, answer in part or lie, clocks that jump an hour.

Nothing is taken away and nothing goes on to the next wave without a complete look, and a gate is opened and failed
by what agents do, never by what a wall clock says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gitops_agent.control.commands import Operator, OperatorCommands
from gitops_agent.errors import ApplyError
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Observation
from gitops_agent.model.outcome import Intent
from gitops_agent.model.plan import Action, Verb
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import Phase
from gitops_agent.reconcile.executor import ExecutorContext
from gitops_agent.testing.faults import (
    Lie,
    LyingDriver,
    hears_until,
    says_running,
    says_suspended,
    sees_half,
    sees_nothing,
)
from gitops_agent.testing.memory_driver import runtime_key

from . import world as world_module
from .repository import key
from .test_crashes import check
from .test_rollout import BROKEN, fleet
from .witness import ENDS, Ledger, Witness
from .world import Inline, World

NAMES = [f"a{number:02}" for number in range(8)]
GONE = NAMES[-2:]
OLD: dict[str, Any] = {"runtime": {"command": ["old"]}}
NEW: dict[str, Any] = {"runtime": {"command": ["new"]}}
JUMPS = pytest.mark.parametrize("jump", [3600.0, -3600.0])


@pytest.fixture
def started(tmp_path: Path) -> Iterator[World]:
    """Eight agents at rest, in a live system that writes down what is done to it."""
    world = World(tmp_path / "state", Ledger)
    world.repository.commit(fleet(OLD, NAMES))
    assert world.converge().phase is Phase.CONVERGED
    yield world
    world.shut()


def effects(world: World) -> list[Action]:
    assert isinstance(world.live, Ledger)
    return [effect.action for effect in world.live.effects]


def rollout(world: World) -> Rollout:
    found = world.journal.state().rollout.rollout
    assert found is not None
    return found


def starts(world: World) -> set[int]:
    """How often the runtimes were started."""
    return {count for resource, count in world.live.starts.items() if resource.kind == "runtime"}


def following(world: World, command: str = "new") -> list[str]:
    live = world.live.live
    return [
        name
        for name in NAMES
        if runtime_key(key(name)) in live and live[runtime_key(key(name))].fields.value["command"] == [command]
    ]


# -- drivers that fail


def fail_once(world: World) -> None:
    world.live.fail_next(1, key=runtime_key(key("a00")))


def fail_for_a_while(world: World) -> None:
    world.live.fail_next(3, key=runtime_key(key("a00")))


def fail_for_good(world: World) -> None:
    world.live.fail_always(key=runtime_key(key("a00")), permanent=True)


def fail_with_a_bug(world: World) -> None:
    apply = world.live.apply

    def broken(action: Action, intent: str) -> Any:
        if action.key == runtime_key(key("a00")):
            raise RuntimeError("a bug")
        return apply(action, intent)

    world.live.apply = broken  # type: ignore[method-assign]
    world.boot()


def time_out(world: World) -> None:
    apply = world.live.apply

    def slow(action: Action, intent: str) -> Any:
        """It happened, and nobody waited for the answer."""
        done = apply(action, intent)
        if action.key == runtime_key(key("a00")):
            raise ApplyError("no answer within 30 s")
        return done

    world.live.apply = slow  # type: ignore[method-assign]
    world.boot()


@pytest.mark.parametrize("trouble", [fail_once, fail_for_a_while, fail_for_good, fail_with_a_bug, time_out])
def test_a_driver_that_fails_at_the_canary_lets_nobody_else_be_touched(
    started: World, trouble: Callable[[World], None]
) -> None:
    trouble(started)
    started.repository.commit(fleet(NEW, NAMES[:-2]))
    for _ in range(8):
        if not started.status("a00").ready or following(started) in ([], ["a00"]):
            assert {action.key.agent.name for action in effects(started)[2 * len(NAMES) :]} <= {"a00"}
        result = started.run()
        if following(started) not in ([], ["a00"]):
            assert started.status("a00").ready, "who goes on has seen the canary Ready"
        started.clock.advance(result.wait or 1.0)
    assert {name for name in GONE if runtime_key(key(name)) in started.live.live} == set(GONE) or (
        started.status("a00").ready
    )


# -- drivers that hang


class Late(Inline):
    """Hands of which one does not come back until it is told to."""

    slow: AgentKey | None = None
    waiting: ClassVar[list[tuple[Future[Any], Callable[[], Any]]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        intent = args[0] if args else None
        if not isinstance(intent, Intent) or self.slow is None or intent.action.key != runtime_key(self.slow):
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        Late.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Late]]:
    patient = lambda **parts: ExecutorContext(**{"patience": 0.01, **parts})  # noqa: E731
    monkeypatch.setattr(world_module, "ExecutorContext", patient)
    yield Late
    Late.slow, Late.waiting = None, []


def test_a_canary_whose_driver_hangs_is_waited_for(started: World, late: type[Late]) -> None:
    started.pool = late()
    started.boot()
    late.slow = key("a00")
    bad = started.repository.commit(fleet(NEW, NAMES))
    for _ in range(3):
        assert started.run().phase is Phase.RECONCILING
        assert following(started) == []
        started.clock.advance(2.0)
    started.clock.advance(30.0)
    assert started.run().phase is Phase.DEGRADED, "its time is over"
    assert following(started) == []
    ((future, work),) = late.waiting
    late.slow = None
    future.set_result(work())
    for _ in range(3):
        started.run()
        started.clock.advance(2.0)
    assert following(started) == ["a00"], "what came late is known, and nobody follows it"
    assert started.live.starts[runtime_key(key("a00"))] == 2
    assert started.phase(bad) is Phase.DEGRADED


def test_a_driver_that_hangs_is_looked_at_more_and_more_rarely(started: World, late: type[Late]) -> None:
    started.pool = late()
    started.boot()
    late.slow = key("a00")
    started.repository.commit(fleet(NEW, NAMES))
    passes, end = 0, started.clock.monotonic() + 60.0
    while started.clock.monotonic() < end:
        started.clock.advance(started.run().wait or 60.0)
        passes += 1
    assert late.waiting
    assert passes <= 40


# -- eyes that are closed, or miss things, in every pass of a rollout that changes and deletes


@pytest.mark.parametrize("nth", range(7))
def test_closed_eyes_in_any_pass_of_a_rollout_do_nothing_and_conclude_nothing(started: World, nth: int) -> None:
    good = started.repository.commit(fleet(NEW, NAMES[:-2]))
    for number in range(7):
        done, before = len(effects(started)), rollout(started)
        if number == nth:
            started.live.unreachable_next(2)
        result = started.run()
        if number == nth:
            assert len(effects(started)) == done
            shut = replace(before, passed_at=None)
            assert before.commit != good or rollout(started) == shut, "no gate is open, or fails, unseen"
            started.live.heal()
        started.clock.advance(result.wait or 1.0)
    assert started.converge().phase is Phase.CONVERGED
    check(started, good)
    assert starts(started) <= {1, 2}


def drops_the_canary(seen: Sequence[Observation]) -> Sequence[Observation]:
    """A lie: the canary is not there."""
    return [each for each in seen if each.key.agent.name != "a00"]


@pytest.mark.parametrize("nth", [0, 1, 3])
@pytest.mark.parametrize("lie", [sees_nothing, sees_half, drops_the_canary], ids=lambda lie: lie.__name__)
def test_an_answer_in_part_starts_nothing_twice_and_takes_nothing_away_that_is_wanted(
    started: World, lie: Lie, nth: int
) -> None:
    started.repository.commit(fleet(NEW, NAMES))
    for _ in range(nth):
        started.clock.advance(started.run().wait or 1.0)
    started.driver = LyingDriver(started.live, lie)
    started.boot()
    witness = Witness(started)
    for _ in range(4):
        witness.begin()
        result = started.run()
        witness.check(unreachable=False)
        started.clock.advance(result.wait or 1.0)
    assert not [action for action in effects(started) if action.verb in ENDS]
    assert {resource.agent.name for resource in started.live.live} == set(NAMES)
    assert max(starts(started)) <= 2


# -- sources of health that lie about those whose wave has not come


@pytest.mark.parametrize(
    "lie", [says_suspended, says_running, hears_until(0.0)], ids=["kernel", "kernel, other", "heartbeat"]
)
def test_one_source_that_lies_restarts_nobody_while_a_gate_is_shut(tmp_path: Path, lie: Lie) -> None:
    world = World(tmp_path / "state", Ledger)
    well = {"probes": {"liveness": {"exec": {"command": ["true"]}}}, "heartbeat": {"staleAfter": "30s"}}
    world.repository.commit(fleet({**OLD, **well}, NAMES))
    world.converge()
    world.repository.commit(fleet({**OLD, **well, **BROKEN}, NAMES))
    world.run()
    done = len(effects(world))
    world.driver = LyingDriver(world.live, lie)
    world.boot()
    for _ in range(5):
        world.run()
        world.clock.advance(3.0)
    again = [action for action in effects(world)[done:] if action.verb in (Verb.RESTART, *ENDS)]
    assert [action.key.agent.name for action in again if action.key.agent.name != "a00"] == []
    world.shut()


# -- clocks that jump


@JUMPS
def test_a_jump_opens_no_gate(started: World, jump: float) -> None:
    started.repository.commit(fleet({"runtime": {"command": ["new"], "minUptime": "10s"}}, NAMES))
    started.run()
    started.clock.jump(jump)
    for _ in range(4):
        assert started.run().phase is Phase.RECONCILING
        assert following(started) == ["a00"]
        started.clock.advance(2.0)
    assert started.converge().phase is Phase.CONVERGED
    assert starts(started) == {2}


@JUMPS
def test_a_jump_fails_no_gate_and_puts_off_none(started: World, jump: float) -> None:
    started.repository.commit(fleet({**OLD, **BROKEN}, NAMES))
    started.run()
    started.clock.advance(5.0)
    started.clock.jump(jump)
    assert started.run().phase is Phase.RECONCILING
    started.clock.advance(16.0)
    assert started.run().phase is Phase.DEGRADED
    assert len(following(started, "old")) == len(NAMES)


@JUMPS
def test_a_jump_makes_no_pause_shorter_nor_longer(started: World, jump: float) -> None:
    started.repository.commit(fleet(OLD, NAMES), policy={"rollout": {"pause": "30m"}})
    started.converge()
    started.repository.commit(fleet(NEW, NAMES))
    for _ in range(3):
        started.run()
        started.clock.advance(1.0)
    started.clock.jump(jump)
    for _ in range(3):
        started.run()
        started.clock.advance(300.0)
        assert following(started) == ["a00"]
    started.clock.advance(900.0)
    started.run()
    assert len(following(started)) == 2


@JUMPS
def test_a_jump_in_a_backoff_keeps_the_canary_waiting_at_most_the_longest_delay(
    started: World, jump: float
) -> None:
    started.live.fail_next(2, key=runtime_key(key("a00")))
    started.repository.commit(fleet({**NEW, "rollout": {"healthTimeout": "1h"}}, NAMES))
    started.run()
    started.clock.jump(jump)
    started.run()
    assert following(started) == []
    started.clock.advance(301.0)
    started.run()
    assert following(started) == ["a00"]
    assert started.converge().phase is Phase.CONVERGED


def test_a_clock_set_back_lifts_no_freeze_before_its_time(started: World) -> None:
    people = OperatorCommands(started.journal, started.clock, Operator("ada", "host"))
    people.freeze("*", "a look", "30m")
    started.live.remove(runtime_key(key("a03")))
    started.clock.jump(-3600.0)
    for _ in range(4):
        result = started.run()
        assert (result.executed, result.frozen) == ([], True)
        started.clock.advance(600.0)
    started.clock.jump(3600.0)
    started.run()
    assert runtime_key(key("a03")) in started.live.live
