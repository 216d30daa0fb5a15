"""A failure that waiting does not cure: the gate fails when it is sure of it, and not when the time is up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.health import Health, HealthState
from gitops_agent.model.observation import Observation
from gitops_agent.model.status import Phase
from gitops_agent.testing.faults import LyingDriver

from .world import World

NAMES = ("one", "two", "three")
NO_IMAGE = Health(HealthState.UNHEALTHY, "ImagePullFailed", "the registry has no such image", final=True)
SLOW = Health(HealthState.UNHEALTHY, "ImagePullFailed", "the registry does not answer")


class Registry:
    """A live system that says of everything with the command ``typo`` what ``said`` says."""

    def __init__(self, said: Health | None = None) -> None:
        self.said = said

    def __call__(self, seen: Sequence[Observation]) -> Sequence[Observation]:
        return [replace(each, health=self.said) if _is_typo(each) else each for each in seen]


def _is_typo(seen: Observation) -> bool:
    return seen.fields is not None and seen.fields.value.get("command") == ["typo"]


def fleet(command: str) -> dict[str, dict[str, Any]]:
    return {name: {"runtime": {"command": [command]}} for name in NAMES}


@pytest.fixture
def registry(world: World) -> Registry:
    """What the live system says of a fleet that runs."""
    made = Registry(NO_IMAGE)
    world.driver = LyingDriver(world.live, made)
    world.boot()
    world.repository.commit(fleet("good"))
    assert world.converge().phase is Phase.CONVERGED
    return made


def seconds_to_verdict(world: World, sha: str) -> float:
    """How long it takes until a commit is judged, on a clock that moves as the passes ask for."""
    begin = world.clock.monotonic()
    assert world.converge(200).phase is world.phase(sha)
    return world.clock.monotonic() - begin


def followers(world: World) -> int:
    return sum(thing.fields.value.get("command") == ["typo"] for thing in world.live.live.values())


def test_the_gate_fails_after_half_a_minute(world: World, registry: Registry) -> None:
    sha = world.repository.commit(fleet("typo"))
    assert 30 <= seconds_to_verdict(world, sha) <= 45
    assert (world.phase(sha), followers(world)) == (Phase.DEGRADED, 1)
    assert "ImagePullFailed: the registry has no such image" in world.record(sha).summary


def test_what_may_pass_has_the_whole_time(world: World, registry: Registry) -> None:
    registry.said = SLOW
    sha = world.repository.commit(fleet("typo"))
    assert seconds_to_verdict(world, sha) >= 120
    assert (world.phase(sha), followers(world)) == (Phase.DEGRADED, 1)


def test_a_policy_says_how_long_and_never_beyond_the_time_of_the_agent(world: World, registry: Registry) -> None:
    sha = world.repository.commit(fleet("typo"), policy={"rollout": {"failAfter": "5s"}})
    assert 5 <= seconds_to_verdict(world, sha) < 15
    for spec in (soon := fleet("good")).values():
        spec["rollout"] = {"healthTimeout": "10s"}
    world.repository.commit(soon)
    world.converge()
    for spec in soon.values():
        spec["runtime"] = {"command": ["typo"], "env": [{"name": "ANOTHER", "value": "tree"}]}
    sha = world.repository.commit(soon, policy={"rollout": {"failAfter": "1h"}})
    assert seconds_to_verdict(world, sha) < 25


def test_a_hiccup_fails_nothing(world: World, registry: Registry) -> None:
    sha = world.repository.commit(fleet("typo"))
    for _ in range(4):
        world.run()
        world.clock.advance(5)
    assert world.phase(sha) is Phase.RECONCILING
    registry.said = None
    assert world.converge().phase is Phase.CONVERGED
    assert followers(world) == len(NAMES)


def test_one_word_after_a_long_wait_is_a_hiccup_too(world: World, registry: Registry) -> None:
    """A large image takes a minute, and then the registry refuses once: what counts is how long it is said."""
    registry.said = SLOW
    sha = world.repository.commit(fleet("typo"))
    for said, seconds in ((SLOW, 65), (NO_IMAGE, 20), (SLOW, 1), (NO_IMAGE, 20)):
        registry.said = said
        world.run()
        world.clock.advance(seconds)
        world.run()
        assert world.phase(sha) is Phase.RECONCILING
    world.clock.advance(11)
    world.run()
    assert world.phase(sha) is Phase.DEGRADED


def test_what_was_wrong_before_a_commit_does_not_fail_the_commit_that_mends_it(
    world: World, registry: Registry
) -> None:
    world.repository.commit(fleet("typo"))
    world.converge()
    assert followers(world) == 1
    world.clock.advance(3600)
    world.live.fail_next(3)  # so that the old state is looked at after the release of the mended one
    sha = world.repository.commit(fleet("better"))
    assert world.converge().phase is Phase.CONVERGED
    assert world.phase(sha) is Phase.CONVERGED
    assert all(world.status(name).ready for name in NAMES)
