from __future__ import annotations

import pytest

from gitops_agent.ports import Clock
from gitops_agent.support.clock import SystemClock
from gitops_agent.testing.clock import FrozenClock

pytestmark = pytest.mark.unit


def test_it_stands_still_until_it_is_moved() -> None:
    clock = FrozenClock(now=100.0, monotonic=5.0)
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic()) == (100.0, 5.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (102.5, 7.5)


def test_a_jump_moves_the_wall_clock_alone() -> None:
    clock = FrozenClock(now=100.0, monotonic=5.0)
    clock.jump(-50.0)
    assert (clock.now(), clock.monotonic()) == (50.0, 5.0)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="use jump"):
        FrozenClock().advance(-1.0)


@pytest.mark.parametrize("clock", [FrozenClock(), SystemClock()], ids=["frozen", "system"])
def test_both_are_clocks(clock: Clock) -> None:
    assert clock.now() > 1_600_000_000
    first = clock.monotonic()
    assert clock.monotonic() >= first
