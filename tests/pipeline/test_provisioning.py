"""Provisioning that cannot finish: kept by default; taken down in reverse order when the policy says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.status import ConditionType
from gitops_agent.testing.memory_driver import config_key, runtime_key

from .repository import key
from .world import World, verbs

NEVER: dict[str, Any] = {"probes": {"readiness": {"exec": {"command": ["false"]}, "period": "1s"}}}
COMPENSATE = {"provisioning": {"deadline": "60s", "onTimeout": "Compensate"}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.shut()


def after(world: World, seconds: float, step: float = 10.0) -> list[tuple[str, str]]:
    """What was done to agent a while this time went by."""
    done: list[tuple[str, str]] = []
    for _ in range(int(seconds / step)):
        world.clock.advance(step)
        done += [each for each in verbs(world.run().executed) if each[1].startswith("acme/a:")]
    return done


def test_without_a_word_of_the_policy_it_is_kept(world: World) -> None:
    world.repository.commit({"a": NEVER, "z": {}})
    world.run()
    assert after(world, 2000, 100) == []
    assert runtime_key(key("a")) in world.running


def test_what_was_built_is_taken_down_in_reverse_order_and_stays_down(world: World) -> None:
    world.repository.commit({"a": NEVER, "z": {}}, policy=COMPENSATE)
    world.run()
    assert after(world, 50) == []
    # Over the deadline, and in the order of teardown.
    assert [each[0] for each in after(world, 20)] == ["delete"] * 2
    assert not {runtime_key(key("a")), config_key(key("a"))} & world.running.keys()
    assert runtime_key(key("z")) in world.running
    stalled = world.condition("a", ConditionType.STALLED)
    assert stalled is not None
    assert stalled.reason == "ProvisioningTimedOut"
    assert "gitops-agent retry acme/a" in stalled.message
    world.boot()
    assert after(world, 200, 50) == [], "a restart does not begin anew"


def test_the_order_is_the_reverse_of_bring_up(world: World) -> None:
    world.repository.commit({"a": NEVER, "z": {}}, policy=COMPENSATE)
    built = [each[1] for each in verbs(world.run().executed) if each[1].startswith("acme/a:")]
    taken = [each[1] for each in after(world, 80)]
    assert taken == built[::-1]


def test_a_new_spec_or_a_person_gives_it_another_chance(world: World) -> None:
    world.repository.commit({"a": NEVER, "z": {}}, policy=COMPENSATE)
    world.run()
    after(world, 80)
    world.journal.control(Control(ControlVerb.RETRY, "acme/a", "ada", world.clock.now()))
    assert ("create", "acme/a:runtime/main") in after(world, 10)
    assert ("delete", "acme/a:runtime/main") in after(world, 80), "it had its chance"
    world.repository.commit({"a": {}, "z": {}})
    world.converge()
    assert world.status("a").ready
    assert world.condition("a", ConditionType.STALLED) is None


def test_who_was_ready_once_is_never_compensated(world: World) -> None:
    world.repository.commit({"a": {}, "z": {}}, policy=COMPENSATE)
    world.converge()
    world.repository.commit({"a": NEVER, "z": {}})
    world.run()
    assert "delete" not in {verb for verb, _ in after(world, 500, 50)}
    assert runtime_key(key("a")) in world.running


def test_a_wall_clock_that_jumps_takes_nothing_down(world: World) -> None:
    world.repository.commit({"a": NEVER, "z": {}}, policy=COMPENSATE)
    world.run()
    world.clock.jump(3600.0)
    assert "delete" not in {verb for verb, _ in verbs(world.run().executed)}


def test_many_at_once_are_no_mass_delete(world: World) -> None:
    names = [f"n{number}" for number in range(8)]
    world.repository.commit({**dict.fromkeys(names, NEVER), "z": {}}, policy=COMPENSATE)
    world.run()
    world.run()
    world.clock.advance(61.0)
    world.run()
    assert {each.agent.name for each in world.running} == {"z"}
