"""Many agents that are gone at once come back unasked, one first; or, when that one fails, acting freezes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.passes import PassResult
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .world import World

pytestmark = pytest.mark.unit

TWELVE = [f"a{number:02}" for number in range(12)]
SLOW = {"rollout": {"healthTimeout": "30s"}}


def kill(world: World, *names: str) -> None:
    for name in names:
        del world.live.live[runtime_key(key(name))]


def alive(world: World) -> int:
    return sum(resource.kind == "runtime" for resource in world.live.live)


def codes(result: PassResult) -> set[str]:
    return {finding.code for finding in result.findings}


@pytest.fixture
def twelve(world: World) -> World:
    world.repository.commit(dict.fromkeys(TWELVE, SLOW), policy={"hostRestart": {"atOnce": 3}})
    assert world.converge().phase is Phase.CONVERGED
    world.clock.advance(60)
    return world


def come_back(world: World, *, reboot: bool = False) -> list[int]:
    """How many run after each pass, until nothing is on its way."""
    counts = []
    for _ in range(60):
        result = world.run()
        counts.append(alive(world))
        if counts[-1] == 12 and not result.busy:
            return counts
        if reboot:
            world.boot()
        world.clock.advance(max(0.25, result.wait or 1.0))
    raise AssertionError(f"not back: {counts}")


@pytest.mark.parametrize("reboot", [False, True], ids=["", "restarted after each pass"])
def test_eight_of_twelve_come_back_unasked_one_first_then_three_at_a_time(twelve: World, reboot: bool) -> None:
    kill(twelve, *TWELVE[2:10])
    result = twelve.run()
    assert alive(twelve) == 5, "one first"
    (finding,) = [each for each in result.findings if each.code == "MassAbsence"]
    assert finding.summary.startswith("8 of 12 agents of the fleet were gone at once; 7 agents wait")
    assert not result.frozen
    assert result.busy
    assert twelve.run("a05", fetch=False).wait is not None
    assert alive(twelve) == 5, "no other before the first is Ready"
    counts = come_back(twelve, reboot=reboot)
    steps = [after - before for before, after in zip([5, *counts], counts, strict=False)]
    assert max(steps) <= 3
    assert not codes(twelve.run()) & {"MassAbsence", "MassDrift", "Frozen"}
    assert twelve.journal.state().reconcile.returning is None
    assert twelve.journal.state().control.controls == ()


def test_a_mass_on_record_without_its_cause_is_no_restart_of_the_host(twelve: World) -> None:
    kill(twelve, *TWELVE[2:10])
    twelve.run()
    causes = []
    while (returning := twelve.journal.state().reconcile.returning) is not None:
        causes.append(returning.cause)
        state = twelve.journal.state()  # as an older version wrote it
        reconcile = replace(state.reconcile, returning=replace(returning, cause=""))
        twelve.journal.commit(replace(state, reconcile=reconcile))
        twelve.boot()
        twelve.clock.advance(1.0)
        twelve.run()
    assert set(causes) == {"MassAbsence"}
    assert alive(twelve) == 12


def test_events_one_by_one_are_one_mass(twelve: World) -> None:
    kill(twelve, *TWELVE[:8])
    twelve.run("a00", fetch=False)
    twelve.run("a01", fetch=False)
    for name in TWELVE[2:8]:
        twelve.run(name, fetch=False)
    assert alive(twelve) <= 8, "the mass was seen before the last of them"
    come_back(twelve)


def test_the_first_does_not_become_ready_and_it_freezes(twelve: World) -> None:
    kill(twelve, *TWELVE[:8])
    twelve.run()
    assert alive(twelve) == 5
    first = next(name for name in TWELVE[:8] if runtime_key(key(name)) in twelve.live.live)
    for _ in range(40):  # it dies again and again
        if runtime_key(key(first)) in twelve.live.live:
            kill(twelve, first)
        twelve.clock.advance(1.0)
        result = twelve.run()
        assert alive(twelve) <= 5
        if result.frozen:
            break
    assert result.frozen
    (freeze,) = twelve.journal.state().control.controls
    assert (freeze.verb, freeze.target, freeze.actor) == (ControlVerb.FREEZE, "*", "guard absence")
    (finding,) = [each for each in result.findings if each.code == "MassAbsence"]
    assert finding.summary.endswith(f"the first to come back did not become Ready: acme/{first}")
    assert twelve.condition(TWELVE[7], ConditionType.FROZEN) is not None
    twelve.clock.advance(60)
    again = twelve.run()
    assert "Frozen" in codes(again)
    assert not again.busy
    twelve.journal.control(Control(ControlVerb.UNFREEZE, "*", "ann", twelve.clock.now(), "mended"))
    twelve.clock.advance(600)
    come_back(twelve)


def test_one_that_waits_for_its_turn_is_not_late(twelve: World) -> None:
    """The time of an agent runs from when it may begin."""
    kill(twelve, *TWELVE[:8])
    twelve.run()
    first = next(name for name in TWELVE[:8] if runtime_key(key(name)) in twelve.live.live)
    twelve.clock.advance(29.0)
    twelve.run()
    assert key(TWELVE[7]) not in twelve.journal.state().rollout.unready_since
    assert twelve.condition(first) is not None
    come_back(twelve)
