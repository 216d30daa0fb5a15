"""What is in force is folded from all that was ever said: freezes, and the plans that people approved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.control import Control, ControlVerb, approved_plans, covers, freezes
from gitops_agent.model.key import AgentKey

pytestmark = pytest.mark.unit

NOW = 100.0
FREEZE, UNFREEZE, APPROVE, RETRY = ControlVerb.FREEZE, ControlVerb.UNFREEZE, ControlVerb.APPROVE, ControlVerb.RETRY


def said(verb: ControlVerb, target: str, *, until: float | None = None, plan: str = "", seq: int = 0) -> Control:
    return Control(verb, target, "ann", 1.0, "because", until, plan, seq)


def scopes(*controls: Control, now: float = NOW) -> list[str]:
    return [control.target for control in freezes(controls, now)]


def test_scopes() -> None:
    bot = AgentKey("acme", "bot")
    assert [scope for scope in ("*", "acme", "acme/bot", "bot", "acme/b", "acm", "") if covers(scope, bot)] == [
        "*",
        "acme",
        "acme/bot",
    ]


def test_a_freeze_stands_until_its_scope_is_lifted_or_its_end_has_come() -> None:
    assert scopes(said(FREEZE, "*"), said(FREEZE, "acme")) == ["*", "acme"]
    assert scopes(said(FREEZE, "acme"), said(UNFREEZE, "*")) == ["acme"], "another scope is another freeze"
    assert scopes(said(FREEZE, "acme"), said(FREEZE, "acme"), said(UNFREEZE, "acme")) == []
    assert scopes(said(UNFREEZE, "acme"), said(FREEZE, "acme")) == ["acme"]
    assert scopes(said(FREEZE, "*", until=NOW)) == []
    assert scopes(said(FREEZE, "*", until=NOW + 1)) == ["*"]


def test_two_freezes_of_one_scope_both_stand() -> None:
    guard, ann = said(FREEZE, "*", plan="d"), said(FREEZE, "*", until=NOW + 1)
    assert freezes([guard, ann], NOW) == (guard, ann)
    assert freezes([guard, ann], NOW + 2) == (guard,)


def test_who_lifts_the_freeze_of_a_guard_approves_the_plan_that_tripped_it() -> None:
    tripped, lifted = said(FREEZE, "*", plan="d1"), said(UNFREEZE, "*")
    assert approved_plans([tripped]) == {}
    assert approved_plans([tripped, lifted]) == {"d1": lifted}
    assert approved_plans([tripped, said(UNFREEZE, "acme")]) == {}
    assert approved_plans([said(FREEZE, "*"), lifted]) == {}
    assert approved_plans([lifted, tripped]) == {}
    again = said(FREEZE, "*", plan="d2")
    assert list(approved_plans([tripped, lifted, again])) == ["d1"]


def test_plans_are_approved_by_name() -> None:
    assert list(approved_plans([said(APPROVE, "d1"), said(RETRY, "acme/bot"), said(APPROVE, "d2")])) == [
        "d1",
        "d2",
    ]


controls = st.lists(
    st.builds(
        said,
        st.sampled_from(ControlVerb),
        st.sampled_from(["*", "acme", "acme/bot"]),
        until=st.sampled_from([None, NOW - 1, NOW + 1]),
        plan=st.sampled_from(["", "d1", "d2"]),
    ),
    max_size=8,
)


@given(controls, controls)
def test_folding_knows_only_order(first: list[Control], second: list[Control]) -> None:
    """What stands is what was said last of each scope; approvals are never taken back."""
    whole = freezes([*first, *second], NOW)
    assert all(control.verb is FREEZE and control.until in (None, NOW + 1) for control in whole)
    lifted = {control.target for control in second if control.verb is UNFREEZE}
    spared = [control for control in freezes(first, NOW) if control.target not in lifted]
    assert all(control in whole for control in spared)
    assert approved_plans(first).keys() <= approved_plans([*first, *second]).keys()
    assert freezes([*first, *(said(UNFREEZE, scope) for scope in ("*", "acme", "acme/bot"))], NOW) == ()
