"""Rate limits of drivers: a bucket as a value, and lanes that wait for a token."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

import pytest

from gitops_agent.model.plan import Action, Verb
from gitops_agent.reconcile.lanes import Place, RateLimiter, WaitingLanes
from gitops_agent.support.token_bucket import Rate
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import runtime_key

from .make import ONE, THREE, TWO, action

pytestmark = pytest.mark.unit


def test_a_bucket_fills_up_to_its_burst_and_never_by_a_clock_that_goes_back() -> None:
    bucket = Rate(2.0, 3).full(100.0)
    for _ in range(3):
        taken = bucket.take(100.0)
        assert taken is not None
        bucket = taken
    assert bucket.take(100.0) is None
    assert bucket.wait(100.0) == 0.5
    assert bucket.take(99.0) is None
    assert bucket.take(100.5) is not None
    assert bucket.at(1_000.0).tokens == 3.0


def lanes(*actions: Action) -> WaitingLanes:
    return WaitingLanes({each.key.agent: deque([each]) for each in actions})


def room(each: int = 8) -> Mapping[Place, int]:
    return defaultdict(lambda: each)


def test_lanes_whose_driver_has_no_token_stay_in_order(clock: FrozenClock) -> None:
    limiter = RateLimiter({"memory": Rate(1.0, 1)}, clock)
    waiting = lanes(*(action(runtime_key(agent)) for agent in (ONE, TWO, THREE)))
    assert [each.key.agent for each in waiting.take_heads(room(), limiter)] == [ONE]
    assert waiting.take_heads(room(), limiter) == []
    assert limiter.next_due() == pytest.approx(1.0)
    clock.advance(1.0)
    assert [each.key.agent for each in waiting.take_heads(room(), limiter)] == [TWO]
    clock.advance(1.0)
    assert [each.key.agent for each in waiting.take_heads(room(), limiter)] == [THREE]


def test_records_of_ours_and_other_drivers_need_no_token(clock: FrozenClock) -> None:
    limiter = RateLimiter({"memory": Rate(0.001, 1), "other": Rate(0.001, 1)}, clock)
    adopt = action(runtime_key(TWO), Verb.ADOPT)
    waiting = lanes(action(runtime_key(ONE)), adopt, action(runtime_key(THREE)))
    assert [each.key.agent for each in waiting.take_heads(room(), limiter)] == [ONE, TWO]
    assert len(waiting.take_heads(room(), RateLimiter({}, clock))) == 1


def test_no_more_than_there_is_room_for(clock: FrozenClock) -> None:
    waiting = lanes(*(action(runtime_key(agent)) for agent in (ONE, TWO, THREE)))
    assert len(waiting.take_heads(room(2), RateLimiter({}, clock))) == 2
    assert len(waiting.take_heads(room(2), RateLimiter({}, clock))) == 1
