"""What is frozen or paused is left out of waves, gates and canaries: the rest goes on, and it follows later."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_agent.control.commands import Operator, OperatorCommands
from gitops_agent.model.passes import Request
from gitops_agent.model.quantity import iso
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .test_bake import until_baking
from .test_rollout import BROKEN_BODY, GOOD, NAMES, fleet, following
from .world import World

FIRST: dict[str, Any] = {"runtime": {"command": ["first"]}}


@pytest.fixture
def started(world: World) -> World:
    world.repository.commit(fleet(FIRST))
    assert world.converge().phase is Phase.CONVERGED
    return world


def people(world: World) -> OperatorCommands:
    return OperatorCommands(world.journal, world.clock, Operator("ada", "host"))


def sizes(world: World, command: str, passes: int = 60) -> list[int]:
    """How many agents run a command in the passes to come, each number once."""
    found = []
    for _ in range(passes):
        result = world.run()
        found.append(len(following(world, command)))
        world.clock.advance(min(30.0, max(0.1, result.wait or 5.0)))
    return sorted(set(found) - {0})


def test_a_frozen_agent_is_no_canary_and_holds_no_other(started: World) -> None:
    people(started).freeze("acme/a00", "a look", None)
    sha = started.repository.commit(fleet(GOOD))
    result = started.converge()
    assert following(started, "better") == set(NAMES) - {"a00"}
    assert result.phase is Phase.BLOCKED
    assert result.frozen
    assert started.condition("a00", ConditionType.FROZEN) is not None
    people(started).unfreeze("acme/a00", "looked")
    assert started.converge().phase is Phase.CONVERGED
    assert following(started, "better") == set(NAMES)
    assert started.phase(sha) is Phase.CONVERGED


def test_a_bad_commit_is_found_by_another_canary(started: World) -> None:
    people(started).freeze("acme/a00", "a look", None)
    started.repository.commit(fleet(BROKEN_BODY))
    assert started.converge().phase is Phase.DEGRADED
    assert following(started, "typo") == {"a01"}


def test_a_gate_that_failed_does_not_open_because_what_failed_is_frozen(started: World) -> None:
    started.repository.commit(fleet(BROKEN_BODY))
    assert started.converge().phase is Phase.DEGRADED
    people(started).freeze("acme/a00", "a look", None)
    assert sizes(started, "typo", passes=400) == [1]
    assert started.run().phase is Phase.DEGRADED


@pytest.mark.parametrize("spec", [BROKEN_BODY, GOOD], ids=["typo", "good"])
def test_the_end_of_a_freeze_goes_out_like_a_rollout(started: World, spec: dict[str, Any]) -> None:
    people(started).freeze("*", "the fair", None)
    started.repository.commit(fleet(spec))
    assert started.converge().phase is Phase.BLOCKED
    assert len(following(started, "first")) == 20
    people(started).unfreeze("*", "it is over")
    command = spec["runtime"]["command"][0]
    assert sizes(started, command) == ([1] if spec is BROKEN_BODY else [1, 3, 20])
    assert started.run().phase is (Phase.DEGRADED if spec is BROKEN_BODY else Phase.CONVERGED)


def test_a_canary_that_is_frozen_while_it_bakes_gives_way_to_another(world: World) -> None:
    world.repository.commit(fleet(FIRST), policy={"rollout": {"bake": "10s"}})
    world.converge()
    world.repository.commit(fleet(GOOD))
    canary = until_baking(world)
    people(world).freeze(f"acme/{canary}", "a look", None)
    world.clock.advance(11)
    world.run()
    world.clock.advance(0.1)
    world.run()
    assert len(following(world, "better")) == 2, "one more canary, and not the second wave"
    assert world.converge().phase is Phase.CONVERGED
    assert following(world, "better") == set(NAMES)


def test_a_later_commit_takes_along_what_was_left(started: World) -> None:
    people(started).freeze("acme/a00", "a look", None)
    started.repository.commit(fleet(GOOD))
    started.converge()
    started.repository.commit(fleet(GOOD) | {"new": FIRST})
    assert started.converge().phase is Phase.BLOCKED
    people(started).unfreeze("acme/a00", "looked")
    assert started.converge().phase is Phase.CONVERGED
    assert following(started, "better") == set(NAMES)


# -- until its wave comes, an agent keeps the spec that was last applied to it


def gone_and_seen_again(world: World, name: str) -> bool:
    """Whether an agent that dies is brought back as it was."""
    world.live.remove(runtime_key(key(name)))
    world.run()
    world.clock.advance(2)
    world.run()
    return name in following(world, "first") and world.status(name).ready


@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "after a restart"])
def test_one_that_was_frozen_comes_back_while_the_gate_is_failed(started: World, restarted: bool) -> None:
    people(started).freeze("acme/a07", "a look", None)
    started.repository.commit(fleet(BROKEN_BODY))
    assert started.converge().phase is Phase.DEGRADED
    people(started).unfreeze("acme/a07", "looked")
    started.run()
    if restarted:
        started.boot()
    assert gone_and_seen_again(started, "a07")
    assert started.condition("a07", ConditionType.HALTED) is not None
    assert following(started, "typo") == {"a00"}


def test_one_that_was_paused_is_repaired_while_its_wave_is_still_to_come(world: World) -> None:
    world.repository.commit(fleet(FIRST), policy={"rollout": {"bake": "1h"}})
    world.converge()
    until = float(int(world.clock.now()) + 100)
    pause = {"reconcile": {"paused": True, "until": iso(until), "reason": "audit"}}
    world.repository.commit(fleet(GOOD) | {"a07": {**fleet(GOOD)["a07"], **pause}})
    world.run()
    world.clock.advance(101)
    world.run()
    assert gone_and_seen_again(world, "a07")
    assert following(world, "better") == {"a00"}
    world.live.edit(runtime_key(key("a07")), command=["by hand"])
    world.run()
    assert "a07" in following(world, "first")
    world.clock.advance(3601)
    assert world.converge(passes=200).phase is Phase.CONVERGED
    assert following(world, "better") == set(NAMES)


@pytest.mark.parametrize("how", ["freeze", "pause"])
def test_what_was_left_follows_though_another_was_started_again_meanwhile(started: World, how: str) -> None:
    until = float(int(started.clock.now()) + 3600)
    pause = {"reconcile": {"paused": True, "until": iso(until), "reason": "audit"}} if how == "pause" else {}
    if how == "freeze":
        people(started).freeze("acme/a07", "a look", None)
    before = started.repository.head
    sha = started.repository.commit(fleet(GOOD) | {"a07": {**fleet(GOOD)["a07"], **pause}})
    started.converge()
    started.clock.advance(100)
    started.live.remove(runtime_key(key("a00")))
    started.converge()
    if how == "freeze":
        people(started).unfreeze("acme/a07", "looked")
    else:
        started.clock.jump(3700.0)
    started.run()
    assert started.status("a07").applied_commit in (before, sha)
    assert (started.status("a07").applied_commit == sha) is ("a07" in following(started, "better"))
    assert started.converge().phase is Phase.CONVERGED
    assert following(started, "better") == set(NAMES)
    assert started.status("a07").applied_commit == sha


def test_one_that_waits_for_its_wave_after_a_freeze_shows_what_it_runs(started: World) -> None:
    before = started.repository.head
    people(started).freeze("acme/a07", "a look", None)
    started.repository.commit(fleet(BROKEN_BODY))
    started.converge()
    people(started).unfreeze("acme/a07", "looked")
    started.run()
    assert started.status("a07").applied_commit == before


def test_a_commit_that_is_in_but_for_paused_agents_goes_on_when_they_follow(world: World) -> None:
    world.repository.commit(fleet(FIRST), policy={"rollout": {"bake": "10s"}})
    world.converge()
    until = float(int(world.clock.now()) + 100)
    pause = {"reconcile": {"paused": True, "until": iso(until), "reason": "audit"}}
    sha = world.repository.commit({name: {**spec, **pause} for name, spec in fleet(GOOD).items()})
    assert world.converge().phase is Phase.CONVERGED
    world.clock.advance(101)
    world.run()
    world.run()
    assert len(following(world, "better")) == 1
    assert world.phase(sha) is Phase.RECONCILING
    assert world.converge().phase is Phase.CONVERGED
    assert following(world, "better") == set(NAMES)
    assert world.record(sha).changed == 20


def test_a_pause_ends_at_once_though_the_wave_of_its_agent_is_still_to_come(started: World) -> None:
    pause = {"reconcile": {"paused": True, "reason": "audit"}}
    paused = {"a07": {**fleet(FIRST)["a07"], **pause}}
    started.repository.commit(fleet(FIRST) | paused)
    started.converge()
    started.repository.commit(fleet(BROKEN_BODY) | {"a07": {**fleet(BROKEN_BODY)["a07"], **pause}})
    assert started.converge().phase is Phase.DEGRADED
    started.live.remove(runtime_key(key("a07")))
    started.run()
    assert "a07" not in following(started, "first")
    started.repository.commit(fleet(BROKEN_BODY))
    started.run()
    assert started.status("a07").pause is None
    started.clock.advance(2)
    started.run()
    assert following(started, "typo") == {"a00"}
    assert "a07" in following(started, "first"), "repaired, by what was last applied to it"


# -- an end that is in Git is acted on when it comes


def quiet_until(world: World, moment: float) -> int:
    """Passes by their own waits, over no agent in particular, until just after a moment; how many."""
    for count in range(1, 20):
        result = world.pipeline.run(Request(frozenset(), fetch=False))
        if world.clock.now() > moment:
            return count
        world.clock.advance(3600.0 if result.wait is None else result.wait)
    raise AssertionError("it never came, or was waited for in too many steps")


def test_a_freeze_of_git_ends_when_it_says(started: World) -> None:
    until = float(int(started.clock.now()) + 100)
    freeze = {"scope": "*", "reason": "the fair", "until": iso(until)}
    started.repository.commit(policy={"freeze": freeze})
    started.converge()
    edited = runtime_key(key("a07"))
    started.live.edit(edited, command=["by hand"])
    started.run("a07")
    assert quiet_until(started, until) < 6
    assert started.clock.now() < until + 5
    assert started.live.live[edited].fields.value["command"] == ["first"]


def test_a_pause_ends_when_it_says(started: World) -> None:
    until = float(int(started.clock.now()) + 100)
    pause = {"reconcile": {"paused": True, "until": iso(until), "reason": "audit"}}
    started.repository.commit(fleet(FIRST) | {"a07": {**fleet(FIRST)["a07"], **pause}})
    started.converge()
    edited = runtime_key(key("a07"))
    started.live.edit(edited, command=["by hand"])
    started.run("a07")
    assert started.live.live[edited].fields.value["command"] == ["by hand"]
    assert quiet_until(started, until) < 6
    assert started.clock.now() < until + 5
    assert started.live.live[edited].fields.value["command"] == ["first"]
