"""When the next pass is due: the earliest cause decides, and no cause asks for it at once again and again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.outcome import Attempt, Circuit
from gitops_agent.model.passes import Directives, Now
from gitops_agent.model.plan import Action, Effect, Verdict
from gitops_agent.model.state import ReconcileState, RolloutState, State
from gitops_agent.model.status import Phase
from gitops_agent.status.requeue import (
    MIN_REQUEUE_SECONDS,
    SHORTEST_WAIT_SECONDS,
    UNREACHABLE_REQUEUE_SECONDS,
    is_busy,
    next_run,
)
from gitops_agent.status.summary import NO_TERMS, Summary
from tests.journal.values import RUNTIME, an_action
from tests.report.passes import a_pass_record, a_state
from tests.report.values import a_plan, a_record
from tests.rollout.test_waves import ROLLOUT

pytestmark = pytest.mark.unit
NOW = Now(1_700_000_000.0, 500.0)


def a_summary(*actions: Action, state: State | None = None, **changes: Any) -> Summary:
    done = a_state(a_record(phase=Phase.CONVERGED))
    return Summary(a_pass_record(*actions, **changes), state or done, NOW, NO_TERMS)


def with_attempt(next_at: float) -> State:
    attempts = {RUNTIME: Attempt(1, next_at, "no room", NOW.wall)}
    return replace(a_state(a_record(phase=Phase.CONVERGED)), reconcile=ReconcileState(attempts=attempts))


def test_nothing_is_foreseen() -> None:
    assert next_run(a_summary(), ()) is None
    assert next_run(a_summary(), (None, None)) is None


def test_the_earliest_of_all_causes_decides() -> None:
    assert next_run(a_summary(), (None, 7.0, 3.0)) == 3.0
    assert next_run(a_summary(unreachable={"memory": "no answer"}), (60.0,)) == UNREACHABLE_REQUEUE_SECONDS


@given(st.lists(st.none() | st.floats(0.0, 1e6), max_size=4))
def test_no_cause_asks_for_a_pass_at_once(others: list[float | None]) -> None:
    wait = next_run(a_summary(), others)
    assert wait is None or wait >= SHORTEST_WAIT_SECONDS


@pytest.mark.parametrize(("away", "wait"), [(-5.0, MIN_REQUEUE_SECONDS), (0.0, MIN_REQUEUE_SECONDS), (9.0, 9.0)])
def test_a_failed_action_is_tried_again_when_it_is_due(away: float, wait: float) -> None:
    assert next_run(a_summary(an_action(), state=with_attempt(NOW.wall + away)), ()) == wait


def test_what_waits_for_people_wakes_no_pass() -> None:
    action = an_action()
    held = Verdict("oscillation", Effect.TRIM, held=frozenset({action.key}), for_people=True)
    summary = a_summary(state=with_attempt(NOW.wall + 9.0), plan=a_plan(action, verdicts=(held,), held=held.held))
    assert next_run(summary, ()) is None


def test_a_freeze_that_ends_by_itself_wakes_a_pass() -> None:
    freezes = (Control(ControlVerb.FREEZE, "*", "ada@host", NOW.wall - 60, until=NOW.wall + 40),)
    assert next_run(a_summary(directives=Directives(freezes=freezes)), ()) == 40.0


def test_an_open_circuit_wakes_a_pass_when_it_holds_something() -> None:
    circuit = Circuit("memory", open_until=NOW.wall + 20)
    state = replace(a_state(), reconcile=ReconcileState(circuits={"memory": circuit}))
    action = an_action()
    held = Verdict("breaker", Effect.TRIM, held=frozenset({action.key}))
    assert next_run(a_summary(state=state), ()) is None
    assert next_run(a_summary(state=state, plan=a_plan(action, verdicts=(held,), held=held.held)), ()) == 20.0


def test_the_pause_between_two_waves_ends() -> None:
    rollout = RolloutState(rollout=replace(ROLLOUT, passed_at=NOW.active - 4.0))
    state = replace(a_state(a_record(phase=Phase.CONVERGED)), rollout=rollout)
    assert next_run(a_summary(state=state), ()) == 6.0
    assert is_busy(a_summary(state=state)), "a rollout goes on by itself"
    failed = replace(state, rollout=RolloutState(rollout=replace(ROLLOUT, failed="why")))
    assert next_run(a_summary(state=failed), ()) is None
    assert not is_busy(a_summary(state=failed)), "what failed waits for people"
