"""One backoff: bounded, growing, spread, and patient with servers that ask for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.support.backoff import MAX_RETRY_AFTER_SECONDS, delay

pytestmark = pytest.mark.unit
waits = st.floats(0.01, 1000)
jitters = st.floats(0, 1, exclude_max=True)


@given(st.integers(0, 200), waits, waits, st.none() | st.floats(0, 1e9), jitters)
def test_delay_is_bounded_and_patient(
    failures: int, first: float, cap: float, retry_after: float | None, jitter: float
) -> None:
    wait = delay(failures, first, cap, retry_after, jitter)
    asked = min(retry_after or 0, MAX_RETRY_AFTER_SECONDS)
    assert max(first, asked) <= wait <= max(first, cap, asked) * 1.2
    assert wait <= delay(failures + 1, first, cap, retry_after, jitter)


def test_delay_doubles_up_to_the_cap() -> None:
    assert [delay(n, 30, 300, None, 0) for n in range(6)] == [30, 60, 120, 240, 300, 300]


def test_spread_is_the_share_that_jitter_adds() -> None:
    assert (delay(0, 10, 10, jitter=0.5), delay(0, 10, 10, jitter=0.5, spread=1.0)) == (11.0, 15.0)
