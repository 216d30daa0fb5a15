"""When to try again: capped, growing, spread, for ever, as the policy says."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gitops_agent.model.document import Backoff, PolicySpec
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.outcome import MAX_DELAY_SECONDS, STALLED_AFTER, Attempt, Outcome, Result
from gitops_agent.model.plan import Class
from gitops_agent.model.quantity import seconds
from gitops_agent.reconcile.retry import after_failure, attempts_after, delay
from tests.report.values import NOW, an_action

pytestmark = pytest.mark.unit
jitters = st.floats(0, 1, exclude_max=True)
failures = st.integers(1, 10**6)
moments = st.floats(0, 4e9)
limits = st.sampled_from(
    [
        Backoff(),
        Backoff(first="100ms", longest="100ms"),
        Backoff(first="30s", longest="1h"),
        Backoff(first="1s", longest="24h"),
    ]
)


@given(failures, jitters, limits)
def test_a_delay_stays_within_its_bounds(count: int, jitter: float, limit: Backoff) -> None:
    assert seconds(limit.first) / 2 <= delay(count, jitter, limit) <= seconds(limit.longest)


@given(failures, jitters, limits)
def test_more_failures_never_shorten_it(count: int, jitter: float, limit: Backoff) -> None:
    assert delay(count, jitter, limit) <= delay(count + 1, jitter, limit)


@given(failures, jitters, jitters, limits)
def test_jitter_spreads_over_the_upper_half(count: int, one: float, other: float, limit: Backoff) -> None:
    whole = min(seconds(limit.longest), seconds(limit.first) * 2.0 ** min(count - 1, 1000))
    assert whole / 2 <= delay(count, one, limit) <= whole
    assert (delay(count, one, limit) <= delay(count, other, limit)) == (one <= other) or one == pytest.approx(
        other
    )


@given(st.lists(jitters, min_size=1, max_size=40), moments, limits)
def test_failures_in_a_row(several: list[float], start: float, limit: Backoff) -> None:
    attempt: Attempt | None = None
    now, longest = start, seconds(limit.longest)
    for count, jitter in enumerate(several, 1):
        attempt = after_failure(attempt, f"error {count}", now, jitter, limit)
        assert attempt.failures == count
        assert attempt.error == f"error {count}"
        assert attempt.stalled == (count >= STALLED_AFTER)
        # It never gives up: there is always a next try, and never further away than the longest delay.
        assert now < attempt.next_at <= now + longest
        assert not attempt.is_due(now, longest)
        assert attempt.is_due(attempt.next_at, longest)
        assert attempt.is_due(now - 2 * longest, longest), "the clock was set back"
        now = attempt.next_at


@given(failures, jitters, moments, limits)
def test_a_permanent_failure_waits_the_longest_from_the_start(
    count: int, jitter: float, now: float, limit: Backoff
) -> None:
    attempt = after_failure(Attempt(count, 0.0, ""), "command not found", now, jitter, limit, permanent=True)
    assert (attempt.next_at, attempt.permanent, attempt.stalled) == (now + seconds(limit.longest), True, True)


@pytest.mark.parametrize(
    ("drift", "stalls"),
    [
        (Class.CONFLICTING, False),
        (Class.MISSING_INTERNAL, False),
        (Class.MISSING_EXTERNAL, True),
        (Class.STUCK_PROGRESS, True),
    ],
)
def test_only_an_agent_that_fails_by_itself_stalls_by_repairs_that_worked(drift: Class, stalls: bool) -> None:
    action, known = an_action(drift_class=drift), dict[ResourceKey, Attempt]()
    for number in range(2 * STALLED_AFTER):
        done = Outcome("i", Result.DONE, "", NOW + number, 0.1)
        after = attempts_after([(action, done)], known, PolicySpec(), Random(1))
        known |= {key: attempt for key, attempt in after.items() if attempt is not None}
    assert known[action.key].stalled is stalls
    assert known[action.key].next_at > NOW, "the next repair waits"


@pytest.mark.parametrize(("asked", "waits"), [(0.0, 0.5), (42.0, 42.0), (9000.0, MAX_DELAY_SECONDS)])
def test_what_the_live_system_asks_for_is_waited_for_within_the_longest_pause(asked: float, waits: float) -> None:
    action = an_action()
    early = Outcome("i", Result.SKIPPED, "busy", NOW, 0.1, retry_after=asked)
    attempt = attempts_after([(action, early)], {}, PolicySpec(), Random(1))[action.key]
    assert attempt is not None
    assert waits <= attempt.next_at - NOW <= max(waits, 1.0)
    assert not attempt.is_due(NOW)


def test_the_defaults_are_those_of_a_policy_that_says_nothing() -> None:
    assert (delay(1, 0.0, Backoff()), delay(99, 0.0, Backoff())) == (0.5, MAX_DELAY_SECONDS / 2)


@pytest.mark.parametrize(
    "wrong", [{"first": "0s"}, {"first": "99ms"}, {"longest": "500ms"}, {"first": "2h", "longest": "1h"}]
)
def test_what_would_be_no_pause_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="first pause"):
        Backoff(**wrong)
