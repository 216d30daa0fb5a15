"""Stories that campaigns found: each went wrong once."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_agent.model.status import Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .test_crashes import check
from .test_rollout import BROKEN, NAMES, fleet
from .world import World

pytestmark = pytest.mark.unit
OLD: dict[str, Any] = {"runtime": {"command": ["old"]}}
NEW: dict[str, Any] = {"runtime": {"command": ["new"]}}


def test_a_freeze_by_git_holds_when_an_invalid_commit_is_pushed_on_top_of_it(world: World) -> None:
    world.repository.commit(fleet(OLD, NAMES[:3]))
    world.converge()
    frozen = {"freeze": {"scope": "*", "reason": "a look"}}
    world.repository.commit(fleet(NEW, NAMES[:3]), policy=frozen)
    assert world.run().phase is Phase.BLOCKED
    world.repository.commit(policy=frozen, broken="duplicate key")
    world.live.remove(runtime_key(key("a00")))
    for restarted in (False, True):
        if restarted:
            world.boot()
        world.clock.advance(60)
        result = world.run()
        assert (result.executed, result.frozen) == ([], True)
        assert runtime_key(key("a00")) not in world.live.live


def test_a_fix_is_not_held_up_by_agents_that_it_has_not_reached_yet(world: World) -> None:
    """What an earlier commit broke is mended by the last wave, so no gate before that can wait for it."""
    world.repository.commit(fleet(OLD))
    world.converge()
    world.repository.commit(fleet(OLD) | fleet(OLD | BROKEN, ["a05"]))
    world.run()
    world.repository.commit(fleet(NEW))
    assert world.converge().phase is Phase.CONVERGED


def test_what_was_asked_of_the_health_of_a_retained_agent_is_forgotten(world: World) -> None:
    """Only what is live is left behind: a record of ours would stay for ever when the agent comes back without."""
    world.repository.commit(fleet({"deletionPolicy": "Retain", "runtime": {"minUptime": "5s"}}, ["a00", "a01"]))
    world.converge()
    world.repository.commit(fleet({}, ["a01"]))
    world.converge()
    good = world.repository.commit(fleet({}, ["a00", "a01"]))
    assert world.converge().phase is Phase.CONVERGED
    check(world, good)


@pytest.mark.parametrize(
    "asked", [{"runtime": {"command": ["new"]}}, {"lifecycle": "Stopped"}], ids=["change", "stop"]
)
def test_what_waits_for_a_pause_to_end_does_not_stop_the_commits_after_it(
    world: World, asked: dict[str, Any]
) -> None:
    """Agents that we keep our hands off are not among those a later commit would touch."""
    few = {"min": 2, "ratio": 0.1}
    world.repository.commit(fleet(OLD, NAMES[:6]), policy={"massChange": few, "massDelete": few})
    world.converge()
    left_alone = fleet({**OLD, **asked, "reconcile": {"paused": True}}, NAMES[:5])
    world.repository.commit(left_alone | fleet(OLD, ["a05"]))
    assert world.converge().phase is Phase.CONVERGED
    world.repository.commit(left_alone | fleet(NEW, ["a05"]))
    assert world.converge().phase is Phase.CONVERGED
    assert world.live.live[runtime_key(key("a00"))].fields.value["command"] == ["old"]
    world.repository.commit(fleet({**OLD, **asked}, NAMES[:5]) | fleet(NEW, ["a05"]))
    assert world.converge().phase is Phase.BLOCKED, "now that they may be touched they count"
