"""The exit code of ``once`` follows the newest commit."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_agent.cli.exit_codes import exit_code
from gitops_agent.model.passes import PassResult, is_settled
from gitops_agent.model.state import CommitsState, SourceState, State
from gitops_agent.model.status import Phase
from tests.report.values import SHA, a_record

pytestmark = pytest.mark.unit


def result(phase: Phase | None = Phase.CONVERGED, **changes: Any) -> PassResult:
    """A pass that ended with the newest commit in a phase, or (None) without any commit."""
    if phase is None:
        return PassResult(State(), **changes)
    commits = CommitsState({SHA: a_record(phase=phase)})
    return PassResult(State(source=SourceState(head=SHA), commits=commits), **changes)


@pytest.mark.parametrize(
    ("ended", "timed_out", "code"),
    [
        (result(), False, 0),
        (result(Phase.INVALID), False, 3),
        (result(Phase.INVALID, frozen=True), False, 3),
        (result(Phase.BLOCKED), False, 4),
        (result(frozen=True), False, 4),
        (result(Phase.DEGRADED, frozen=True), False, 4),
        (result(Phase.DEGRADED), False, 5),
        (result(Phase.RECONCILING), False, 5),
        (result(), True, 5),
        (result(Phase.REFUSED), False, 6),
        (result(unavailable=True), False, 6),
        (result(Phase.INVALID, unavailable=True), False, 6),
        (result(None), False, 6),
    ],
)
def test_exit_codes(ended: PassResult, timed_out: bool, code: int) -> None:
    assert exit_code(ended, timed_out=timed_out) == code


@pytest.mark.parametrize(
    ("ended", "settled"),
    [
        (result(), True),
        (result(busy=True), False),
        (result(Phase.BLOCKED), True),
        (result(Phase.RECONCILING), False),
        (result(Phase.PENDING), False),
        (result(Phase.PENDING, unavailable=True), True),
        (result(None), True),
    ],
)
def test_once_ends_when_another_pass_would_change_nothing(ended: PassResult, settled: bool) -> None:
    assert is_settled(ended) is settled
