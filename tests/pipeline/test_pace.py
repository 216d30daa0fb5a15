"""The cap of actions is one a minute, not one a pass: over passes, over restarts, and whatever the clock does."""

from __future__ import annotations

import pytest

from gitops_agent.model.passes import PassResult
from gitops_agent.model.status import Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .world import World

pytestmark = pytest.mark.unit

NINE = [f"a{number}" for number in range(9)]
LOOSE = {"massDrift": {"min": 99}}


def live_actions(result: PassResult) -> int:
    return sum(action.verb.touches_live for action, _ in result.executed)


def settled(world: World, cap: int, **more: object) -> World:
    world.commit(*NINE, policy={**LOOSE, "actionsPerMinute": cap, **more})
    assert world.converge().phase is Phase.CONVERGED
    world.clock.advance(600)
    return world


def kill_all(world: World) -> None:
    for name in NINE:
        world.live.live.pop(runtime_key(key(name)), None)


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted"])
def test_a_cap_of_two_gives_two_actions_and_then_one_in_half_a_minute(world: World, restart: bool) -> None:
    settled(world, 2)
    kill_all(world)
    done = []
    for _ in range(10):
        if restart:
            world.boot()
        result = world.run()
        done.append(live_actions(result))
        world.clock.advance(0.12)
    assert done == [2, *[0] * 9]
    assert "ActionCap" in {finding.code for finding in result.findings}
    assert result.wait == pytest.approx(30 - 9 * 0.12, abs=0.01)
    world.clock.advance(result.wait or 0.0)
    assert live_actions(world.run()) == 1


def test_the_wall_clock_pays_nothing_back_while_a_process_runs(world: World) -> None:
    settled(world, 2)
    kill_all(world)
    assert live_actions(world.run()) == 2
    for jump in (86_400.0, -7 * 86_400.0, 365 * 86_400.0):
        world.clock.jump(jump)
        assert live_actions(world.run()) == 0


def test_the_time_in_which_no_process_ran_pays_back(world: World) -> None:
    settled(world, 2)
    kill_all(world)
    assert live_actions(world.run()) == 2
    world.shut()
    world.clock.jump(30.0)
    world.boot()
    assert live_actions(world.run()) == 1
    world.shut()
    world.clock.jump(-86_400.0)  # set back meanwhile: nothing is known of that time
    world.boot()
    assert live_actions(world.run()) == 0


def test_a_tenant_has_a_cap_of_its_own(world: World) -> None:
    settled(world, 500, tenants={"acme": {"actionsPerMinute": 3}})
    kill_all(world)
    assert [live_actions(world.run()) for _ in range(3)] == [3, 0, 0]


def test_what_was_not_begun_costs_nothing(world: World) -> None:
    settled(world, 4)
    kill_all(world)
    world.interrupted = lambda: True
    assert live_actions(world.run()) == 0
    world.interrupted = lambda: False
    assert live_actions(world.run()) == 4


def test_agents_that_wait_for_the_cap_are_not_late(world: World) -> None:
    policy = {**LOOSE, "actionsPerMinute": 2}
    sha = world.repository.commit({name: {"rollout": {"healthTimeout": "10s"}} for name in NINE}, policy=policy)
    assert world.converge(200).phase is Phase.CONVERGED
    assert world.phase(sha) is Phase.CONVERGED
