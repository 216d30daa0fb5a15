"""When to try again: capped, growing, spread, for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.outcome import LONGEST_DELAY, STALLED_AFTER, Attempt
from gitops_agent.reconcile.retry import FIRST_DELAY, after_failure, delay

pytestmark = pytest.mark.unit
jitters = st.floats(0, 1, exclude_max=True)
failures = st.integers(1, 10**6)
moments = st.floats(0, 4e9)


@given(failures, jitters)
def test_a_delay_stays_within_its_bounds(count: int, jitter: float) -> None:
    assert FIRST_DELAY / 2 <= delay(count, jitter) <= LONGEST_DELAY


@given(failures, jitters)
def test_more_failures_never_shorten_it(count: int, jitter: float) -> None:
    assert delay(count, jitter) <= delay(count + 1, jitter)


@given(failures, jitters, jitters)
def test_jitter_spreads_over_the_upper_half(count: int, one: float, other: float) -> None:
    whole = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(count - 1, 1000))
    assert whole / 2 <= delay(count, one) <= whole
    assert (delay(count, one) <= delay(count, other)) == (one <= other) or one == pytest.approx(other)


@given(st.lists(jitters, min_size=1, max_size=40), moments)
def test_failures_in_a_row(several: list[float], start: float) -> None:
    attempt: Attempt | None = None
    now = start
    for count, jitter in enumerate(several, 1):
        attempt = after_failure(attempt, f"error {count}", now, jitter)
        assert attempt.failures == count
        assert attempt.error == f"error {count}"
        assert attempt.stalled == (count >= STALLED_AFTER)
        # It never gives up: there is always a next try, and never further away than the longest delay.
        assert now < attempt.next_at <= now + LONGEST_DELAY
        assert not attempt.is_due(now)
        assert attempt.is_due(attempt.next_at)
        assert attempt.is_due(now - 2 * LONGEST_DELAY), "the clock was set back"
        now = attempt.next_at


@given(failures, jitters, moments)
def test_a_permanent_failure_waits_the_longest_from_the_start(count: int, jitter: float, now: float) -> None:
    attempt = after_failure(Attempt(count, 0.0, ""), "command not found", now, jitter, permanent=True)
    assert (attempt.next_at, attempt.permanent, attempt.stalled) == (now + LONGEST_DELAY, True, True)
