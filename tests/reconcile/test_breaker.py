"""The circuit breaker: which outcomes count, when a circuit opens, how long it rests, and what closes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Circuit, Outcome, Result
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.reconcile.retry import after_round, pause

pytestmark = pytest.mark.unit

NOW = 1000.0
POLICY = PolicySpec.model_validate(
    {"breaker": {"failures": 3, "pause": "30s"}, "tenants": {"strict": {"breaker": {"failures": 1}}}}
)


def ended(
    result: Result, driver: str = "process", verb: Verb = Verb.CREATE, **options: Any
) -> tuple[Action, Outcome]:
    agent = AgentKey(options.pop("tenant", "acme"), options.pop("name", "bot"))
    key = ResourceKey(agent, "runtime", driver)
    action = Action(key, driver, verb, Class.CHANGE, "x", "x", Confidence.HIGH, Decision.REPAIR)
    return action, Outcome("i", result, "no answer", NOW, 0.1, **options)


DONE = ended(Result.DONE)
FAILED, SECOND, THIRD = (ended(Result.FAILED, name=name) for name in ("a", "b", "c"))


def after(*outcomes: tuple[Action, Outcome], known: Circuit | None = None, now: float = NOW) -> Circuit:
    circuits = {known.driver: known} if known else {}
    made = after_round(circuits, outcomes, lambda tenant: limits_of(POLICY, tenant), now)
    return made.get("process", Circuit("process"))


def test_failures_in_a_row_open_the_circuit() -> None:
    two, three = ("acme/a", "acme/b"), ("acme/a", "acme/b", "acme/c")
    assert after(FAILED, SECOND) == Circuit("process", two, None, 0, "no answer")
    assert after(FAILED, SECOND, THIRD) == Circuit("process", three, NOW + 30, 1, "no answer")
    assert after(THIRD, known=after(FAILED, SECOND)) == after(FAILED, SECOND, THIRD)


def test_one_agent_that_fails_for_ever_stops_none_of_its_siblings() -> None:
    assert after(*[FAILED] * 50).open_until is None


def test_what_a_live_system_refuses_says_nothing_about_what_it_would_do_for_others() -> None:
    refused = [ended(Result.FAILED, name=name, of_system=False) for name in "abcdefgh"]
    assert after(*refused) == Circuit("process")
    two = ("acme/a", "acme/b")
    assert after(FAILED, *refused, SECOND) == Circuit("process", two, None, 0, "no answer"), "nor ends it a row"


def test_success_ends_a_row_and_closes_the_circuit() -> None:
    assert after(FAILED, SECOND, DONE, FAILED).failing == ("acme/a",)
    assert after(DONE, known=Circuit("process", tuple("abc"), NOW - 1, 4, "x")) == Circuit("process")


@pytest.mark.parametrize(
    "other",
    [
        ended(Result.FAILED, permanent=True),
        ended(Result.SKIPPED),
        ended(Result.UNKNOWN),
        ended(Result.DONE, verb=Verb.ADOPT),
    ],
    ids=["permanent", "skipped", "unknown", "record only"],
)
def test_what_says_nothing_about_the_driver_neither_counts_nor_ends_a_row(other: tuple[Action, Outcome]) -> None:
    assert after(other, other, other) == Circuit("process")
    assert after(FAILED, other, SECOND) == after(FAILED, SECOND)


def test_a_failed_trial_opens_it_again_for_twice_as_long() -> None:
    circuit, now, rests = after(FAILED, SECOND, THIRD), NOW, []
    for _ in range(6):
        assert circuit.open_until is not None
        rests.append(circuit.open_until - now)
        now = circuit.open_until
        circuit = after(FAILED, known=circuit, now=now)
    assert rests == [30, 60, 120, 240, 300, 300]


def test_what_was_under_way_does_not_make_the_rest_longer() -> None:
    circuit = after(FAILED, SECOND, THIRD)
    late = after(FAILED, ended(Result.FAILED, name="d"), known=circuit, now=NOW + 5)
    assert (late.open_until, late.trips, len(late.failing)) == (circuit.open_until, 1, 4)


def test_a_tenant_may_be_stricter_and_drivers_do_not_share_a_circuit() -> None:
    assert after(ended(Result.FAILED, tenant="strict")).open_until == NOW + 30
    assert after(FAILED, SECOND, ended(Result.FAILED, driver="config")).open_until is None


def test_a_pause_longer_than_the_cap_is_kept() -> None:
    limit = PolicySpec.model_validate({"breaker": {"pause": "10m"}}).breaker
    assert [pause(limit, trips) for trips in (0, 5, 10**6)] == [600.0] * 3


@given(
    st.lists(
        st.sampled_from([FAILED, SECOND, THIRD, DONE, ended(Result.SKIPPED), ended(Result.FAILED, permanent=True)])
    )
)
def test_rounds_may_be_cut_anywhere(outcomes: list[tuple[Action, Outcome]]) -> None:
    one_by_one = Circuit("process")
    for each in outcomes:
        one_by_one = after(each, known=one_by_one)
    assert after(*outcomes) == one_by_one
    assert (one_by_one.open_until is None) == (len(one_by_one.failing) < 3)
