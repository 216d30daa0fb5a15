"""An agent moves to another driver: the new one is Ready before the old one goes, unless it is exclusive."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import Action, AgentKey, Applied, Compilation, ExecResult, Plugin, Resource
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import Kind, ResourceKey
from gitops_agent.model.passes import is_settled
from gitops_agent.model.plan import Verb
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.faults import Crash, FaultInjector, crash
from gitops_agent.testing.memory_driver import MemoryDriver

from .repository import key
from .test_crashes import check, moments
from .world import World

HERE, THERE = "here", "there"
READY_NEVER: dict[str, Any] = {"probes": {"readiness": {"exec": {"command": ["false"]}}}}


class Placed(MemoryDriver):
    """A live system that runs the agents which name it, each under its own name; ``seen`` is called after each
    effect."""

    seen: Callable[[], None] = staticmethod(lambda: None)

    def compile(self, asked: Compilation) -> tuple[Resource, ...]:
        if asked.document.spec.runtime.driver != self.name:
            return ()
        return tuple(replace(each, key=each.key._replace(id=self.name)) for each in super().compile(asked))

    def apply(self, action: Action, key: str) -> Applied:
        done = super().apply(action, key)
        self.seen()
        return done

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: Any = None) -> ExecResult:
        return ExecResult(command[0] != "false" and of(agent.name, self.name) in self.live, "asked")


def of(name: str, place: str, kind: str = Kind.RUNTIME) -> ResourceKey:
    return ResourceKey(key(name), kind, place)


class TwoPlaces(World):
    """A world with two live systems. ``places``: in how many each agent ran, after each effect."""

    def __init__(self, folder: Path) -> None:
        self.there = Placed(THERE)
        self.places: list[dict[str, set[str]]] = []
        super().__init__(folder, lambda clock: Placed(HERE, clock))  # type: ignore[arg-type]
        self.live.seen = self.there.seen = self.look  # type: ignore[attr-defined]

    def plugins(self) -> list[Plugin]:
        return [self.live.plugin, self.there.plugin]

    def look(self) -> None:
        runs: dict[str, set[str]] = {}
        for driver in (self.live, self.there):
            for each in driver.live:
                if each.kind == Kind.RUNTIME:
                    runs.setdefault(each.agent.name, set()).add(driver.name)
        self.places.append(runs)

    @property
    def running(self) -> Any:
        here = self.live.live
        self.live.live = {**here, **self.there.live}
        try:
            return super().running
        finally:
            self.live.live = here

    def wanted_on_record(self, sha: str) -> Any:
        agents = self.repository.load(self.repository.revision(sha)).agents.values()
        return {each.key: each.fields for agent in agents for each in agent.resources if not each.stopped}

    def put(self, place: str, *names: str, policy: Any = None, **spec: Any) -> str:
        """A commit in which some agents are in one place."""
        runtime = {"driver": place, **spec.pop("runtime", {})}
        one = {"rollout": {"healthTimeout": "20s"}, **spec, "runtime": runtime}
        return self.repository.commit(dict.fromkeys(names or ("a",), one), policy=policy)

    def at(self, name: str = "a") -> set[str]:
        self.look()
        return self.places.pop().get(name, set())

    def until(self, condition: Callable[[], bool], passes: int = 60) -> None:
        """Passes until something holds."""
        for _ in range(passes):
            result = self.run()
            if condition():
                return
            self.clock.advance(max(0.01, 1.0 if result.wait is None else result.wait))
        raise AssertionError("it never came true")

    @property
    def ran(self) -> list[set[str]]:
        """Where ``a`` ran after each effect since the first move."""
        return [each.get("a", set()) for each in self.places]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TwoPlaces]:
    world = TwoPlaces(tmp_path / "state")
    yield world
    world.shut()


@pytest.fixture
def started(world: TwoPlaces) -> TwoPlaces:
    world.put(HERE)
    assert world.converge().phase is Phase.CONVERGED
    world.places.clear()
    return world


def verbs(world: TwoPlaces) -> list[tuple[str, str]]:
    """What was done to the two live systems, in order."""
    record = world.journal.state()
    assert record is not None
    return [(str(verb), str(each)) for driver in (world.live, world.there) for _, verb, each in driver.applied]


# -- there and back


def test_the_new_one_is_ready_before_the_old_one_goes(started: TwoPlaces) -> None:
    sha = started.put(THERE, policy={"rollout": {"bake": "10s"}})
    began = started.clock.monotonic()
    started.until(lambda: started.at() == {HERE, THERE})
    assert started.phase(sha) is Phase.RECONCILING
    started.until(lambda: started.at() == {THERE})
    assert started.clock.monotonic() - began >= 10.0, "the old one is there for the bake"
    assert started.phase(sha) is Phase.RECONCILING
    assert started.converge().phase is Phase.CONVERGED
    assert all(started.ran), "never a moment without it"
    assert [each for _, _, each in started.live.applied[-2:]] == [of("a", HERE), of("a", HERE, "config")]
    assert not started.live.live
    check(started, sha)


def test_what_is_left_to_do_is_said_in_plain_words(started: TwoPlaces) -> None:
    sha = started.put(THERE, policy={"rollout": {"bake": "10s"}})
    started.until(lambda: started.at() == {HERE, THERE})
    said = started.condition("a", ConditionType.RECONCILING)
    assert said is not None
    assert (said.reason, said.message) == ("HandoverWaits", "runs on here until the one on there is ready")
    assert [each.summary for each in started.record(sha).findings if each.code == "HandoverWaits"] == [
        said.message
    ]
    assert not is_settled(started.run()), "once does not end before the old one is gone"
    assert started.converge().phase is Phase.CONVERGED
    assert started.record(sha).changed == 1
    assert started.condition("a", ConditionType.RECONCILING) is None


def test_an_exclusive_one_never_runs_twice(started: TwoPlaces) -> None:
    sha = started.put(THERE, runtime={"exclusive": True})
    assert started.converge().phase is Phase.CONVERGED
    assert all(len(each) <= 1 for each in started.ran)
    check(started, sha)
    back = started.put(HERE, runtime={"exclusive": True})
    assert started.converge().phase is Phase.CONVERGED
    assert all(len(each) <= 1 for each in started.ran)
    check(started, back)


def test_an_exclusive_one_waits_for_an_old_one_that_does_not_go(started: TwoPlaces) -> None:
    started.live.fail_always("it hangs", key=of("a", HERE))
    sha = started.put(THERE, runtime={"exclusive": True})
    assert started.converge().phase is Phase.DEGRADED
    assert started.at() == {HERE}
    started.live.heal()
    started.until(lambda: started.phase(sha) is Phase.CONVERGED)
    assert all(len(each) <= 1 for each in started.ran)


def test_back_before_it_was_there(started: TwoPlaces) -> None:
    started.put(THERE, policy={"rollout": {"bake": "10s"}})
    started.until(lambda: started.at() == {HERE, THERE})
    back = started.put(HERE)
    assert started.converge().phase is Phase.CONVERGED
    assert (started.live.starts[of("a", HERE)], started.there.starts[of("a", THERE)]) == (1, 1)
    check(started, back)


def test_both_go_when_the_document_leaves_git(started: TwoPlaces) -> None:
    started.put(THERE, **READY_NEVER)
    started.until(lambda: started.at() == {HERE, THERE})
    started.repository.commit({"b": {"runtime": {"driver": HERE}}})
    assert started.converge().phase is Phase.CONVERGED
    assert started.at() == set()
    check(started, started.repository.head or "")


def test_stopped_elsewhere_nothing_is_waited_for(started: TwoPlaces) -> None:
    sha = started.put(THERE, lifecycle="Stopped")
    assert started.converge().phase is Phase.CONVERGED
    assert started.at() == set()
    check(started, sha)


# -- when the new one is not Ready


def test_the_old_one_stays_when_the_new_one_never_becomes_ready_and_a_revert_ends_the_new_one(
    started: TwoPlaces,
) -> None:
    bad = started.put(THERE, **READY_NEVER)
    assert started.converge().phase is Phase.DEGRADED
    for _ in range(3):
        started.clock.advance(600.0)
        started.run()
    assert started.at() == {HERE, THERE}
    assert any(each.code == "HandoverWaits" for each in started.record(bad).findings)
    good = started.put(HERE)
    assert started.converge().phase is Phase.CONVERGED
    assert started.live.starts[of("a", HERE)] == 1, "left as it is, without a restart"
    assert all(HERE in each for each in started.ran)
    check(started, good)


def test_the_old_one_stays_when_the_new_one_cannot_be_made(started: TwoPlaces) -> None:
    started.there.fail_always("no room", key=of("a", THERE))
    started.put(THERE)
    assert started.converge().phase is Phase.DEGRADED
    assert started.at() == {HERE}
    started.there.heal()
    started.until(lambda: started.at() == {THERE})
    assert all(started.ran)


def test_the_old_one_is_brought_back_while_the_new_one_is_not_ready(started: TwoPlaces) -> None:
    started.put(THERE, **READY_NEVER)
    started.until(lambda: started.at() == {HERE, THERE})
    for _ in range(2):
        started.live.remove(of("a", HERE))
        started.clock.advance(120.0)
        started.until(lambda: started.at() == {HERE, THERE})
    drifted = started.run().record
    assert drifted is not None
    assert started.converge().phase is Phase.DEGRADED
    good = started.put(HERE)
    assert started.converge().phase is Phase.CONVERGED
    check(started, good)


def test_an_old_one_that_cannot_be_brought_back_keeps_nothing(started: TwoPlaces) -> None:
    started.there.fail_next(1, key=of("a", THERE))
    sha = started.put(THERE)
    started.run()
    started.live.remove(of("a", HERE))
    started.live.fail_always("it is broken", key=of("a", HERE))
    started.until(lambda: started.at() == {THERE})
    assert started.converge().phase is Phase.CONVERGED
    check(started, sha)


def test_a_half_made_one_is_not_brought_back(started: TwoPlaces) -> None:
    started.put(THERE, **READY_NEVER)
    started.until(lambda: started.at() == {HERE, THERE})
    started.there.remove(of("a", THERE))
    good = started.put(HERE)
    assert started.converge().phase is Phase.CONVERGED
    assert started.there.starts[of("a", THERE)] == 1
    check(started, good)


def test_the_death_of_the_old_one_says_nothing_about_the_new_one(started: TwoPlaces) -> None:
    sha = started.put(THERE, policy={"rollout": {"bake": "10s"}}, runtime={"minUptime": "5s"})
    started.until(lambda: started.at() == {HERE, THERE})
    started.live.remove(of("a", HERE))
    assert started.converge().phase is Phase.CONVERGED
    check(started, sha)


# -- with what else may be


def test_a_freeze_in_the_middle_changes_nothing(started: TwoPlaces) -> None:
    sha = started.put(THERE, policy={"rollout": {"bake": "10s"}})
    started.until(lambda: started.at() == {HERE, THERE})
    started.journal.control(Control(ControlVerb.FREEZE, "*", "ann", started.clock.now(), "wait"))
    started.converge()
    started.clock.advance(600.0)
    started.run()
    assert started.at() == {HERE, THERE}
    started.journal.control(Control(ControlVerb.UNFREEZE, "*", "ann", started.clock.now(), "go"))
    assert started.converge().phase is Phase.CONVERGED
    check(started, sha)


def test_nothing_is_ended_while_the_new_place_does_not_answer(started: TwoPlaces) -> None:
    sha = started.put(THERE, policy={"rollout": {"bake": "10s"}})
    started.until(lambda: started.at() == {HERE, THERE})
    started.clock.advance(60.0)
    started.there.unreachable_next(4)
    for _ in range(2):
        started.run()
        assert started.at() == {HERE, THERE}
    assert started.converge().phase is Phase.CONVERGED
    check(started, sha)


def test_it_leaves_a_place_that_does_not_answer_and_what_is_left_there_goes_later(started: TwoPlaces) -> None:
    sha = started.put(THERE)
    started.live.unreachable_next(1000)
    started.until(lambda: started.at() == {HERE, THERE})
    for _ in range(3):
        started.clock.advance(60.0)
        started.run()
    assert started.at() == {HERE, THERE}
    assert started.phase(sha) is Phase.RECONCILING, "nothing is concluded about what was not seen"
    started.live.heal()
    assert started.converge().phase is Phase.CONVERGED
    assert started.live.starts[of("a", HERE)] == 1
    check(started, sha)


NAMES = [f"a{number:02}" for number in range(10)]


def test_a_move_goes_through_waves_and_stops_at_the_canary(world: TwoPlaces) -> None:
    free = {"massDelete": {"min": 100}}
    world.put(HERE, *NAMES, policy=free)
    assert world.converge().phase is Phase.CONVERGED
    world.put(THERE, *NAMES, **READY_NEVER)
    assert world.converge().phase is Phase.DEGRADED
    assert [world.at(name) for name in NAMES].count({HERE}) == 9
    assert [world.at(name) for name in NAMES].count({HERE, THERE}) == 1
    sha = world.put(THERE, *NAMES)
    assert world.converge(200).phase is Phase.CONVERGED
    assert all(runs.get(name) for runs in world.places[20:] for name in NAMES)
    check(world, sha)


def test_a_mass_move_needs_approval_and_taking_it_back_in_the_middle_does_not(world: TwoPlaces) -> None:
    world.put(HERE, *NAMES, policy={"rollout": {"bake": "10s", "canary": 100, "second": "100%"}})
    assert world.converge().phase is Phase.CONVERGED
    sha = world.put(THERE, *NAMES)
    assert world.converge().phase is Phase.BLOCKED
    assert all(world.at(name) == {HERE} for name in NAMES)
    digest = world.record(sha).plan
    world.journal.control(Control(ControlVerb.APPROVE, digest, "bob", world.clock.now(), "moving"))
    world.until(lambda: all(world.at(name) == {HERE, THERE} for name in NAMES))
    back = world.put(HERE, *NAMES)
    assert world.converge().phase is Phase.CONVERGED, "each still runs where it was"
    assert all(world.live.starts[of(name, HERE)] == 1 for name in NAMES)
    check(world, back)


def test_an_approved_mass_move_ends_without_another_approval(world: TwoPlaces) -> None:
    world.put(HERE, *NAMES, policy={"rollout": {"bake": "10s"}})
    assert world.converge().phase is Phase.CONVERGED
    sha = world.put(THERE, *NAMES)
    assert world.converge().phase is Phase.BLOCKED
    digest = world.record(sha).plan
    world.journal.control(Control(ControlVerb.APPROVE, digest, "bob", world.clock.now(), "moving"))
    assert world.converge(200).phase is Phase.CONVERGED
    check(world, sha)


# -- killed anywhere


def moved(folder: Path, injector: FaultInjector, *, exclusive: bool) -> TwoPlaces:
    """A move during which gitops-agent dies where the injector says, and is started again."""
    world = TwoPlaces(folder)
    world.put(HERE)
    world.converge()
    world.places.clear()
    world.boot(injector)
    world.put(THERE, runtime={"exclusive": exclusive})
    try:
        world.converge()
    except Crash:
        world.boot()
        world.converge()
    return world


@pytest.mark.parametrize("exclusive", [False, True], ids=["overlapping", "exclusive"])
def test_a_move_survives_a_kill_anywhere(exclusive: bool) -> None:
    counted = FaultInjector()
    with tempfile.TemporaryDirectory() as folder:
        moved(Path(folder), counted, exclusive=exclusive).shut()
    for point in moments(counted):
        with tempfile.TemporaryDirectory() as folder:
            world = moved(Path(folder), FaultInjector.at(point, crash), exclusive=exclusive)
            starts = (world.live.starts[of("a", HERE)], world.there.starts[of("a", THERE)])
            assert starts == (1, 1), point
            assert all(len(each) <= 1 if exclusive else each for each in world.ran), point
            check(world, world.repository.head or "")
            world.shut()


def test_verbs_are_as_planned(started: TwoPlaces) -> None:
    started.put(THERE)
    started.converge()
    assert [verb for _, verb, _ in started.there.applied] == [Verb.CREATE, Verb.CREATE]
    assert [verb for _, verb, _ in started.live.applied[2:]] == [Verb.DELETE, Verb.DELETE]
