"""Roads around a gate that must be closed: at most the canary is touched, whatever came before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.status import Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .test_rollout import BROKEN_BODY, GOOD, NAMES, fleet, following
from .world import World

FIRST: dict[str, Any] = {"runtime": {"command": ["first"]}}


@pytest.fixture
def started(world: World) -> World:
    world.repository.commit(fleet(FIRST))
    assert world.converge().phase is Phase.CONVERGED
    return world


def settle(world: World, passes: int = 60) -> None:
    for _ in range(passes):
        result = world.run()
        world.clock.advance(min(60.0, max(0.1, result.wait or 5.0)))


@pytest.mark.parametrize("spec", [BROKEN_BODY, GOOD], ids=["typo", "good"])
def test_the_end_of_a_pause_goes_out_like_a_rollout(started: World, spec: dict[str, Any]) -> None:
    until = datetime.fromtimestamp(started.clock.now() + 600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    paused = {"reconcile": {"paused": True, "until": until, "reason": "audit"}}
    started.repository.commit(fleet({**spec, **paused}))
    assert started.converge().phase is Phase.CONVERGED
    assert len(following(started, "first")) == 20
    started.clock.advance(700)
    sizes, command = [], spec["runtime"]["command"][0]
    for _ in range(60):
        result = started.run()
        sizes.append(len(following(started, command)))
        started.clock.advance(min(30.0, max(0.1, result.wait or 5.0)))
    assert sorted({*sizes} - {0}) == ([1] if spec is BROKEN_BODY else [1, 3, 20])


def test_a_gate_that_was_open_before_we_could_not_look_is_looked_at_again(started: World) -> None:
    started.repository.commit(fleet(GOOD), policy={"rollout": {"pause": "30s"}})
    for _ in range(60):
        result = started.run()
        if (rollout := result.state.rollout.rollout) is not None and rollout.passed_at is not None:
            break
        started.clock.advance(min(5.0, max(0.1, result.wait or 1.0)))
    (canary,) = following(started, "better")
    started.live.unreachable_next(1)
    started.run()
    started.live.remove(runtime_key(key(canary)))
    started.clock.advance(31)  # the pause is over, and the canary died while we could not look
    started.run()
    assert following(started, "better") <= {canary}


def test_a_commit_after_a_failed_gate_is_judged_whole_by_an_event(world: World) -> None:
    world.repository.commit(fleet(FIRST, NAMES[:12]), policy={"rollout": {"canary": 4}})
    world.converge()
    world.repository.commit(fleet(BROKEN_BODY, NAMES[:12]))
    assert world.converge().phase is Phase.DEGRADED
    sha = world.repository.commit(fleet(FIRST, NAMES[:3]))
    for _ in range(20):
        world.run("a00")
        world.clock.advance(1)
    assert world.phase(sha) is Phase.BLOCKED
    assert len({resource.agent for resource in world.live.live}) == 12


def without(name: str) -> dict[str, dict[str, Any]]:
    return {other: spec for other, spec in fleet(BROKEN_BODY).items() if other != name}


RIGHT = fleet({"runtime": {"command": ["typo"]}})["a00"]


@pytest.mark.parametrize(
    "after",
    [
        without("a00"),
        fleet(BROKEN_BODY) | {"a00": RIGHT},
        fleet({**BROKEN_BODY, "description": "once more"}) | {"a00": {**RIGHT, "lifecycle": "Stopped"}},
    ],
    ids=["the canary is removed", "only the canary is fixed", "the canary is stopped"],
)
def test_what_helps_the_canary_proves_nothing_for_the_others(started: World, after: dict[str, Any]) -> None:
    started.repository.commit(fleet(BROKEN_BODY))
    assert started.converge().phase is Phase.DEGRADED
    started.repository.commit(after)
    started.converge()
    down = {name for name in after if not started.status(name).ready}
    assert down <= {"a01"}
    assert len(following(started, "typo") - {"a00"}) <= 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"lifecycle": "Stopped"}, {"lifecycle": "Stopped"}),
        ({}, {"deletionPolicy": "Retain", **FIRST}),
        ({}, {"lifecycle": "Stopped"}),
    ],
    ids=["it rests", "only its record changes", "it ends"],
)
def test_a_canary_is_one_whose_health_says_something(
    world: World, before: dict[str, Any], after: dict[str, Any]
) -> None:
    world.repository.commit(fleet(FIRST) | {"a00": {**FIRST, **before}})
    world.converge()
    world.repository.commit(fleet(BROKEN_BODY) | {"a00": {**BROKEN_BODY, "probes": {}, **after}})
    assert world.converge().phase is Phase.DEGRADED
    assert following(world, "typo") - {"a00"} == {"a01"}


def test_nothing_is_reverted_in_a_freeze(world: World) -> None:
    world.repository.commit(fleet(FIRST, NAMES[:3]), policy={"rollout": {"onFailure": "Revert"}})
    world.converge()
    bad = world.repository.commit(fleet(BROKEN_BODY, NAMES[:3]))
    world.run()
    world.journal.control(Control(ControlVerb.FREEZE, "*", "ada@host", world.clock.now(), "look first"))
    settle(world)
    assert world.repository.head == bad
    world.journal.control(Control(ControlVerb.UNFREEZE, "*", "ada@host", world.clock.now(), "looked"))
    settle(world)
    assert world.repository.head != bad
    assert following(world, "first") == set(NAMES[:3])


def test_restarts_of_ours_give_a_gate_no_more_time(started: World) -> None:
    bad = started.repository.commit(fleet(BROKEN_BODY))
    for _ in range(4):
        for _ in range(4):
            started.run()
            started.clock.advance(2)
        started.boot()
    started.run()
    assert started.phase(bad) is Phase.DEGRADED


def test_nobody_s_time_runs_while_we_are_not_there(started: World) -> None:
    slow = started.repository.commit(fleet({"runtime": {"command": ["slow"], "minUptime": "10s"}}))
    started.run()
    started.clock.advance(1000)
    started.boot()
    assert started.run().phase is not Phase.DEGRADED
    assert started.converge().phase is Phase.CONVERGED
    assert started.phase(slow) is Phase.CONVERGED


def test_the_digest_of_a_blocked_commit_does_not_follow_the_drift_of_others(started: World) -> None:
    sha = started.repository.commit(fleet(FIRST, NAMES[:5]))
    started.run()
    first = started.journal.commit_record(sha)
    started.live.remove(runtime_key(key("a02")))
    started.run("a02")
    again = started.journal.commit_record(sha)
    assert first is not None
    assert again is not None
    assert (first.phase, first.plan) == (again.phase, again.plan)
