"""Drift at once is drift within a window: events bring deaths one by one, and a pass is quick."""

from __future__ import annotations

import pytest

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.status import Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .world import World

pytestmark = pytest.mark.unit

TEN = [f"a{number}" for number in range(10)]
FREEZE = {"massDrift": {"absence": "Freeze"}}  # what is gone is drift like any other


def kill(world: World, *names: str) -> None:
    for name in names:
        del world.live.live[runtime_key(key(name))]


def alive(world: World) -> int:
    return sum(resource.kind == "runtime" for resource in world.live.live)


@pytest.fixture
def ten(world: World) -> World:
    world.commit(*TEN, policy=FREEZE)
    assert world.converge().phase is Phase.CONVERGED
    world.clock.advance(60)
    return world


@pytest.mark.parametrize("reboot", [False, True], ids=["", "restarted"])
def test_deaths_that_come_one_by_one_are_one_mass(ten: World, *, reboot: bool) -> None:
    for count, name in enumerate(TEN[:4]):
        kill(ten, name)
        ten.run(name)
        assert alive(ten) == 10, count
        ten.clock.advance(0.1)
    if reboot:
        ten.boot()
    kill(ten, "a4")
    result = ten.run("a4")
    assert result.frozen
    assert alive(ten) == 9
    (finding,) = [each for each in result.findings if each.code == "MassDrift"]
    assert "5 of 10 agents" in finding.summary
    assert "Repaired before that was seen: acme/a0, acme/a1, acme/a2, acme/a3" in finding.detail


def test_deaths_over_a_day_are_none(ten: World) -> None:
    for name in TEN:
        kill(ten, name)
        ten.run(name)
        ten.clock.advance(11)
    assert alive(ten) == 10


def test_what_people_let_through_does_not_trip_it_again(ten: World) -> None:
    kill(ten, *TEN[:6])
    assert ten.run().frozen
    ten.journal.control(Control(ControlVerb.UNFREEZE, "*", "ann", ten.clock.now(), "looked at it"))
    ten.converge()
    assert alive(ten) == 10
    kill(ten, "a9")
    assert not ten.run("a9").frozen
    assert alive(ten) == 10
    kill(ten, *TEN[:6])
    assert ten.run().frozen, "the same once more is asked about once more"
    ten.journal.control(Control(ControlVerb.UNFREEZE, "*", "ann", ten.clock.now(), "looked again"))
    ten.converge()
    assert alive(ten) == 10


def test_the_window_is_the_policys(world: World) -> None:
    world.commit(*TEN, policy={"massDrift": {"window": "1m", "absence": "Freeze"}})
    world.converge()
    for name in TEN[:5]:
        kill(world, name)
        result = world.run(name)
        world.clock.advance(11)
    assert result.frozen
    assert alive(world) == 9
