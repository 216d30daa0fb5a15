"""What a gate asks before the next wave: Ready for the bake time, in one run, also by the probes of before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.fields import Fields
from gitops_agent.model.passes import Directives, PassResult
from gitops_agent.model.state import State
from gitops_agent.model.status import Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .test_rollout import BROKEN_BODY, GOOD, fleet, following
from .world import World

BAKE: dict[str, Any] = {"rollout": {"bake": "10s"}}
FIRST: dict[str, Any] = {"runtime": {"command": ["first"]}}


@pytest.fixture
def started(world: World) -> World:
    world.repository.commit(fleet(FIRST), policy=BAKE)
    assert world.converge().phase is Phase.CONVERGED
    return world


def step(world: World) -> PassResult:
    """One pass, and then as much time as it asks for."""
    result = world.run()
    assert result.wait is not None
    world.clock.advance(result.wait)
    return result


def until_baking(world: World) -> str:
    """Passes until the canary is Ready and its bake time runs; the canary."""
    for _ in range(10):
        result = world.run()
        if (rollout := result.state.rollout.rollout) is not None and rollout.passed_at is not None:
            return rollout.moving[0].name
        world.clock.advance(result.wait or 1.0)
    raise AssertionError("the canary never became Ready")


def test_each_wave_is_ready_for_the_bake_time_and_nothing_is_polled(started: World) -> None:
    started.repository.commit(fleet(GOOD))
    began, seen = started.clock.monotonic(), dict[int, float]()
    for _ in range(12):
        result = started.run()
        seen.setdefault(len(following(started, "better")), started.clock.monotonic() - began)
        if result.phase is Phase.CONVERGED:
            break
        assert result.wait is not None
        started.clock.advance(result.wait)
    assert result.phase is Phase.CONVERGED
    # One second of uptime and ten of bake after each wave; after the last one, too, before the commit is in.
    assert {size: round(at) for size, at in seen.items()} == {1: 0, 3: 11, 20: 22}
    assert round(started.clock.monotonic() - began) == 33


def test_time_in_which_we_are_not_there_is_no_bake_time(started: World) -> None:
    started.repository.commit(fleet(GOOD))
    until_baking(started)
    started.boot()
    started.clock.advance(3600)
    started.boot()
    started.run()
    assert len(following(started, "better")) == 1


@pytest.mark.parametrize("restarted", [False, True], ids=["seen gone", "restarted behind our back"])
def test_a_canary_that_exits_while_it_bakes_fails_the_gate(started: World, restarted: bool) -> None:
    bad = started.repository.commit(fleet({"runtime": {"command": ["better"], "minUptime": "0s"}}))
    canary = runtime_key(key(until_baking(started)))
    started.clock.advance(10)  # all of the bake time, and the exit comes with its very end
    thing = started.live.live[canary]
    started.live.remove(canary)
    if restarted:  # by a pass that was killed before it could tell
        again = replace(thing, handle=Fields.of({"handle": "new"}), started_at=started.clock.now())
        started.live.live[canary] = again
    started.run()
    assert started.phase(bad) is Phase.DEGRADED
    assert len(following(started, "better")) == 1
    record = started.journal.commit_record(bad)
    assert record is not None
    assert record.summary.startswith("acme/a00 did not stay up since its release")


@pytest.mark.parametrize("uptime", ["1s", "0s"], ids=["not Ready for a moment", "Ready in the same pass"])
def test_what_is_not_its_own_fault_begins_the_bake_anew(world: World, uptime: str) -> None:
    first, good = ({"runtime": {"command": [command], "minUptime": uptime}} for command in ("first", "better"))
    world.repository.commit(fleet(first), policy=BAKE)
    world.converge()
    sha = world.repository.commit(fleet(good))
    canary = runtime_key(key(until_baking(world)))
    world.clock.advance(9)
    world.live.edit(canary, command=["by hand"])
    world.run()
    assert world.phase(sha) is Phase.RECONCILING
    world.clock.advance(9)
    world.run()
    assert len(following(world, "better")) == 1, "ten seconds from the restart on"
    assert world.converge().phase is Phase.CONVERGED


def test_every_kind_of_change_has_a_canary(started: World) -> None:
    """New instructions that work say nothing about a program that dies."""
    words = {name: {**fleet(FIRST)[name], "instructions": "Be brief."} for name in ("a00", "a01")}
    bad = started.repository.commit(fleet({"runtime": {"command": ["typo"]}}) | words)
    for _ in range(40):
        for name in following(started, "typo"):  # it is Ready for a while, and dies before its bake is over
            if started.clock.now() - started.live.live[runtime_key(key(name))].started_at > 5:
                started.live.remove(runtime_key(key(name)))
        result = started.run()
        started.clock.advance(min(2.0, result.wait or 2.0))
        assert len(following(started, "typo")) <= 1
    assert started.phase(bad) is Phase.DEGRADED
    assert len(following(started, "first")) >= 19


def test_the_last_wave_is_proven_too(started: World) -> None:
    sha = started.repository.commit(fleet(GOOD))
    for _ in range(60):
        result = started.run()
        if len(following(started, "better")) == 20:
            break
        started.clock.advance(result.wait or 1.0)
    started.clock.advance(3)
    started.run()
    assert started.phase(sha) is Phase.RECONCILING
    started.live.remove(runtime_key(key("a17")))
    started.run()
    assert started.phase(sha) is Phase.DEGRADED
    assert "acme/a17 did not stay up since its release" in started.record(sha).summary


def test_what_a_commit_with_one_agent_broke_holds_no_other_agent(started: World) -> None:
    broken = fleet(BROKEN_BODY, ALONE)
    started.repository.commit(fleet(FIRST) | broken)
    assert started.converge().phase is Phase.DEGRADED
    sha = started.repository.commit(fleet(FIRST) | broken | fleet(GOOD, ["a05"]))
    started.converge()
    assert following(started, "better") == {"a05"}
    assert (started.phase(sha), started.record(sha).cause) == (Phase.DEGRADED, "Inherited")


def test_a_commit_on_top_of_one_that_bakes_is_proven_by_its_own_agents(world: World) -> None:
    world.repository.commit(fleet(FIRST), policy={"rollout": {"bake": "10s", "onFailure": "Revert"}})
    world.converge()
    world.repository.commit(fleet(FIRST) | fleet(GOOD, ALONE))
    until_baking(world)
    world.clock.advance(6)
    typo = fleet({"runtime": {"command": ["typo"]}}, ["a05"])
    bad = world.repository.commit(fleet(FIRST) | fleet(GOOD, ALONE) | typo)
    for _ in range(40):
        result = world.run()
        if "a05" in following(world, "typo"):
            world.clock.advance(2)
            world.live.remove(runtime_key(key("a05")))
            break
        world.clock.advance(result.wait or 1.0)
    world.run()
    assert world.phase(bad) is Phase.DEGRADED
    world.converge()
    assert "typo" not in {world.live.live[runtime_key(key(n))].fields.value["command"][0] for n in ("a00", "a05")}


# -- a commit with one wave: there is no gate before the verdict, so the verdict itself waits


ALONE = ["a00"]


def test_the_only_wave_bakes_before_the_commit_is_in(started: World) -> None:
    sha = started.repository.commit(fleet(FIRST) | fleet(GOOD, ALONE))
    until_baking(started)
    record = started.journal.commit_record(sha)
    assert record is not None
    assert record.phase is Phase.RECONCILING
    assert record.summary == "all that it changes is Ready, and has to stay so for 10 s"
    result = started.run()
    assert result.wait == pytest.approx(10.0, abs=1.0)
    assert started.converge().phase is Phase.CONVERGED


@pytest.mark.parametrize("answer", ["Hold", "Revert"])
def test_the_only_wave_fails_when_it_exits(world: World, answer: str) -> None:
    world.repository.commit(fleet(FIRST), policy={"rollout": {"bake": "10s", "onFailure": answer}})
    world.converge()
    bad = world.repository.commit(fleet(FIRST) | fleet({"runtime": {"command": ["typo"]}}, ALONE))
    until_baking(world)
    world.clock.advance(5)
    world.live.remove(runtime_key(key("a00")))
    result = world.run()
    assert world.phase(bad) is Phase.DEGRADED
    assert result.phase is Phase.DEGRADED
    world.converge()
    assert following(world, "typo") == (set() if answer == "Revert" else {"a00"})
    assert world.phase(bad) is Phase.DEGRADED


def test_many_small_commits_do_not_pass_a_typo_from_agent_to_agent(started: World) -> None:
    typo = {"runtime": {"command": ["typo"]}}
    started.repository.commit(fleet(FIRST) | fleet(typo, ALONE))
    until_baking(started)
    started.repository.commit(fleet(FIRST) | fleet(typo, ["a00", "a01"]))
    started.run()
    started.clock.advance(3)
    started.live.remove(runtime_key(key("a00")))
    started.converge()
    assert following(started, "typo") == {"a00"}


def test_a_commit_that_ends_its_only_agent_has_nothing_to_wait_for(started: World) -> None:
    started.repository.commit(fleet(FIRST) | {"a00": {"lifecycle": "Stopped", **FIRST}})
    before = started.clock.monotonic()
    assert started.converge().phase is Phase.CONVERGED
    assert started.clock.monotonic() - before < 5


def test_what_stands_between_a_bake_and_its_end_is_no_hot_loop(started: World) -> None:
    started.repository.commit(fleet(FIRST) | fleet(GOOD, ALONE))
    until_baking(started)
    started.repository.commit({name: fleet(FIRST)[name] for name in ["a00", "a01"]})  # held: it deletes 18
    waits = []
    for _ in range(8):
        result = started.run()
        waits.append(result.wait)
        started.clock.advance(result.wait or 20.0)
    assert sum(wait is not None and wait < 0.2 for wait in waits) <= 1, waits


class Strict(World):
    """A world in which the command ``alive`` fails where a typo runs."""

    def run(self, *names: str, fetch: bool = True) -> PassResult:
        exec_ = type(self.live).exec

        def answer(agent: Any, command: Any, *more: Any, **others: Any) -> Any:
            thing = self.live.live.get(runtime_key(agent))
            typo = thing is not None and thing.fields.value["command"] == ["typo"]
            return exec_(self.live, agent, ["false"] if typo else command, *more, **others)

        self.live.exec = answer  # type: ignore[method-assign]
        return super().run(*names, fetch=fetch)


PROBED = {"probes": {"readiness": {"exec": {"command": ["alive"]}, "period": "2s"}}}
WEAKER = {"probes": {"readiness": {"exec": {"command": ["alive"]}, "period": "2s", "failureThreshold": 900}}}


@pytest.mark.parametrize("probes", [{}, WEAKER], ids=["removed", "weakened"])
def test_a_commit_that_takes_its_probe_away_is_judged_by_it_too(tmp_path: Any, probes: dict[str, Any]) -> None:
    world = Strict(tmp_path)
    world.repository.commit(fleet({**FIRST, **PROBED}), policy=BAKE)
    assert world.converge().phase is Phase.CONVERGED
    bad = world.repository.commit(fleet({"runtime": {"command": ["typo"]}, **probes}))
    assert world.converge().phase is Phase.DEGRADED
    assert following(world, "typo") == {"a00"}
    # Whatever is pushed on top of it and leaves the program as it is.
    world.repository.commit(fleet({"runtime": {"command": ["typo"]}, **probes, "instructions": "Be brief."}))
    assert world.converge().phase is Phase.DEGRADED
    assert following(world, "typo") == {"a00"}
    assert world.repository.head != bad
    world.repository.commit(fleet({**GOOD, **probes}))
    assert world.converge().phase is Phase.CONVERGED, "a program that passes may lose its probe"
    world.shut()


# -- a gate that failed for a passing cause


def fail_for_a_while(world: World) -> str:
    """A commit whose canary cannot be started, for a cause that is not in Git; the sha."""
    world.live.fail_always("the secret is missing", key=runtime_key(key("a00")))
    sha = world.repository.commit(fleet(GOOD))
    assert world.converge().phase is Phase.DEGRADED
    world.live.heal()
    return sha


def test_a_gate_whose_cause_has_passed_opens_after_all(started: World) -> None:
    sha = fail_for_a_while(started)
    ready_at = None
    for _ in range(40):
        result = step(started)
        if ready_at is None and started.status("a00").ready:
            ready_at = started.clock.monotonic()
        if started.phase(sha) is not Phase.DEGRADED:
            break
        assert len(following(started, "better")) <= 1
    assert ready_at is not None
    assert 55 < started.clock.monotonic() - ready_at < 70, "a minute of being Ready"
    assert result.state.rollout.failed_trees == ()
    assert started.converge().phase is Phase.CONVERGED
    assert len(following(started, "better")) == 20
    record = started.journal.commit_record(sha)
    assert record is not None
    assert [finding.code for finding in record.findings].count("GateRecovered") == 1


def test_while_it_fails_again_and_again_it_stays_held(started: World) -> None:
    sha = fail_for_a_while(started)
    for _ in range(4):
        while not started.status("a00").ready:
            step(started)
        started.clock.advance(50)
        started.live.remove(runtime_key(key("a00")))
        started.run()
    assert started.phase(sha) is Phase.DEGRADED
    assert len(following(started, "better")) <= 1


def test_what_was_answered_in_git_does_not_go_on(world: World) -> None:
    world.repository.commit(fleet(FIRST), policy={"rollout": {"onFailure": "ProposeRevert"}})
    world.converge()
    sha = fail_for_a_while(world)
    for _ in range(60):
        result = world.run()
        if result.wait is None:
            break
        world.clock.advance(result.wait)
    assert result.wait is None, "nothing is waited for any more"
    assert world.status("a00").ready
    assert world.phase(sha) is Phase.DEGRADED
    assert len(following(world, "better")) == 1


def test_the_last_wave_recovers_as_well(world: World) -> None:
    world.repository.commit({"only": {}}, policy=BAKE)
    world.converge()
    world.live.fail_always("no room", key=runtime_key(key("only")))
    sha = world.repository.commit({"only": {**GOOD, "rollout": {"healthTimeout": "20s"}}})
    assert world.converge().phase is Phase.DEGRADED
    world.live.heal()
    for _ in range(40):
        result = world.run()
        if result.phase is Phase.CONVERGED:
            break
        assert result.wait is not None, "its recovery is waited for"
        world.clock.advance(result.wait)
    assert world.phase(sha) is Phase.CONVERGED


def test_what_an_earlier_commit_left_down_keeps_no_gate_from_recovering(world: World) -> None:
    world.repository.commit({"only": {}, "other": {}}, policy=BAKE)
    world.converge()
    world.live.fail_always("no room")
    world.live.lose([runtime_key(key("other"))])
    sha = world.repository.commit({"only": {**GOOD, "rollout": {"healthTimeout": "20s"}}, "other": {}})
    assert world.converge().phase is Phase.DEGRADED
    world.live.heal()
    world.live.fail_always("still no room", key=runtime_key(key("other")))
    for _ in range(60):
        result = world.run()
        if world.record(sha).cause == "Inherited":
            break
        world.clock.advance(result.wait or 1.0)
    record = world.record(sha)
    assert (record.phase, record.cause) == (Phase.DEGRADED, "Inherited")
    assert "other" in record.summary
    assert "only" not in record.summary


# -- what waits for people wakes no pass, though the time of a rest is over


def passes_in_a_minute(world: World) -> int:
    """How many passes a minute brings, each after the time that the one before asked for."""
    count, end = 0, world.clock.monotonic() + 60.0
    while world.clock.monotonic() < end:
        result = world.run()
        count += 1
        world.clock.advance(60.0 if result.wait is None else max(0.001, result.wait))
    return count


def test_a_blocked_commit_on_a_rollout_that_rests_is_no_reason_to_hurry(world: World) -> None:
    world.repository.commit(fleet(FIRST), policy={"rollout": {"pause": "30s"}})
    world.converge()
    world.repository.commit(fleet(GOOD))
    until_baking(world)
    gone = {name: spec for name, spec in fleet(GOOD).items() if name < "a05"}
    blocked = world.repository.commit(gone)
    world.run()
    assert world.phase(blocked) is Phase.BLOCKED
    world.clock.advance(31)
    assert passes_in_a_minute(world) <= 3


def test_an_approval_that_goes_while_a_wave_rests_is_no_reason_to_hurry(world: World) -> None:
    policy = {"massChange": {"min": 3, "ratio": 0.2}, "rollout": {"pause": "30s"}}
    world.repository.commit(fleet(FIRST), policy=policy)
    world.converge()
    sha = world.repository.commit(fleet(GOOD))
    world.run()
    record = world.journal.commit_record(sha)
    assert record is not None
    world.journal.control(Control(ControlVerb.APPROVE, record.plan, "ada@host", world.clock.now()))
    until_baking(world)
    in_force, withdrawn = world.stages.controls.in_force, {"approvals": (), "approved": frozenset[str]()}

    def without(*given: Any) -> tuple[State, Directives]:
        state, found = in_force(*given)
        return state, replace(found, **withdrawn, open_actions={}, all_approved=frozenset())

    world.stages.controls.in_force = without  # type: ignore[method-assign]
    world.clock.advance(31)
    world.run()
    assert world.phase(sha) is Phase.BLOCKED
    assert passes_in_a_minute(world) <= 3


def test_broken_stays_broken(started: World) -> None:
    bad = started.repository.commit(fleet(BROKEN_BODY))
    assert started.converge().phase is Phase.DEGRADED
    for _ in range(30):
        result = started.run()
        started.clock.advance(min(60.0, result.wait or 60.0))
    assert started.phase(bad) is Phase.DEGRADED
