"""A commit reaches what runs already wave by wave; a gate that fails holds everything not touched yet."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .world import World

NAMES = [f"a{number:02}" for number in range(20)]
BROKEN: dict[str, Any] = {"probes": {"readiness": {"exec": {"command": ["false"]}}}}
BROKEN_BODY: dict[str, Any] = {**BROKEN, "runtime": {"command": ["typo"]}}
GOOD: dict[str, Any] = {"runtime": {"command": ["better"]}}


def fleet(spec: dict[str, Any], names: list[str] = NAMES) -> dict[str, dict[str, Any]]:
    return {name: {"rollout": {"healthTimeout": "20s"}, **spec} for name in names}


def following(world: World, command: str) -> set[str]:
    """The agents whose runtime runs this command."""
    runtimes = {name: world.live.live.get(runtime_key(key(name))) for name in NAMES}
    return {name for name, thing in runtimes.items() if thing and thing.fields.value["command"] == [command]}


@pytest.fixture
def started(world: World) -> World:
    world.repository.commit(fleet({"runtime": {"command": ["first"]}}))
    assert world.converge().phase is Phase.CONVERGED
    return world


def test_one_then_a_tenth_then_the_rest(started: World) -> None:
    started.repository.commit(fleet(GOOD))
    sizes = []
    for _ in range(60):
        result = started.run()
        sizes.append(len(following(started, "better")))
        if result.phase is Phase.CONVERGED:
            break
        started.clock.advance(result.wait or 1.0)
    assert sorted(set(sizes)) == [1, 3, 20]
    assert started.journal.state().rollout.enforced == started.repository.head


@pytest.mark.parametrize("spec", [BROKEN, BROKEN_BODY], ids=["probe alone", "probe and command"])
def test_a_failed_gate_holds_all_that_was_not_touched(started: World, spec: dict[str, Any]) -> None:
    good = started.repository.head
    bad = started.repository.commit(fleet({"runtime": {"command": ["first"]}} | spec))
    result = started.converge()
    assert result.phase is Phase.DEGRADED
    assert started.journal.state().rollout.enforced == good
    assert len(following(started, "first")) >= 19
    halted = [name for name in NAMES if started.condition(name, ConditionType.HALTED)]
    assert len(halted) == 19
    assert all(started.status(name).ready for name in halted)
    record = started.journal.commit_record(bad)
    assert record is not None
    assert "acme/a00 is not Ready" in record.summary
    assert "19 agents keep" in record.summary


def test_while_held_an_untouched_agent_comes_back_with_its_old_spec(started: World) -> None:
    started.repository.commit(fleet(BROKEN_BODY))
    started.converge()
    for restarted in (False, True):
        if restarted:
            started.boot()
        started.live.remove(runtime_key(key("a07")))
        started.clock.advance(600)
        started.run()
        started.clock.advance(2)
        started.run()
        assert "a07" in following(started, "first")
        assert started.status("a07").ready
        assert following(started, "typo") == {"a00"}


def test_one_that_is_down_already_is_no_canary(world: World) -> None:
    down = {"a00": {**fleet(BROKEN)["a00"], "runtime": {"command": ["first"]}}}
    world.repository.commit(fleet({"runtime": {"command": ["first"]}}) | down)
    world.converge()
    assert not world.status("a00").ready
    world.repository.commit(fleet(GOOD) | {"a00": {**down["a00"], **GOOD}})
    world.run()
    assert following(world, "better") == {"a01"}


def test_a_good_commit_afterwards_reaches_everybody(started: World) -> None:
    started.repository.commit(fleet(BROKEN_BODY))
    started.converge()
    started.repository.commit(fleet(GOOD))
    assert started.converge().phase is Phase.CONVERGED
    assert len(following(started, "better")) == 20
    assert not [name for name in NAMES if started.condition(name, ConditionType.HALTED)]


def test_a_revert_of_a_held_rollout_touches_only_what_it_touched(started: World) -> None:
    started.repository.commit(fleet(BROKEN_BODY))
    started.converge()
    before = dict(started.live.starts)
    started.repository.commit(fleet({"runtime": {"command": ["first"]}}))
    assert started.converge().phase is Phase.CONVERGED
    assert len(following(started, "first")) == 20
    touched = {resource.agent.name for resource, count in started.live.starts.items() if before[resource] != count}
    assert touched == {"a00"}


def test_a_newer_commit_takes_the_place_of_a_rollout_under_way(started: World) -> None:
    slow = started.repository.commit(fleet({"runtime": {"command": ["slow"], "minUptime": "15s"}}))
    started.run()
    started.repository.commit(fleet(GOOD))
    assert started.converge().phase is Phase.CONVERGED
    assert started.phase(slow) is Phase.SUPERSEDED
    assert len(following(started, "better")) == 20


def test_a_restart_of_ours_goes_on_where_the_rollout_was(started: World) -> None:
    started.repository.commit(fleet(GOOD))
    for _ in range(30):
        result = started.run()
        started.boot()
        if result.phase is Phase.CONVERGED:
            break
        started.clock.advance(max(1.0, result.wait or 1.0))
    assert len(following(started, "better")) == 20
    assert all(started.live.starts[runtime_key(key(name))] == 2 for name in NAMES)


def test_the_pause_between_waves(world: World) -> None:
    world.repository.commit(fleet({"runtime": {"command": ["first"]}}), policy={"rollout": {"pause": "1h"}})
    world.converge()
    world.repository.commit(fleet(GOOD))
    for _ in range(20):
        world.run()
        world.clock.advance(60)
    assert len(following(world, "better")) == 1
    world.clock.jump(7200.0)
    world.run()
    assert len(following(world, "better")) == 1, "a wall clock that is set ends no pause"
    world.clock.advance(3600)
    world.run()
    assert len(following(world, "better")) == 3


def test_what_does_not_exist_yet_waits_for_no_wave(started: World) -> None:
    started.repository.commit(fleet(BROKEN_BODY) | {"new": GOOD})
    started.run()
    assert runtime_key(key("new")) in started.live.live
    assert len(following(started, "typo")) == 1


def test_a_new_agent_that_waits_for_what_goes_later_holds_up_no_wave(world: World) -> None:
    """Three agents are renamed, and each new one needs what the old one has (a port, say)."""
    few = {"massDelete": {"min": 9}}  # to rename so many is a question otherwise
    world.repository.commit(fleet({}, ["old-1", "old-2", "old-3"]), policy=few)
    world.converge()
    world.live.fail_next(2, "address in use", key=runtime_key(key("new-3")))
    world.repository.commit(fleet({}, ["new-1", "new-2", "new-3"]))
    assert world.converge().phase is Phase.CONVERGED
    assert {resource.agent.name for resource in world.live.live} == {"new-1", "new-2", "new-3"}


def test_the_same_tree_is_not_tried_again_by_itself(started: World) -> None:
    bad = started.repository.commit(fleet(BROKEN_BODY))
    started.converge()
    started.repository.commit(fleet({"runtime": {"command": ["first"]}}))
    started.converge()
    started.boot()
    again = started.repository.commit(fleet(BROKEN_BODY))
    assert started.converge().phase is Phase.BLOCKED
    assert following(started, "typo") == set()
    record = started.journal.commit_record(again)
    assert record is not None
    assert bad[:10] in "".join(f.summary + f.detail for f in record.findings)


def test_retry_clears_what_failed_and_goes_on_from_the_canary(started: World) -> None:
    bad = started.repository.commit(fleet(BROKEN_BODY))
    started.converge()
    started.journal.control(Control(ControlVerb.RETRY, bad, "ada@host", started.clock.now()))
    assert started.run().phase is Phase.RECONCILING
    started.live.heal()
    assert started.converge().phase is Phase.DEGRADED, "nothing is better, so it fails once more"
    assert following(started, "typo") == {"a00"}


def test_deletions_go_through_waves_and_are_last(world: World) -> None:
    names = NAMES[:8]
    world.repository.commit(fleet({"runtime": {"command": ["first"]}}, names))
    world.converge()
    world.repository.commit(fleet(BROKEN_BODY, names[2:]))
    assert world.converge().phase is Phase.DEGRADED
    assert {"a00", "a01"} <= following(world, "first"), "nothing is taken away for a commit that fails its canary"


@pytest.mark.parametrize("more", [{"policy": {"actionsPerMinute": 400}}, {}], ids=["a policy", "another agent"])
def test_a_commit_on_top_of_a_failed_one_takes_down_nobody_else(started: World, more: dict[str, Any]) -> None:
    """The canary that failed is the canary of what leaves it as it is."""
    started.repository.commit(fleet(BROKEN_BODY))
    started.converge()
    other = {} if more else {"a19": fleet(GOOD)["a19"]}
    started.repository.commit(fleet(BROKEN_BODY) | other, **more)
    assert started.converge().phase is Phase.DEGRADED
    assert len(following(started, "first")) == 19
    assert following(started, "typo") == {"a00"}


def test_a_fix_of_what_a_canary_waits_for_is_not_held_up_by_it(world: World) -> None:
    """The agents that a failed rollout has reached go first together: one of them may be what the other needs."""
    policy, needs = {"rollout": {"canary": 2}}, {"rollout": {"healthTimeout": "20s", "dependsOn": ["acme/a00"]}}
    first = {"runtime": {"command": ["first"]}}
    world.repository.commit(fleet(first) | {"a01": first | needs}, policy=policy)
    world.converge()
    waiting = {"a01": {"runtime": {"command": ["typo"]}} | needs}
    world.repository.commit(fleet(BROKEN_BODY) | waiting)
    assert world.converge().phase is Phase.DEGRADED
    fixed = {"a00": fleet({"runtime": {"command": ["typo"]}})["a00"]}
    world.repository.commit(fleet(first) | waiting | fixed)
    assert world.converge().phase is Phase.CONVERGED
    assert following(world, "typo") == {"a00", "a01"}


def test_a_liveness_typo_never_becomes_a_storm(world: World) -> None:
    """The worst form: nothing else is asked, the canary was restarted by the commit, and so were we."""
    live, dead = ({"liveness": {"exec": {"command": [word]}, "period": "1s"}} for word in ("true", "false"))
    world.repository.commit(fleet({"runtime": {"command": ["first"]}, "probes": live}, NAMES[:3]))
    world.converge()
    world.repository.commit(fleet({"runtime": {"command": ["typo"]}, "probes": dead}, NAMES[:3]))
    assert world.converge().phase is Phase.DEGRADED
    before = world.live.starts.copy()
    assert before[runtime_key(key("a00"))] == 2, "a definition that never passed, where another did, ends nobody"
    world.boot()
    moments = []
    for _ in range(150):
        seconds, count = world.clock.now(), world.live.starts.total()
        result = world.run()
        moments += [seconds] * (world.live.starts.total() - count)
        world.clock.advance(min(5.0, max(0.1, result.wait or 5.0)))
    more = {resource.agent.name: count for resource, count in (world.live.starts - before).items()}
    assert set(more) <= {"a00"}
    # The guard against oscillation counts no repair that takes no time, so pauses that double are all there is.
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert len(gaps) < 12
    assert gaps[-1] > 8 * gaps[0]
