"""When a sink is served, whatever the order of events: never too often, never forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.report.outbox import MAX_BACKOFF_SECONDS, DeliveryTimer

pytestmark = pytest.mark.unit

STEPS = st.lists(
    st.tuples(st.sampled_from(["dirty", "deliver", "flush", "fail"]), st.floats(0, 5, allow_nan=False)),
    max_size=40,
)


def timer() -> DeliveryTimer:
    return DeliveryTimer(2.0, lambda: 0.5)


@given(STEPS)
def test_two_deliveries_are_never_closer_than_the_interval(steps: list[tuple[str, float]]) -> None:
    clock, subject, deliveries = 0.0, timer(), [float("-inf")]
    for step, passed in steps:
        clock += passed
        if step == "dirty":
            subject.dirty(clock)
            continue
        wait = subject.earliest(clock) if step == "flush" else subject.delay(clock)
        if wait == 0:
            subject.begin(clock)
            subject.end(clock, done=step != "fail")
            assert clock - deliveries[-1] >= 2.0
            deliveries.append(clock)


@given(STEPS)
def test_what_is_dirty_is_delivered_in_the_end(steps: list[tuple[str, float]]) -> None:
    clock, subject = 0.0, timer()
    for step, passed in steps:
        clock += passed
        if step == "dirty":
            subject.dirty(clock)
        elif subject.delay(clock) == 0:
            subject.begin(clock)
            subject.end(clock, done=step == "deliver")
    wait = subject.delay(clock)
    if wait is not None:
        assert wait <= MAX_BACKOFF_SECONDS * 1.5
        assert subject.delay(clock + wait + 0.001) == 0


def test_a_burst_is_one_delivery() -> None:
    subject = timer()
    for moment in (0.0, 0.5, 1.0, 1.9):
        subject.dirty(moment)
    assert subject.delay(1.9) == pytest.approx(0.1)
    assert subject.delay(2.0) == 0
    subject.begin(2.0)
    subject.end(2.1, done=True)
    assert subject.delay(2.1) is None


def test_what_comes_during_a_delivery_needs_another() -> None:
    subject = timer()
    subject.dirty(0.0)
    subject.begin(2.0)
    subject.dirty(2.5)
    subject.end(3.0, done=True)
    assert subject.delay(3.0) is not None


def test_failures_back_off_up_to_a_cap_and_honour_what_was_asked() -> None:
    subject, waits, clock = timer(), [], 0.0
    subject.dirty(clock)
    for _ in range(12):
        clock += subject.delay(clock) or 0.0
        subject.begin(clock)
        subject.end(clock, done=False)
        waits.append(subject.delay(clock))
    assert waits == sorted(waits)  # type: ignore[type-var]
    assert waits[0] == pytest.approx(2.2)
    assert waits[-1] == pytest.approx(MAX_BACKOFF_SECONDS * 1.1)
    clock += waits[-1] or 0.0
    subject.begin(clock)
    subject.end(clock, done=False, retry_after=1000.0)
    assert subject.delay(clock) == pytest.approx(1100.0)


def test_a_flush_does_not_wait_for_the_backoff() -> None:
    subject = timer()
    subject.dirty(0.0)
    for moment in (2.0, 10.0, 30.0):
        subject.begin(moment)
        subject.end(moment, done=False)
    assert subject.earliest(33.0) == 0
