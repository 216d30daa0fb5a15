"""No commit loosens the guard that should have stopped it: until it has converged, the stricter number holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.model.control import ControlVerb
from gitops_agent.model.observation import Observation
from gitops_agent.model.plan import Verb
from gitops_agent.model.status import Phase
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key

from .repository import key
from .world import World

TEN = [f"a{number}" for number in range(10)]
Spec = dict[str, Any]
FIRST: Spec = {"runtime": {"command": ["first"]}, "rollout": {"healthTimeout": "4s"}}
SECOND: Spec = FIRST | {"runtime": {"command": ["second"]}}
BROKEN: Spec = SECOND | {"probes": {"readiness": {"exec": {"command": ["false"]}}}}
FEW, ALL = {"min": 2, "ratio": 0.1}, {"min": 99, "ratio": 1}


def all_of(spec: Spec, names: list[str] = TEN) -> dict[str, Spec]:
    return dict.fromkeys(names, spec)


def started(world: World, policy: Spec) -> World:
    world.repository.commit(all_of(FIRST), policy=policy)
    assert world.converge().phase is Phase.CONVERGED
    return world


def moved(world: World) -> int:
    things = (world.live.live.get(runtime_key(key(name))) for name in TEN)
    return sum(thing is not None and thing.fields.value["command"] == ["second"] for thing in things)


def alive(world: World) -> int:
    return sum(resource.kind == "runtime" for resource in world.live.live)


def passes(world: World, seconds: float) -> None:
    """All passes that are due within some time."""
    end = world.clock.now() + seconds
    while world.clock.now() < end:
        result = world.run()
        world.clock.advance(min(60.0, max(0.25, result.wait or 1.0)))


@pytest.mark.parametrize("where", ["fleet", "tenant"])
@pytest.mark.parametrize("how", ["removed", "stopped"])
def test_mass_delete(world: World, where: str, how: str) -> None:
    old: Spec = {"massDelete": FEW}
    if where == "tenant":
        old = {"massDelete": ALL, "tenants": {"acme": old}}
    started(world, old)
    left = all_of(FIRST, TEN[3:]) | (all_of(FIRST | {"lifecycle": "Stopped"}, TEN[:3]) if how == "stopped" else {})
    world.repository.commit(left, policy={"massDelete": ALL})
    assert world.converge().phase is Phase.BLOCKED
    assert alive(world) == 10


@pytest.mark.parametrize("new", [{"massChange": ALL}, {}], ids=["raised", "left out"])
def test_mass_change(world: World, new: Spec) -> None:
    started(world, {"massChange": FEW})
    world.repository.commit(all_of(SECOND), policy=new)
    assert world.converge().phase is Phase.BLOCKED
    assert moved(world) == 0


def test_mass_drift(world: World) -> None:
    started(world, {"massDrift": {**FEW, "absence": "Freeze"}})
    world.repository.commit(policy={"massDrift": {**ALL, "absence": "Waves"}})
    for name in TEN[:3]:
        world.live.remove(runtime_key(key(name)))
    assert world.run().frozen
    assert alive(world) == 7
    world.clock.advance(3600)
    assert world.run().frozen, "and what tripped stays until people have looked, whatever the number is by now"
    assert [control.verb for control in world.journal.state().control.controls] == [ControlVerb.FREEZE]


def test_the_size_of_the_waves(world: World) -> None:
    started(world, {"rollout": {"canary": 1, "second": "10%"}})
    world.repository.commit(all_of(BROKEN), policy={"rollout": {"canary": 10, "second": "100%"}})
    assert world.converge().phase is Phase.DEGRADED
    assert moved(world) == 1


def test_the_pause_between_waves(world: World) -> None:
    started(world, {"rollout": {"pause": "1h"}})
    world.repository.commit(all_of(SECOND), policy={"rollout": {"pause": "0s"}})
    passes(world, 1800)
    assert moved(world) == 1


def test_the_time_at_a_gate(world: World) -> None:
    started(world, {"rollout": {"healthTimeout": "5s"}})
    patient = BROKEN | {"rollout": {"healthTimeout": "1h"}}
    bad = world.repository.commit(all_of(patient), policy={"rollout": {"healthTimeout": "1h"}})
    passes(world, 8)
    assert world.phase(bad) is Phase.DEGRADED


@pytest.mark.parametrize("word", ["ProposeRevert", "Revert"])
def test_what_git_sees_of_a_failed_gate(world: World, word: str) -> None:
    started(world, {"rollout": {"onFailure": "Hold"}})
    world.repository.commit(all_of(BROKEN), policy={"rollout": {"onFailure": word}})
    assert world.converge().phase is Phase.DEGRADED
    assert world.repository.pushed == []


def test_the_cap_of_actions(world: World) -> None:
    started(world, {"actionsPerMinute": 2, "rollout": {"canary": 10}})
    world.repository.commit(all_of(SECOND), policy={"actionsPerMinute": 500, "rollout": {"canary": 10}})
    world.clock.advance(60)
    done = [action for action, _ in world.run().executed if action.verb.touches_live]
    assert len(done) == 2


def test_the_rest_after_a_failure(world: World) -> None:
    started(world, {"backoff": {"first": "1h", "longest": "1h"}})
    world.repository.commit(all_of(SECOND), policy={"backoff": {"first": "1s"}})
    world.live.fail_next(message="no answer")
    world.run()
    calls = world.live.calls["apply"]
    passes(world, 300)
    assert world.live.calls["apply"] == calls, "what it failed at rests as long as the stricter policy says"


class Rebooted(MemoryDriver):
    """What is gone went with the host."""

    def observe(self, *args: Any, **kwargs: Any) -> list[Observation]:
        seen = super().observe(*args, **kwargs)
        return [replace(each, reason="HostRestarted") if each.fields is None else each for each in seen]


def test_the_rate_after_a_restart_of_the_host(tmp_path: Path) -> None:
    world = World(tmp_path / "state", Rebooted)
    started(world, {"hostRestart": {"atOnce": 2}})
    world.repository.commit(policy={"hostRestart": {"atOnce": 10}})
    for name in TEN[:4]:  # too few to send one ahead
        world.live.remove(runtime_key(key(name)))
    made = [action for action, _ in world.run().executed if action.verb is Verb.CREATE]
    assert len(made) == 2
    world.shut()


def test_who_may_rewrite_the_branch(world: World) -> None:
    started(world, {"forcePush": "refuse"})
    first = world.repository.head
    world.repository.commit(all_of(SECOND))
    world.converge()
    world.repository.commit(all_of(FIRST, TEN[:9]), policy={"forcePush": "follow"}, parent=first)
    assert world.converge().phase is Phase.REFUSED
    assert moved(world) == 10


def test_two_commits_in_one_push_are_one(world: World) -> None:
    """Loosening first, and using it before anybody could see it converge, is the same thing in two commits."""
    started(world, {"massDelete": FEW})
    world.repository.commit(policy={"massDelete": ALL})
    world.repository.commit(all_of(FIRST, TEN[3:]))
    assert world.converge().phase is Phase.BLOCKED
    assert alive(world) == 10


def test_a_looser_policy_holds_once_it_has_converged(world: World) -> None:
    started(world, {"massDelete": FEW})
    world.repository.commit(policy={"massDelete": ALL})
    assert world.converge().phase is Phase.CONVERGED
    world.boot()
    world.repository.commit(all_of(FIRST, TEN[3:]))
    assert world.converge().phase is Phase.CONVERGED
    assert alive(world) == 7
