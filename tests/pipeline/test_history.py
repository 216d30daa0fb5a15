"""The way back through history, in every form, in whole passes: live is what the earlier commit asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.passes import PassResult
from gitops_agent.model.status import CommitRecord, ConditionType, Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .world import World

TEN = [f"a{number}" for number in range(10)]
Spec = dict[str, Any]
Fleet = dict[str, Spec]
FIRST: Spec = {"runtime": {"command": ["first"]}, "rollout": {"healthTimeout": "4s"}}
SECOND: Spec = FIRST | {"runtime": {"command": ["second"]}}
BROKEN: Spec = FIRST | {
    "runtime": {"command": ["typo"]},
    "probes": {"readiness": {"exec": {"command": ["false"]}}},
}


def all_of(spec: Spec, names: list[str] = TEN) -> Fleet:
    return dict.fromkeys(names, spec)


def fleet_of(world: World, sha: str) -> Fleet:
    return {name: dict(spec) for name, spec in world.repository.commits[sha].fleet.items()}


def restore(world: World, sha: str) -> str:
    """What ``rollback --to`` pushes."""
    good = world.repository.commits[sha]
    return world.repository.commit(good.fleet, policy=good.policy, message=f"Back to {sha[:10]}")


def record(world: World, sha: str) -> CommitRecord:
    return world.record(sha)


def starts(world: World) -> dict[str, int]:
    return {name: world.live.starts[runtime_key(key(name))] for name in TEN}


def restarted(world: World, before: dict[str, int]) -> set[str]:
    return {name for name, count in starts(world).items() if count != before[name]}


def following(world: World, command: str) -> set[str]:
    runtimes = {name: world.running.get(runtime_key(key(name))) for name in TEN}
    return {name for name, fields in runtimes.items() if fields and fields.value["command"] == [command]}


def passes_until_moved(world: World, command: str, count: int) -> None:
    """Passes until so many agents run a command, and not one pass more."""
    for _ in range(40):
        result = world.run()
        if len(following(world, command)) >= count:
            return
        world.clock.advance(result.wait or 1.0)
    raise AssertionError(f"{command} never reached {count} agents")


@pytest.fixture
def ten(world: World) -> World:
    world.repository.commit(all_of(FIRST))
    assert world.converge().phase is Phase.CONVERGED
    return world


def assert_back(world: World, result: PassResult, to: str, *undone: str) -> None:
    """Live and record are those of an earlier commit, and both sides say so."""
    head = world.repository.head
    assert head is not None
    assert result.phase is Phase.CONVERGED
    assert world.running == world.wanted(to) == world.wanted(head)
    recorded = {resource: base.fields for resource, base in world.journal.state().reconcile.bases.items()}
    assert {resource: recorded.get(resource) for resource in world.running} == world.wanted_on_record(head)
    assert {resource.agent for resource in recorded} == {resource.agent for resource in world.running}
    assert record(world, head).rolls_back_to == to
    assert [record(world, sha).rolled_back_by for sha in undone] == [head] * len(undone)
    assert world.journal.state().rollout.enforced == head
    assert not [
        name for name in TEN if name in fleet_of(world, head) and world.condition(name, ConditionType.HALTED)
    ]
    assert not world.run().executed, "and there is nothing left to do"


@pytest.mark.parametrize("moved", [1, 2], ids=["canary", "second wave"])
@pytest.mark.parametrize("reboot", [False, True], ids=["", "restarted"])
def test_a_revert_of_a_rollout_half_done_touches_only_what_it_had_reached(
    ten: World, moved: int, *, reboot: bool
) -> None:
    good, before = ten.repository.head or "", starts(ten)
    half = ten.repository.commit(all_of(SECOND))
    passes_until_moved(ten, "second", moved)
    reached = following(ten, "second")
    assert 0 < len(reached) < 10
    if reboot:
        ten.boot()
    restore(ten, good)
    assert_back(ten, ten.converge(), good, half)
    assert record(ten, half).phase is Phase.SUPERSEDED
    assert restarted(ten, before) == reached


@pytest.mark.parametrize("reboot", [False, True], ids=["", "restarted"])
def test_a_range_that_was_held_twice_is_taken_back_at_once(ten: World, *, reboot: bool) -> None:
    good, before = ten.repository.head or "", starts(ten)
    bad = ten.repository.commit(all_of(BROKEN))
    assert ten.converge().phase is Phase.DEGRADED
    worse = ten.repository.commit(all_of(BROKEN | {"instructions": "Be worse."}))
    assert ten.converge().phase is Phase.DEGRADED
    reached = restarted(ten, before)
    assert len(reached) == 1, "the second try begins where the first one was"
    if reboot:
        ten.boot()
    restore(ten, good)
    assert_back(ten, ten.converge(), good, bad, worse)
    assert restarted(ten, before) == reached


def test_a_commit_in_the_middle_is_taken_back_and_the_others_stay(ten: World) -> None:
    first = ten.repository.commit(fleet_of(ten, ten.repository.head or "") | {"a0": SECOND})
    ten.converge()
    middle = ten.repository.commit(fleet_of(ten, first) | {"a1": SECOND})
    ten.converge()
    last = ten.repository.commit(fleet_of(ten, middle) | {"a2": SECOND})
    ten.converge()
    before = starts(ten)
    back = ten.repository.commit(
        fleet_of(ten, last) | {"a1": FIRST}, message=f'Revert "middle"\n\nThis reverts commit {middle}.'
    )
    assert ten.converge().phase is Phase.CONVERGED
    assert following(ten, "second") == {"a0", "a2"}
    assert restarted(ten, before) == {"a1"}
    assert record(ten, back).reverts == (middle,)
    assert record(ten, back).rolls_back_to is None  # no earlier commit had this very state
    assert [record(ten, sha).rolled_back_by for sha in (first, middle, last)] == [None, back, None]


def test_deleted_agents_come_back_as_they_were(ten: World) -> None:
    good, before, was = ten.repository.head or "", starts(ten), ten.running
    gone = ten.repository.commit(all_of(FIRST, TEN[3:]))
    ten.converge()
    assert len(ten.running) == len(was) - 6
    restore(ten, good)
    assert_back(ten, ten.converge(), good, gone)
    assert ten.running == was
    assert restarted(ten, before) == set(TEN[:3])


def test_created_agents_go_and_retained_ones_are_let_go_and_taken_up_again(ten: World) -> None:
    good, before = ten.repository.head or "", starts(ten)
    kept: Spec = FIRST | {"deletionPolicy": "Retain"}
    made = ten.repository.commit(all_of(FIRST) | {"new": FIRST, "kept": kept})
    ten.converge()
    handle = ten.live.live[runtime_key(key("kept"))]
    back = restore(ten, good)
    assert ten.converge().phase is Phase.CONVERGED
    assert {resource.agent.name for resource in ten.running} == {*TEN, "kept"}
    assert ten.live.live[runtime_key(key("kept"))] == handle, "still running, as it was"
    assert all(
        base.retained
        for resource, base in ten.journal.state().reconcile.bases.items()
        if resource.agent == key("kept")
    )
    assert record(ten, made).rolled_back_by == back

    again = restore(ten, made)
    assert ten.converge().phase is Phase.CONVERGED
    assert ten.running == ten.wanted(again)
    assert ten.live.live[runtime_key(key("kept"))] == handle, "taken up again without a restart"
    assert not any(base.retained for base in ten.journal.state().reconcile.bases.values())
    assert restarted(ten, before) == set()


def test_a_revert_of_an_invalid_commit_does_nothing_and_says_so(ten: World) -> None:
    good = ten.repository.head or ""
    invalid = ten.repository.commit(all_of(SECOND), broken="a tab")
    assert ten.converge().phase is Phase.INVALID
    applied = ten.live.calls["apply"]
    restore(ten, good)
    assert_back(ten, ten.converge(), good, invalid)
    assert ten.live.calls["apply"] == applied
    assert record(ten, invalid).phase is Phase.INVALID


def test_an_invalid_commit_in_the_middle_of_a_rollout_and_its_revert(ten: World) -> None:
    half = ten.repository.commit(all_of(SECOND))
    passes_until_moved(ten, "second", 1)
    invalid = ten.repository.commit(all_of(SECOND), broken="a tab")
    ten.run()
    back = restore(ten, half)
    assert_back(ten, ten.converge(), half, invalid)
    assert following(ten, "second") == set(TEN)
    assert set(starts(ten).values()) == {2}
    assert record(ten, half).rolled_back_by is None
    assert back == ten.repository.head


def test_a_revert_of_what_a_guard_stopped_does_nothing(ten: World) -> None:
    good = ten.repository.head or ""
    stopped = ten.repository.commit(all_of(FIRST, TEN[:1]))
    assert ten.converge().phase is Phase.BLOCKED
    applied = ten.live.calls["apply"]
    restore(ten, good)
    assert_back(ten, ten.converge(), good, stopped)
    assert ten.live.calls["apply"] == applied


def test_what_a_guard_stops_halfway_through_a_rollout_is_taken_back_and_the_rollout_goes_on(ten: World) -> None:
    half = ten.repository.commit(all_of(SECOND))
    passes_until_moved(ten, "second", 1)
    stopped = ten.repository.commit(all_of(SECOND, TEN[:1]))
    assert ten.converge().phase is Phase.BLOCKED
    ten.clock.advance(3600)
    ten.run()
    assert (len(following(ten, "second")), len(following(ten, "first"))) == (1, 9)
    restore(ten, half)
    assert_back(ten, ten.converge(), half, stopped)
    assert set(starts(ten).values()) == {2}


def test_a_deletion_half_done_is_taken_back(ten: World) -> None:
    good = ten.repository.head or ""
    before = starts(ten)
    gone = ten.repository.commit(all_of(FIRST, TEN[3:]))
    result = ten.run()
    assert len(following(ten, "first")) == 9
    ten.clock.advance(result.wait or 1.0)
    restore(ten, good)
    assert_back(ten, ten.converge(), good, gone)
    assert restarted(ten, before) == {"a0"}


@pytest.mark.parametrize("which", [0, 1], ids=["the commit that failed", "the commit that waits"])
def test_the_failed_tree_again_waits_for_a_person_and_a_good_one_never_does(ten: World, which: int) -> None:
    good = ten.repository.head or ""
    bad = ten.repository.commit(all_of(BROKEN))
    ten.converge()
    back = restore(ten, good)
    assert_back(ten, ten.converge(), good, bad)
    again = restore(ten, bad)
    assert ten.converge().phase is Phase.BLOCKED
    assert "FailedBefore" in {finding.code for finding in record(ten, again).findings}
    assert record(ten, back).rolled_back_by == again
    assert following(ten, "first") == set(TEN)

    ten.journal.control(Control(ControlVerb.RETRY, (bad, again)[which], "ada@host", ten.clock.now()))
    assert ten.converge().phase is Phase.DEGRADED, "tried, and as bad as it was"
    assert len(following(ten, "typo")) == 1
    third = restore(ten, good)
    assert_back(ten, ten.converge(), back, again)
    assert record(ten, third).phase is Phase.CONVERGED


# -- what was never established is not lost (decision 0009)

HALF = [f"n{number}" for number in range(10)]


@pytest.mark.parametrize("later", [False, True], ids=["", "an empty commit on top"])
def test_half_the_fleet_made_by_a_commit_that_never_converged_goes_without_a_question(
    ten: World, *, later: bool
) -> None:
    good = ten.repository.head or ""
    made = ten.repository.commit(all_of(FIRST) | all_of(BROKEN, HALF))
    assert ten.converge().phase is Phase.DEGRADED
    assert len({resource.agent for resource in ten.running}) == 20
    back = restore(ten, good)
    if later:
        ten.repository.commit(message="Say thanks")
    assert ten.converge().phase is Phase.CONVERGED
    assert ten.running == ten.wanted(good)
    assert record(ten, made).rolled_back_by == back


def test_half_the_fleet_that_had_converged_goes_with_an_approval_alone(ten: World) -> None:
    good = ten.repository.head or ""
    ten.repository.commit(all_of(FIRST) | all_of(FIRST, HALF))
    assert ten.converge().phase is Phase.CONVERGED
    back = restore(ten, good)
    assert ten.converge().phase is Phase.BLOCKED
    assert len({resource.agent for resource in ten.running}) == 20
    ten.journal.control(Control(ControlVerb.APPROVE, record(ten, back).plan, "ada@host", ten.clock.now()))
    assert ten.converge().phase is Phase.CONVERGED
    assert ten.running == ten.wanted(good)


# -- any history at all

NAMES = ["a", "b", "c", "d"]
SPECS = [
    FIRST,
    SECOND,
    FIRST | {"instructions": "Be kind."},
    FIRST | {"lifecycle": "Stopped"},
    FIRST | {"deletionPolicy": "Retain"},
    BROKEN,
]
GENEROUS = {"massDelete": {"min": 99, "ratio": 1}}
fleets = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(SPECS), max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("change"), fleets),
        st.tuples(st.just("restore"), st.integers(0, 20)),
        st.tuples(st.just("revert"), st.integers(0, 20)),
        st.tuples(st.just("broken"), fleets),
        st.tuples(st.just("pass"), st.integers(1, 3)),
        st.tuples(st.just("settle"), st.none()),
        st.tuples(st.just("boot"), st.none()),
    ),
    max_size=14,
)


@contextmanager
def a_world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "state")
        yield world
        world.shut()


class Author:
    """Writes a linear history, and knows by itself what each commit takes back."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.shas = [world.repository.commit({"z": FIRST}, policy=GENEROUS)]
        self.takes_back: dict[str, list[str]] = {}
        self.goes_to: dict[str, str | None] = {}

    def take(self, what: str, given: Any) -> None:
        world = self.world
        match what:
            case "change":
                self._write({**given, "z": FIRST})
            case "broken":
                self._write({**given, "z": FIRST}, broken="a tab")
            case "restore":
                self._write(fleet_of(world, self._earlier(given)), broken=self._errors(self._earlier(given)))
            case "revert":
                self._revert(self._earlier(given))
            case "pass":
                for _ in range(given):
                    world.clock.advance(world.run().wait or 1.0)
            case "settle":
                self.settle()
            case "boot":
                world.boot()

    def settle(self) -> PassResult:
        """Converge; who is the same before and after was not restarted."""
        before, was = dict(self.world.live.starts), self.world.running
        result = self.world.converge(passes=200)
        now = self.world.running
        for resource, fields in was.items():
            if resource.kind == "runtime" and now.get(resource) == fields:
                assert self.world.live.starts[resource] == before[resource], resource
        return result

    def _earlier(self, number: int) -> str:
        return self.shas[number % len(self.shas)]

    def _errors(self, sha: str) -> str:
        return "a tab" if self.world.repository.commits[sha].errors else ""

    def _revert(self, sha: str) -> None:
        """Like git: what the commit changed goes back, if it is still as the commit left it."""
        (parent,) = self.world.repository.commits[sha].revision.parents or (None,)
        if parent is None or self._errors(sha) or self._errors(parent) or self._errors(self.shas[-1]):
            return
        old, new, now = (fleet_of(self.world, each) for each in (parent, sha, self.shas[-1]))
        changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        if not changed or any(now.get(name) != new.get(name) for name in changed):
            return
        left = {name: spec for name, spec in now.items() if name not in changed}
        self._write(left | {name: old[name] for name in changed & old.keys()}, reverts=sha)

    def _write(self, fleet: Fleet, broken: str = "", reverts: str | None = None) -> None:
        tree = self.world.repository.commits[self.shas[-1]].revision.tree
        said = f"Back\n\nThis reverts commit {reverts}." if reverts else "On we go"
        sha = self.world.repository.commit(fleet, broken=broken, message=said)
        trees = {old: self.world.repository.commits[old].revision.tree for old in self.shas}
        mine = self.world.repository.commits[sha].revision.tree
        match = next((old for old in reversed(self.shas) if trees[old] == mine), None) if mine != tree else None
        undone = [reverts] if reverts and mine != tree else []
        if match is not None and not undone:
            since, by = self.shas[self.shas.index(match) + 1 :], self.undone()
            pairs = {(old, by[old]) for old in since if by.get(old) in since}
            undone = [old for old in since if not any(old in pair for pair in pairs)]
        self.goes_to[sha] = match
        self.takes_back[sha] = undone
        self.shas.append(sha)

    def undone(self) -> dict[str, str]:
        """What no longer counts, and by which commit: one that was not taken back itself."""
        found: dict[str, str] = {}
        for sha in reversed(self.shas):
            if sha not in found:
                found |= {old: sha for old in self.takes_back.get(sha, ()) if old not in found}
        return found


@given(steps)
def test_whatever_the_history_live_is_what_the_newest_tree_asks_for(story: list[tuple[str, Any]]) -> None:
    with a_world() as world:
        author = Author(world)
        author.settle()
        for what, given_ in story:
            author.take(what, given_)
        author.settle()
        # Whatever state that left, a tree that is good is reached from it.
        author.take("restore", 0)
        assert author.settle().phase is Phase.CONVERGED
        head = author.shas[-1]
        wanted = world.wanted(head)
        retained = {resource for resource, base in world.journal.state().reconcile.bases.items() if base.retained}
        assert {
            resource: fields for resource, fields in world.running.items() if resource not in retained
        } == wanted
        assert {resource.agent.name for resource in retained} <= set(NAMES)
        undone = author.undone()
        for sha in author.shas[1:]:
            found = world.journal.commit_record(sha)
            assert found is not None
            assert (found.rolled_back_by, found.rolls_back_to) == (undone.get(sha), author.goes_to[sha])
            assert set(found.reverts) == set(author.takes_back[sha])
