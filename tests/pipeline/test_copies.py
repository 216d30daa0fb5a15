"""Copies that their live system replaces by itself: only one that is started again where it was has exited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gitops_agent.drivers.api import AgentInstance, Observation, ObserveRequest
from gitops_agent.model.status import Phase
from gitops_agent.testing.memory_driver import LOOPBACK, MemoryDriver

from .test_bake import BAKE, FIRST, until_baking
from .test_rollout import GOOD, NAMES, fleet, following
from .world import World


class Moving(MemoryDriver):
    """A live system that scales and moves what it runs. ``copies``: uid and start of each copy of an agent,
    by its name; all that is not named here has one."""

    copies: dict[str, dict[str, float]]

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        return [self._with_copies(each) for each in super().observe(request)]

    def _with_copies(self, seen: Observation) -> Observation:
        if not seen.instances:
            return seen
        (main,) = seen.instances
        assert main.started_at is not None
        copies = self.copies.get(seen.key.agent.name, {f"{seen.key.agent}-{seen.handle.digest}": main.started_at})
        # All copies of a StatefulSet have the names of those before them.
        made = (
            AgentInstance(f"copy-{number}", at, address=LOOPBACK, uid=uid)
            for number, (uid, at) in enumerate(copies.items())
        )
        return replace(seen, instances=tuple(made))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "state", Moving)
    world.live.copies = {}  # type: ignore[attr-defined]
    yield world
    world.shut()


@pytest.fixture
def baking(world: World) -> World:
    """A rollout whose canary runs as two copies and bakes."""
    world.repository.commit(fleet(FIRST), policy=BAKE)
    assert world.converge().phase is Phase.CONVERGED
    world.repository.commit(fleet(GOOD))
    now = world.clock.now()
    have(world, one=now, two=now)
    assert until_baking(world) == "a00"
    world.clock.advance(1)
    return world


def have(world: World, **copies: float) -> None:
    """The canary runs as these copies from now on."""
    world.live.copies["a00"] = copies  # type: ignore[attr-defined]


def first(world: World) -> float:
    return world.live.copies["a00"]["one"]  # type: ignore[attr-defined,no-any-return]


def test_one_copy_less_is_no_exit(baking: World) -> None:
    have(baking, one=first(baking))
    assert baking.converge().phase is Phase.CONVERGED
    assert following(baking, "better") == set(NAMES)


def test_a_copy_that_was_moved_is_no_exit(baking: World) -> None:
    have(baking, one=first(baking), three=baking.clock.now())
    assert baking.converge().phase is Phase.CONVERGED
    assert following(baking, "better") == set(NAMES)


def test_all_copies_moved_is_no_exit_whatever_their_names_are(baking: World) -> None:
    have(baking, three=baking.clock.now(), four=baking.clock.now())
    assert baking.converge().phase is Phase.CONVERGED


def test_more_copies_do_not_begin_the_bake_time_again(baking: World) -> None:
    rollout = baking.journal.state().rollout.rollout
    assert rollout is not None
    began = rollout.passed_at
    for number in range(3):
        have(baking, one=first(baking), two=first(baking), **{f"more{number}": first(baking)})
        rollout = baking.run().state.rollout.rollout
        assert rollout is not None
        assert rollout.passed_at == began
        baking.clock.advance(1)


def test_a_copy_that_is_started_again_where_it_was_fails_the_gate(baking: World) -> None:
    have(baking, one=first(baking), two=baking.clock.now())
    assert baking.converge().phase is Phase.DEGRADED
    head = baking.journal.state().head
    assert head is not None
    assert "did not stay up since its release" in head.summary
    assert following(baking, "better") == {"a00"}


def test_so_does_one_that_took_the_place_of_another(baking: World) -> None:
    have(baking, one=first(baking), three=baking.clock.now())
    baking.run()
    baking.clock.advance(1)
    have(baking, one=first(baking), three=baking.clock.now())
    assert baking.converge().phase is Phase.DEGRADED
    assert following(baking, "better") == {"a00"}
