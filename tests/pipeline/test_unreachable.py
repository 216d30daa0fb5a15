"""One of two live systems does not answer: it is left out, and the other follows commits, waves and gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.cli.progress import _log_passes
from gitops_agent.drivers.api import ExecResult, Plugin
from gitops_agent.model.control import freezes
from gitops_agent.model.key import Kind
from gitops_agent.model.passes import PassResult, is_settled
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.faults import Crash, FaultInjector

from .repository import key
from .test_handover import HERE, READY_NEVER, THERE, TwoPlaces, of
from .test_handover import world as world

HERE_NAMES = [f"h{number}" for number in range(6)]
THERE_NAMES = [f"a{number}" for number in range(6)]  # first in every order
FREE: dict[str, Any] = {"massDelete": {"min": 100}}
NOT_ASKED = "a live system could not be asked"


def fleet(here: str = "old", there: str = "old", **more: Any) -> dict[str, dict[str, Any]]:
    """Six agents in each of two places, with the commands that they run."""
    at = {**dict.fromkeys(HERE_NAMES, (HERE, here)), **dict.fromkeys(THERE_NAMES, (THERE, there))}
    return {
        name: {"runtime": {"driver": place, "command": [command]}, **more} for name, (place, command) in at.items()
    }


@pytest.fixture
def started(world: TwoPlaces) -> TwoPlaces:
    world.repository.commit(fleet())
    assert world.converge().phase is Phase.CONVERGED
    return world


@pytest.fixture
def dark(started: TwoPlaces) -> Iterator[TwoPlaces]:
    """The same, and the second place has not answered for a while."""
    go_dark(started)
    go(started, 2)
    before = dict(started.there.live)
    yield started
    assert all(started.there.live.get(each) for each in before if started.there._unreachable), "nothing was ended"


def go_dark(world: TwoPlaces) -> None:
    world.there.unreachable_next(10_000, "no route to host")


def go(world: TwoPlaces, passes: int = 40) -> PassResult:
    """Some passes, with the time in between that each asks for."""
    for _ in range(passes):
        result = world.run()
        world.clock.advance(min(30.0, max(0.01, 1.0 if result.wait is None else result.wait)))
    return result


def running(world: TwoPlaces, command: str) -> set[str]:
    live = {**world.live.live, **world.there.live}
    things = ((each.agent.name, thing) for each, thing in live.items() if each.kind == Kind.RUNTIME)
    return {name for name, thing in things if thing.fields.value["command"] == [command]}


def headline(world: TwoPlaces) -> str:
    head = world.journal.state().head
    assert head is not None
    return head.now.cause if head.now is not None else head.summary


class Lines:
    """A log that keeps what it is given: level, event and what else is said."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **said: self.kept.append((level, event, said))


def test_the_log_says_once_what_cannot_be_asked_and_why(started: TwoPlaces) -> None:
    lines = Lines()
    passed = _log_passes(lines)

    def warned() -> list[dict[str, Any]]:
        return [said for level, event, said in lines.kept if (level, event) == ("warning", NOT_ASKED)]

    go_dark(started)
    for _ in range(3):
        passed(started.run())
    assert warned() == [{"driver": THERE, "reason": "no route to host; scripted by the test"}], "with the way out"
    started.there.heal()
    passed(started.run())
    go_dark(started)
    passed(started.run())
    assert len(warned()) == 2, "it answered meanwhile"


def test_an_action_that_failed_is_a_warning_in_the_log(started: TwoPlaces) -> None:
    lines = Lines()
    started.there.fail_next()
    started.repository.commit(fleet(there="new"))
    passed = _log_passes(lines)
    while not any(said.get("result") == "Failed" for _, _, said in lines.kept):
        passed(started.run())
        started.clock.advance(1.0)
    assert {level for level, event, said in lines.kept if said.get("result") == "Failed"} == {"warning"}
    assert {level for level, event, said in lines.kept if said.get("result") == "Done"} <= {"info"}


# -- commits


def test_a_commit_for_the_other_place_rolls_out_and_says_what_is_open(dark: TwoPlaces) -> None:
    sha = dark.repository.commit(fleet(here="new"))
    go(dark)
    assert running(dark, "new") == set(HERE_NAMES)
    record = dark.record(sha)
    assert (record.phase, record.cause) == (Phase.DEGRADED, "Inherited"), "the changes of the commit itself are in"
    assert record.summary.startswith("6 changed; inherited: acme/a0 ObserveFailed")
    assert f"{THERE} does not answer" in record.summary
    assert f"{THERE} does not answer" in headline(dark)
    dark.there.heal()
    assert dark.converge().phase is Phase.CONVERGED
    assert "does not answer" not in headline(dark)
    assert "does not answer" not in dark.record(sha).summary


def test_a_commit_for_both_reaches_the_one_that_answers_and_ends_when_the_other_does(dark: TwoPlaces) -> None:
    sha = dark.repository.commit(fleet("new", "new"))
    before = dict(dark.there.live)
    go(dark)
    assert running(dark, "new") == set(HERE_NAMES)
    assert dark.there.live == before
    assert dark.phase(sha) is Phase.RECONCILING, "agents that it changes are out of sight"
    assert headline(dark) == f"waiting for 6 of 12 agents; {THERE} does not answer"
    dark.there.heal()
    found = []
    while not is_settled(result := dark.run()):
        found.append(len(running(dark, "new")) - len(HERE_NAMES))
        dark.clock.advance(max(0.01, result.wait or 1.0))
    assert sorted(set(found) - {0}) == [1, 2, 6], "they follow in waves of their own"
    assert dark.phase(sha) is Phase.CONVERGED
    assert running(dark, "new") == {*HERE_NAMES, *THERE_NAMES}


def test_a_commit_on_top_rolls_out_too_and_what_is_owed_stays_open(dark: TwoPlaces) -> None:
    first = dark.repository.commit(fleet("new", "new"))
    go(dark)
    second = dark.repository.commit(fleet("newer", "new"))
    go(dark)
    assert running(dark, "newer") == set(HERE_NAMES)
    assert (dark.phase(first), dark.phase(second)) == (Phase.SUPERSEDED, Phase.RECONCILING)
    dark.there.heal()
    assert dark.converge().phase is Phase.CONVERGED
    assert running(dark, "new") == set(THERE_NAMES)


def test_new_agents_are_made_where_that_can_be_seen(dark: TwoPlaces) -> None:
    more = {
        "h9": {"runtime": {"driver": HERE, "command": ["old"]}},
        "a9": {"runtime": {"driver": THERE, "command": ["old"]}},
    }
    sha = dark.repository.commit({**fleet(), **more})
    go(dark, 5)
    assert of("h9", HERE) in dark.live.live
    assert of("a9", THERE) not in dark.there.live
    assert dark.phase(sha) is Phase.RECONCILING
    dark.there.heal()
    assert dark.converge().phase is Phase.CONVERGED
    assert of("a9", THERE) in dark.there.live


def test_what_goes_with_a_commit_goes_where_it_can_be_seen(dark: TwoPlaces) -> None:
    left = {name: spec for name, spec in fleet().items() if name not in ("a0", "h0", "h1")}
    sha = dark.repository.commit(left, policy=FREE)
    go(dark)
    assert of("h0", HERE) not in dark.live.live
    assert of("h1", HERE) not in dark.live.live
    assert of("a0", THERE) in dark.there.live
    assert dark.phase(sha) is Phase.RECONCILING
    ready = dark.condition("a0")
    assert ready is not None
    assert ready.reason == "ObserveFailed", "in Git no more, and nobody knows whether it runs"
    dark.there.heal()
    assert dark.converge().phase is Phase.CONVERGED
    assert of("a0", THERE) not in dark.there.live
    assert key("a0") not in dark.journal.state().status.agents


def test_no_time_runs_while_an_agent_is_out_of_sight(started: TwoPlaces) -> None:
    slow = {"runtime": {"driver": THERE, "command": ["old"]}, "rollout": {"healthTimeout": "20s"}, **READY_NEVER}
    sha = started.repository.commit({**fleet(), "a9": slow})
    started.run()
    started.clock.advance(10)
    go_dark(started)
    for _ in range(3):
        started.run()
        started.clock.advance(1000)
    started.there.heal()
    started.run()
    assert started.phase(sha) is Phase.RECONCILING, "it has its whole time from now on"
    started.clock.advance(10)
    started.run()
    assert started.phase(sha) is Phase.RECONCILING
    started.clock.advance(11)
    started.run()
    assert started.phase(sha) is Phase.DEGRADED


def test_a_new_agent_is_not_given_up_while_it_is_out_of_sight(started: TwoPlaces) -> None:
    policy = {"provisioning": {"deadline": "60s", "onTimeout": "Compensate"}}
    never = {"runtime": {"driver": THERE, "command": ["old"]}, **READY_NEVER}
    started.repository.commit(fleet(), policy=policy)
    started.converge()
    started.repository.commit({**fleet(), "a9": never})
    started.run()
    started.clock.advance(30)
    go_dark(started)
    for _ in range(10):
        started.run()
        started.clock.advance(30)
    started.there.heal()
    started.run()
    started.clock.advance(50)
    started.run()
    assert of("a9", THERE) in started.there.live, "it has its whole time from now on"
    assert not started.journal.state().rollout.given_up
    started.clock.advance(15)
    started.run()
    assert of("a9", THERE) not in started.there.live


def test_drift_is_repaired_where_it_can_be_seen(dark: TwoPlaces) -> None:
    dark.live.remove(of("h0", HERE))
    dark.there.remove(of("a0", THERE))
    go(dark, 3)
    assert of("h0", HERE) in dark.live.live
    assert of("a0", THERE) not in dark.there.live
    dark.there.heal()
    go(dark, 3)
    assert of("a0", THERE) in dark.there.live


# -- gates


def test_a_commit_that_fails_is_found_by_a_canary_that_can_be_seen(dark: TwoPlaces) -> None:
    bad = fleet("new", "new", rollout={"healthTimeout": "20s"}, **READY_NEVER)
    sha = dark.repository.commit(bad)
    dark.until(lambda: dark.phase(sha) is Phase.DEGRADED, passes=300)
    assert len(running(dark, "new")) == 1
    dark.there.heal()
    go(dark)
    assert len(running(dark, "new")) == 1, "the rollout is held there too"


def test_a_gate_that_failed_does_not_open_because_nobody_sees_what_failed(started: TwoPlaces) -> None:
    bad = fleet("new", "new", rollout={"healthTimeout": "20s"}, **READY_NEVER)
    sha = started.repository.commit(bad)
    started.until(lambda: started.phase(sha) is Phase.DEGRADED, passes=300)
    go_dark(started)
    go(started, 80)
    assert started.phase(sha) is Phase.DEGRADED
    assert running(started, "new") == {"a0"}
    assert [each.commit for each in started.journal.state().rollout.failed_trees] == [sha]
    started.there.heal()
    go(started)
    assert running(started, "new") == {"a0"}


def test_a_gate_that_failed_opens_when_what_failed_is_seen_to_be_well(started: TwoPlaces) -> None:
    command = {"probes": {"readiness": {"exec": {"command": ["check"]}}}}
    sha = started.repository.commit(fleet("new", "new", rollout={"healthTimeout": "20s"}, **command))
    started.there.exec = lambda *_: ExecResult(False, "not yet")  # type: ignore[method-assign]
    started.until(lambda: started.phase(sha) is Phase.DEGRADED, passes=300)
    go_dark(started)
    go(started, 20)
    del started.there.exec
    started.there.heal()
    started.until(lambda: started.phase(sha) is Phase.CONVERGED, passes=300)
    assert running(started, "new") == {*HERE_NAMES, *THERE_NAMES}


def test_a_canary_that_stays_out_of_sight_holds_no_other(started: TwoPlaces) -> None:
    sha = started.repository.commit(fleet("new", "new"), policy={"rollout": {"bake": "60s"}})
    started.until(lambda: running(started, "new") == {"a0"})
    go_dark(started)
    go(started)
    assert running(started, "new") == {"a0", *HERE_NAMES}
    assert started.phase(sha) is Phase.RECONCILING
    started.there.heal()
    assert started.converge().phase is Phase.CONVERGED
    assert running(started, "new") == {*HERE_NAMES, *THERE_NAMES}


def test_a_moment_without_an_answer_costs_no_canary(started: TwoPlaces) -> None:
    sha = started.repository.commit(fleet("new", "new"), policy={"rollout": {"bake": "60s"}})
    started.until(lambda: running(started, "new") == {"a0"})
    before = started.journal.state().rollout.rollout
    assert before is not None
    for _ in range(5):
        started.there.unreachable_next(1)
        started.run()
        assert started.journal.state().rollout.rollout == replace(before, passed_at=None)
        started.run()
    assert running(started, "new") == {"a0"}
    assert started.converge().phase is Phase.CONVERGED
    assert started.phase(sha) is Phase.CONVERGED


def test_what_passed_its_gate_and_is_lost_from_sight_holds_no_other(started: TwoPlaces) -> None:
    started.repository.commit(fleet("new", "new"))
    started.until(lambda: len(running(started, "new")) > 1)
    go_dark(started)
    go(started)
    assert set(HERE_NAMES) <= running(started, "new")
    started.there.heal()
    assert started.converge().phase is Phase.CONVERGED
    assert running(started, "new") == {*HERE_NAMES, *THERE_NAMES}


def test_what_cannot_be_looked_at_and_is_on_no_record_holds_its_agent_and_no_other(started: TwoPlaces) -> None:
    started.there.hide(key("h0"), message="no right to look at it")
    started.there.live[of("h0", THERE)] = started.there.live[of("a0", THERE)]
    go(started, 2)
    ready = started.condition("h0")
    assert ready is not None
    assert (ready.reason, ready.message) == ("ObserveFailed", "no right to look at it")
    states = {each.driver: each.state for each in started.status("h0").resources}
    assert states[HERE] == "Running", "what can be seen is shown"
    sha = started.repository.commit(fleet(here="new"))
    go(started)
    assert running(started, "new") == {*HERE_NAMES} - {"h0"}
    assert started.phase(sha) is Phase.RECONCILING
    started.there.heal()
    started.until(lambda: "h0" in running(started, "new"))


def test_what_depends_on_an_agent_out_of_sight_is_no_canary(world: TwoPlaces) -> None:
    def changed(command: str) -> dict[str, dict[str, Any]]:
        made = fleet(here=command)
        made["h0"]["rollout"] = {"dependsOn": ["acme/h1"]}
        made["h1"]["rollout"] = {"dependsOn": ["acme/a0"], "canary": True}
        return made

    world.repository.commit(changed("old"))
    assert world.converge().phase is Phase.CONVERGED
    go_dark(world)
    go(world, 3)
    sha = world.repository.commit(changed("new"))
    go(world)
    assert running(world, "new") == {*HERE_NAMES} - {"h0", "h1"}
    assert world.phase(sha) is Phase.RECONCILING
    assert headline(world) == f"waiting for 2 of 12 agents; {THERE} does not answer"
    waiting = world.condition("h1", ConditionType.RECONCILING)
    assert waiting is not None
    assert waiting.reason == "WaitingForDependency"
    world.there.heal()
    assert world.converge().phase is Phase.CONVERGED
    assert running(world, "new") == {*HERE_NAMES}


def test_a_canary_keeps_its_trial_when_what_it_depends_on_goes_out_of_sight(world: TwoPlaces) -> None:
    def changed(command: str, **more: Any) -> dict[str, dict[str, Any]]:
        made = fleet(here=command)
        for name in HERE_NAMES[:5]:
            other = "a0" if name == "h0" else "h5"
            made[name] |= {"rollout": {"healthTimeout": "20s", "dependsOn": [f"acme/{other}"]}, **more}
        return {**made, "h5": fleet()["h5"]}

    world.repository.commit(changed("old"))
    assert world.converge().phase is Phase.CONVERGED
    sha = world.repository.commit(changed("new", **READY_NEVER))
    world.until(lambda: running(world, "new") == {"h0"})
    go_dark(world)
    world.until(lambda: world.phase(sha) is Phase.DEGRADED, passes=300)
    assert running(world, "new") == {"h0"}


def test_a_verdict_waits_for_one_more_look(started: TwoPlaces) -> None:
    sha = started.repository.commit(fleet(here="new"))
    phases = set()
    while started.phase(sha) is not Phase.CONVERGED:
        started.there.unreachable_next(1)
        started.run()
        phases.add(started.phase(sha))
        phases.add((result := started.run()).phase)
        started.clock.advance(max(0.01, result.wait or 1.0))
    assert phases == {Phase.RECONCILING, Phase.CONVERGED}


def test_agents_leave_a_place_that_does_not_answer_in_waves(dark: TwoPlaces) -> None:
    dark.repository.commit(fleet(), policy=FREE)
    go(dark, 5)
    moved = {name: {"runtime": {"driver": HERE, "command": ["old"]}} for name in (*HERE_NAMES, *THERE_NAMES)}
    sha = dark.repository.commit(moved)
    go(dark)
    assert {of(name, HERE) for name in THERE_NAMES} <= dark.live.live.keys()
    assert dark.phase(sha) is Phase.RECONCILING, "what they left behind has still to go"
    assert f"{THERE} does not answer" in headline(dark)
    dark.there.heal()
    assert dark.converge().phase is Phase.CONVERGED
    assert not dark.there.live


def test_an_agent_that_must_not_run_twice_stays_and_holds_no_other(dark: TwoPlaces) -> None:
    moved = fleet("new")
    moved["a0"] = {"runtime": {"driver": HERE, "command": ["new"], "exclusive": True}}
    sha = dark.repository.commit(moved, policy=FREE)
    go(dark)
    assert of("a0", HERE) not in dark.live.live, "it may run in the other place"
    assert running(dark, "new") == set(HERE_NAMES)
    assert dark.phase(sha) is Phase.RECONCILING
    dark.there.heal()
    assert dark.converge().phase is Phase.CONVERGED
    assert of("a0", HERE) in dark.live.live


# -- agents that have left a place which does not answer


@pytest.fixture
def left(dark: TwoPlaces) -> TwoPlaces:
    """The second place does not answer, and ``a0`` has moved away from it."""
    dark.repository.commit({**fleet(), "a0": HOME}, policy=FREE)
    go(dark)
    assert dark.at("a0") == {HERE, THERE}
    return dark


HOME: dict[str, Any] = {"runtime": {"driver": HERE, "command": ["old"]}}


@pytest.mark.parametrize("how", ["Stopped", "Retired", "deleted"])
def test_it_ends_where_it_runs_now_and_later_where_it_ran(left: TwoPlaces, how: str) -> None:
    rest = {name: spec for name, spec in fleet().items() if name != "a0"}
    sha = left.repository.commit(rest if how == "deleted" else {**rest, "a0": {**HOME, "lifecycle": how}})
    go(left)
    assert left.at("a0") == {THERE}
    assert left.phase(sha) is Phase.RECONCILING, "what it left behind has still to go"
    assert f"{THERE} does not answer" in headline(left)
    left.there.heal()
    assert left.converge().phase is Phase.CONVERGED
    assert left.at("a0") == set()


# -- an agent on its way to a place that stops answering


@pytest.fixture
def moving(started: TwoPlaces) -> TwoPlaces:
    """The second place stopped answering while ``h0`` was on its way there, and not Ready there yet."""
    started.repository.commit(
        {**fleet(), "h0": {"runtime": {"driver": THERE, "command": ["old"]}, **READY_NEVER}}, policy=FREE
    )
    started.until(lambda: started.at("h0") == {HERE, THERE})
    go_dark(started)
    go(started, 3)
    return started


def test_it_is_kept_up_where_it_can_be_seen_until_the_new_one_is_ready(moving: TwoPlaces) -> None:
    moving.live.remove(of("h0", HERE))
    moving.there.remove(of("h0", THERE))
    go(moving, 5)
    assert moving.at("h0") == {HERE}
    moving.repository.commit({**fleet(), "h0": {"runtime": {"driver": THERE, "command": ["old"]}}})
    moving.there.heal()
    assert moving.converge().phase is Phase.CONVERGED
    assert moving.at("h0") == {THERE}


def test_one_that_must_not_run_twice_is_not_started_while_it_may_run_there(moving: TwoPlaces) -> None:
    only = {"runtime": {"driver": THERE, "command": ["old"], "exclusive": True}, **READY_NEVER}
    moving.repository.commit({**fleet(), "h0": only})
    moving.live.remove(of("h0", HERE))
    go(moving, 5)
    assert moving.at("h0") == {THERE}


# -- guards


def test_agents_out_of_sight_count_as_deleted_with_the_others(dark: TwoPlaces) -> None:
    left = {name: spec for name, spec in fleet().items() if name not in ("a0", "a1", "h0", "h1")}
    sha = dark.repository.commit(left)
    go(dark, 5)
    assert dark.phase(sha) is Phase.BLOCKED, "4 of 12 are more than 30 %"
    assert of("h0", HERE) in dark.live.live
    few = {name: spec for name, spec in fleet().items() if name not in ("a0", "h0")}
    sha = dark.repository.commit(few)
    go(dark)
    assert of("h0", HERE) not in dark.live.live
    assert dark.phase(sha) is Phase.RECONCILING


def test_agents_out_of_sight_count_as_changed_with_the_others(dark: TwoPlaces) -> None:
    policy = {"massChange": {"min": 3, "ratio": 0.6}}
    dark.repository.commit(fleet(), policy=policy)
    go(dark, 5)
    assert dark.phase(dark.repository.commit(fleet(here="new"))) is None
    go(dark)
    assert running(dark, "new") == set(HERE_NAMES), "6 of 12 may be changed"
    sha = dark.repository.commit(fleet("newer", "newer"))
    go(dark)
    assert dark.phase(sha) is Phase.BLOCKED, "12 of 12 may not, whether they can be seen or not"
    assert running(dark, "newer") == set()


# -- many that are gone at once


@pytest.fixture
def first(world: TwoPlaces) -> TwoPlaces:
    """All were gone at once, and the first of them has just been started again."""
    slow = {name: {**spec, "runtime": {**spec["runtime"], "minUptime": "10s"}} for name, spec in fleet().items()}
    world.repository.commit({name: {**spec, "rollout": {"healthTimeout": "20s"}} for name, spec in slow.items()})
    assert world.converge().phase is Phase.CONVERGED
    world.clock.advance(3600)
    world.run()
    for place in (world.live, world.there):
        place.lose([each for each in place.live if each.kind == Kind.RUNTIME])
    ((action, _),) = world.run().executed
    assert action.key == of("a0", THERE)
    return world


def is_frozen(world: TwoPlaces) -> bool:
    return bool(freezes(world.journal.state().control.controls, world.clock.now()))


def test_one_that_came_back_first_and_is_out_of_sight_keeps_no_other_waiting(first: TwoPlaces) -> None:
    go_dark(first)
    back = []
    for _ in range(20):
        first.run()
        back.append(len(running(first, "old") & set(HERE_NAMES)))
        first.clock.advance(5)
    assert sorted(set(back)) == [0, 1, 6], "another one goes first"
    assert not is_frozen(first)
    first.there.heal()
    assert first.converge().phase is Phase.CONVERGED
    assert running(first, "old") == {*HERE_NAMES, *THERE_NAMES}


def test_whether_the_first_is_late_is_not_said_without_a_look_at_it(first: TwoPlaces) -> None:
    first.clock.advance(21)
    first.there.unreachable_next(1)
    first.run()
    assert not is_frozen(first)
    assert first.converge().phase is Phase.CONVERGED, "it had become Ready"


# -- places that nothing names, and what a crash left


class Remote(TwoPlaces):
    """The second place is no part of this machine: it is asked only where something names it."""

    def plugins(self) -> list[Plugin]:
        return [self.live.plugin, replace(self.there.plugin, local=False)]


def test_a_place_whose_last_agent_left_may_be_taken_down(tmp_path: Path) -> None:
    world = Remote(tmp_path / "state")
    world.repository.commit(fleet(), policy=FREE)
    world.converge()
    world.repository.commit({name: fleet()[name] for name in HERE_NAMES}, policy=FREE)
    assert world.converge().phase is Phase.CONVERGED
    go_dark(world)
    asked = world.there.calls["observe"]
    sha = world.repository.commit({name: fleet("new")[name] for name in HERE_NAMES}, policy=FREE)
    assert world.converge().phase is Phase.CONVERGED
    assert world.phase(sha) is Phase.CONVERGED
    assert world.there.calls["observe"] == asked
    world.run("h0")
    assert world.there.calls["observe"] == asked
    world.shut()


def test_a_restart_without_open_intents_is_over_though_a_place_does_not_answer(dark: TwoPlaces) -> None:
    dark.boot()
    dark.run()
    assert dark.stages.recovery.finished, "passes may be about some agents again"


def test_an_interrupted_action_in_a_place_that_does_not_answer_stays_open(started: TwoPlaces) -> None:
    started.there.remove(of("a0", THERE))
    started.boot(FaultInjector("apply:after"))
    with pytest.raises(Crash):
        started.run()
    started.boot()
    go_dark(started)
    go(started, 3)
    (left,) = started.journal.state().reconcile.open_intents.values()
    assert left.action.key == of("a0", THERE), "neither done nor given up: nobody can tell"
    assert not started.stages.recovery.finished
    started.there.heal()
    started.run()
    assert not started.journal.state().reconcile.open_intents
    assert started.stages.recovery.finished
    assert started.there.starts[of("a0", THERE)] == 2
