"""Die at any point and start again: live equals the last good commit, nothing is there twice, nothing is lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops_agent.errors import JournalError, SourceUnavailable
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.status import Phase
from gitops_agent.testing.faults import Crash, FaultInjector, crash, disk_full
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .world import World

NAMES = ("one", "two", "three", "four")


def check(world: World, good: str) -> None:
    """What must be true once all is quiet again."""
    assert world.journal.state().rollout.enforced == good
    assert world.running == world.wanted(good)
    recorded = {resource: base.fields for resource, base in world.journal.state().reconcile.bases.items()}
    agents = world.repository.load(world.repository.revision(good)).agents
    assert set(recorded) == {resource.key for agent in agents.values() for resource in agent.resources}
    to_run = world.wanted_on_record(good)
    assert {each: recorded[each] for each in to_run} == to_run
    statuses = world.journal.state().status.agents
    assert set(statuses) == set(agents)
    assert [str(each) for each, status in statuses.items() if not status.ready] == []
    assert world.journal.state().reconcile.open_intents == {}, "every intent has an outcome"
    again = world.run()
    assert again.executed == []
    assert again.record is not None
    assert again.record.plan.actions == ()


# -- every point of some passes, one after the other


def two(world: World) -> str:
    return world.commit("one", "two")


def nothing(world: World) -> None:
    """A fresh state directory."""


def changed(world: World) -> str:
    return world.repository.commit({"one": {"runtime": {"command": ["new"]}}, "two": {}, "three": {}})


SCENES: dict[str, tuple[Callable[[World], object], Callable[[World], object], dict[str, int]]] = {
    # what was before, what happens, and how often each runtime was started when it is over
    "first": (nothing, two, {"one": 1, "two": 1}),
    "change": (two, changed, {"one": 2, "two": 1, "three": 1}),
    "drift": (two, lambda world: world.live.remove(runtime_key(key("two"))), {"one": 1, "two": 2}),
    "delete": (two, lambda world: world.commit("one"), {"one": 1, "two": 1}),
    "stop": (
        two,
        lambda world: world.repository.commit({"one": {"lifecycle": "Stopped"}, "two": {}}),
        {"one": 1, "two": 1},
    ),
}


def moments(counted: FaultInjector) -> list[str]:
    """The points that differ: nothing durable happens between one ``after`` and the ``before`` that follows it."""
    first, *rest = counted.points()
    return [first, *(point for point in rest if ":after:" in point)]


def played(folder: Path, scene: str, injector: FaultInjector) -> World:
    """The scene up to its end, or to the crash or full disk."""
    before, happens, _ = SCENES[scene]
    world = World(folder)
    if before(world):
        world.converge()
    happens(world)
    world.clock.advance(60)
    world.boot(injector)
    try:
        world.converge()
    except (Crash, JournalError):
        pass
    return world


@pytest.mark.parametrize("scene", SCENES)
def test_a_crash_at_every_point_of_a_pass(tmp_path: Path, scene: str) -> None:
    counted = FaultInjector()
    quiet = played(tmp_path / "counted", scene, counted)
    phase = quiet.phase(quiet.repository.head or "")
    check(quiet, quiet.repository.head or "")
    quiet.shut()
    assert {"journal.begin:before:1", "apply:after:1", "journal.finish:after:1"} <= set(counted.points())
    for number, point in enumerate(moments(counted)):
        world = played(tmp_path / str(number), scene, FaultInjector.at(point, crash))
        head = world.repository.head or ""
        assert world.phase(head) in (None, Phase.PENDING, Phase.RECONCILING, Phase.CONVERGED), point
        world.boot()
        world.converge()
        check(world, head)
        assert world.phase(head) is phase, point
        starts = {
            resource.agent.name: n for resource, n in world.live.starts.items() if resource.kind == "runtime"
        }
        assert starts == SCENES[scene][2], f"{point}: something was started again without need"
        world.shut()


@pytest.mark.parametrize("scene", SCENES)
def test_a_full_disk_at_every_write_of_a_pass(tmp_path: Path, scene: str) -> None:
    """The daemon lives on, so nothing it remembers may be ahead of what could be written."""
    counted = FaultInjector()
    played(tmp_path / "counted", scene, counted).shut()
    for number, point in enumerate(
        point for point in counted.points() if "journal." in point and "before" in point
    ):
        world = played(tmp_path / str(number), scene, FaultInjector.at(point, disk_full))
        head = world.repository.head or ""
        world.converge()
        check(world, head)
        starts = {
            resource.agent.name: n for resource, n in world.live.starts.items() if resource.kind == "runtime"
        }
        assert starts == SCENES[scene][2], f"{point}: something was started again without need"
        remembered = world.run().state.status.agents
        assert dict(remembered) == dict(world.journal.state().status.agents), (
            f"{point}: what is remembered is not what is written"
        )
        world.shut()


def test_a_crash_never_lets_a_commit_converge_before_its_agents_are_ready(tmp_path: Path) -> None:
    slow = {"one": {"runtime": {"minUptime": "60s"}}}
    counted = FaultInjector()
    world = World(tmp_path / "counted")
    world.repository.commit(slow)
    world.boot(counted)
    world.run()
    world.shut()
    for number, point in enumerate(moments(counted)):
        world = World(tmp_path / str(number))
        world.repository.commit(slow)
        world.boot(FaultInjector.at(point, crash))
        with pytest.raises(Crash):
            world.run()
        world.boot()
        world.run()
        assert world.run().phase is Phase.RECONCILING, point
        world.clock.advance(61)
        assert world.run().phase is Phase.CONVERGED, point
        world.shut()


def test_an_effect_nobody_wants_any_more_is_not_left_open_for_ever(world: World) -> None:
    world.commit("one", "two")
    world.boot(FaultInjector.at("journal.begin:after:1", crash))
    with pytest.raises(Crash):
        world.run()
    assert world.journal.state().reconcile.open_intents
    sha = world.commit("one")
    world.boot()
    world.converge()
    check(world, sha)


# -- any story whatever


class Anywhere(FaultInjector):
    """Crashes at the n-th point of any name."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.nth = nth

    def reach(self, point: str) -> None:
        super().reach(point)
        if len(self.trace) == self.nth:
            crash()


specs = st.fixed_dictionaries(
    {},
    optional={
        "lifecycle": st.sampled_from(["Running", "Stopped", "Retired"]),
        "instructions": st.sampled_from(["Be kind.", "Be brief."]),
        "runtime": st.fixed_dictionaries(
            {}, optional={"command": st.sampled_from([["a"], ["b"]]), "minUptime": st.sampled_from(["0s", "5s"])}
        ),
    },
)
fleets = st.dictionaries(st.sampled_from(NAMES), specs, min_size=1)
steps = st.one_of(
    st.tuples(st.just("commit"), fleets),
    st.tuples(st.just("broken"), st.none()),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.just("edit"), st.integers(0, 20)),
    st.tuples(st.just("fail"), st.integers(1, 4)),
    st.tuples(st.just("unreachable"), st.integers(1, 2)),
    st.tuples(st.just("unreachable"), st.booleans()),
    st.tuples(st.just("run"), st.none()),
    st.tuples(st.just("event"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait"), st.sampled_from([0.3, 2.0, 10.0, 400.0])),
    st.tuples(st.just("jump"), st.sampled_from([3600.0, -3600.0])),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("crash"), st.integers(1, 40)),
)


class Story:
    """Things that happen to one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.good = world.repository.commit({"one": {}})

    def tell(self, step: str, about: Any) -> None:
        getattr(self, step)(about)

    def commit(self, fleet: Any) -> None:
        self.good = self.world.repository.commit(fleet)

    def broken(self, _: None) -> None:
        self.world.repository.commit(broken="duplicate key")

    def remove(self, number: int) -> None:
        if live := sorted(self.world.live.live):
            self.world.live.remove(live[number % len(live)])

    def edit(self, number: int) -> None:
        if live := sorted(each for each in self.world.live.live if each.kind == "runtime"):
            self.world.live.edit(live[number % len(live)], command=["by hand"])

    def fail(self, times: int) -> None:
        self.world.live.fail_next(times)

    def blind(self, times: int) -> None:
        self.world.live.unreachable_next(times)

    def unreachable(self, down: bool) -> None:
        self.world.repository.down = SourceUnavailable("no route to host") if down else None

    def run(self, _: None) -> None:
        self.world.run()

    def event(self, name: str) -> None:
        self.world.run(name, fetch=False)

    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    def jump(self, seconds: float) -> None:
        self.world.clock.jump(seconds)

    def restart(self, _: None) -> None:
        self.world.boot()

    def crash(self, nth: int) -> None:
        """Run until the crash, or until enough was done that there is nothing left to crash in."""
        self.world.boot(Anywhere(nth))
        try:
            for _ in range(3):
                self.world.run()
                self.world.clock.advance(1)
        except Crash:
            pass
        self.world.boot()

    def end(self) -> None:
        """Nothing is in the way any more."""
        self.world.live.heal()
        self.world.repository.down = None
        if self.world.repository.head != self.good:
            self.commit(self.world.repository.commits[self.good].fleet)
        self.world.converge(passes=200)
        for failed in self.world.journal.state().rollout.failed_trees:
            # What failed its gate is not tried again by itself.
            self.world.journal.control(Control(ControlVerb.RETRY, failed.commit, "ada", self.world.clock.now()))
        self.world.converge(passes=200)
        # Who was repaired several times in a row is Stalled for a while; that passes too.
        for seconds in (400, 10):
            self.world.clock.advance(seconds)
            self.world.converge(passes=200)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=14))
def test_whatever_happens_the_fleet_becomes_what_git_says(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        try:
            told = Story(world)
            for step, about in story:
                told.tell(step, about)
            told.end()
            check(world, told.good)
        finally:
            world.shut()
