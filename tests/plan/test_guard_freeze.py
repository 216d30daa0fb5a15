"""Freezes by Git, by operators and by guards: what they hold, what they say, who lifts them, and the forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.finding import Severity
from gitops_agent.model.plan import Decision, Effect, Plan, Verdict
from gitops_agent.plan.guards import evaluate, with_verdict
from tests.plan import make

pytestmark = pytest.mark.unit

DAY = 86400.0


def frozen(scope: str, **options: Any) -> Control:
    options.setdefault("actor", "ann")
    options.setdefault("at", make.NOW - 60)
    return Control(ControlVerb.FREEZE, scope, reason="we are moving house", **options)


def two_dead(policy: Any = None, **options: Any) -> Plan:
    """A plan that would bring two agents of two tenants back."""
    members = [make.running(name, {"a": 1}) for name in ("acme/bot", "umbrella/bot")]
    desired = make.snapshot([declared for declared, *_ in members], policy)
    return make.plan(desired, [], [recorded for _, recorded, _ in members], **options)


def allowed(plan: Plan) -> list[str]:
    return [str(action.key.agent) for action in plan.allowed]


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        ("*", []),
        ("acme", ["umbrella/bot"]),
        ("umbrella/bot", ["acme/bot"]),
        ("umbrella/other", ["acme/bot", "umbrella/bot"]),
    ],
)
def test_an_operator_freezes_a_scope(scope: str, left: list[str]) -> None:
    plan = two_dead(freezes=[frozen(scope)])
    assert allowed(plan) == left
    assert {action.decision for action in plan.actions if action.key in plan.held} <= {Decision.WAIT}
    waiting = Severity.WARNING if len(left) < 2 else Severity.INFO
    assert [(each.code, each.severity) for each in plan.findings] == [("Frozen", waiting)]


def test_an_operators_freeze_says_who_why_since_when_and_the_command_that_lifts_it() -> None:
    (finding,) = two_dead(freezes=[frozen("*", until=make.NOW + 60)]).findings
    assert (finding.severity, finding.address) == (Severity.WARNING, "*")
    assert finding.summary == "frozen until 1970-01-12T13:47:40Z: we are moving house"
    assert "by ann since 1970-01-12T13:45:40Z, scope *" in finding.detail
    assert "2 agents have work waiting" in finding.detail
    assert "gitops-agent unfreeze --scope '*' --reason …" in finding.detail


def test_a_freeze_by_git_says_how_git_lifts_it() -> None:
    plan = two_dead({"freeze": {"scope": "acme", "reason": "audit"}})
    assert allowed(plan) == ["umbrella/bot"]
    (finding,) = plan.findings
    assert "commit a Policy without this freeze (that commit may change nothing else)" in finding.detail
    own = two_dead({"tenants": {"acme": {"freeze": {"scope": "*", "reason": "audit"}}}})
    assert allowed(own) == ["umbrella/bot"], "the freeze of a tenant never reaches beyond it"


def test_only_the_newest_policy_freezes() -> None:
    old = make.snapshot([], {"freeze": {"reason": "audit"}}).policy
    assert len(allowed(two_dead(earlier_policy=old))) == 2


def test_a_guards_freeze_lets_what_people_approved_through_and_an_operators_does_not() -> None:
    first, second = two_dead().actions
    tripped = frozen("*", actor="guard mass_drift", plan="d" * 32)
    plan = two_dead(freezes=[tripped], approved={first.digest})
    assert allowed(plan) == [str(first.key.agent)]
    assert plan.held == {second.key}
    (finding,) = plan.findings
    for way_out in ("gitops-agent unfreeze --scope '*'", f"gitops-agent approve {'d' * 32}", "gitops-agent drift"):
        assert way_out in finding.detail
    both = two_dead(freezes=[tripped, frozen("*")], approved={first.digest})
    assert allowed(both) == []


@pytest.mark.parametrize(
    ("age", "until", "forgotten"),
    [(DAY + 1, None, True), (DAY, None, False), (9 * DAY, make.NOW + 1, False), (-DAY, None, False)],
)
def test_a_freeze_without_an_end_is_forgotten_after_a_day(
    age: float, until: float | None, forgotten: bool
) -> None:
    quiet = make.running("acme/bot", {"a": 1})
    freeze = frozen("acme", at=make.NOW - age, until=until)
    plan = make.plan(make.snapshot([quiet[0]]), [quiet[2]], [quiet[1]], freezes=[freeze])
    assert [finding.code for finding in plan.findings] == ["FreezeForgotten" if forgotten else "Frozen"]
    assert plan.actions == ()
    assert not plan.blocked
    if forgotten:
        assert "gitops-agent unfreeze --scope 'acme'" in plan.findings[0].detail
        assert "--until" in plan.findings[0].detail


def test_a_freeze_by_git_without_an_end_is_forgotten_too() -> None:
    quiet = make.running("acme/bot", {"a": 1})

    def codes(policy: Any, **since: float) -> list[str]:
        plan = make.plan(make.snapshot([quiet[0]], policy), [quiet[2]], [quiet[1]], frozen_since=since)
        for finding in plan.findings:
            assert "commit a Policy without this freeze" in finding.detail
            if finding.code == "FreezeForgotten":
                assert "commit a Policy that gives it an until" in finding.detail
        return [finding.code for finding in plan.findings]

    freeze = {"scope": "acme", "reason": "audit"}
    assert codes({"freeze": freeze}, acme=make.NOW - DAY - 1) == ["FreezeForgotten"]
    assert codes({"tenants": {"acme": {"freeze": freeze}}}, acme=make.NOW - DAY - 1) == ["FreezeForgotten"]
    assert codes({"freeze": freeze}, acme=make.NOW - DAY) == ["Frozen"]
    assert codes({"freeze": freeze}) == [], "nobody has seen it yet"
    assert codes({"freeze": {**freeze, "until": "1999-01-01T00:00:00Z"}}, acme=0.0) == ["Frozen"], "it has an end"
    assert codes({}, acme=0.0) == [], "it was lifted"


@pytest.mark.parametrize(
    ("policy", "scope", "forgotten"),
    [
        ({"freezeReminder": "1h"}, "*", True),
        ({"freezeReminder": "2h"}, "*", False),
        ({"tenants": {"acme": {"freezeReminder": "1h"}}}, "acme/bot", True),
        ({"tenants": {"acme": {"freezeReminder": "1h"}}}, "*", False),
        ({"freezeReminder": "1h", "tenants": {"acme": {"freezeReminder": "9h"}}}, "acme", True),
    ],
)
def test_the_policy_says_how_soon_a_freeze_is_taken_for_forgotten(
    policy: dict[str, Any], scope: str, forgotten: bool
) -> None:
    found = two_dead(policy, freezes=[frozen(scope, at=make.NOW - 5400)]).findings
    assert [finding.code for finding in found] == ["Frozen"] + ["FreezeForgotten"] * forgotten


def test_one_more_verdict_on_a_finished_plan_holds_what_follows_too() -> None:
    keys = [make.key("acme/bot", kind, "x") for kind in ("config", "runtime", "dns")]
    agents = [make.agent("acme/bot", [make.resource(key, {"a": 1}) for key in keys]), make.agent("t/b", {"a": 1})]
    plan = make.plan(make.snapshot(agents))
    verdict = Verdict("lease", Effect.TRIM, frozenset({keys[1]}))
    more = with_verdict(plan, verdict)
    assert more.held == {keys[1], keys[2]}
    assert more.verdicts == (*plan.verdicts, verdict)
    assert {action.decision for action in more.actions if action.key in more.held} == {Decision.WAIT}
    assert allowed(more) == ["acme/bot", "t/b"]
    assert more.digest == plan.digest
    again = with_verdict(more, replace(verdict, guard="other", decision=Decision.ALERT))
    assert again.actions == more.actions, "who held first has decided"


def test_a_quiet_plan_is_not_asked_about() -> None:
    context = make.context(make.snapshot([make.agent("t/a")]))
    bare = Plan("c" * 40, (), "d")
    assert evaluate(bare, context) is bare
