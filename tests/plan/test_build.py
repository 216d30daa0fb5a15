"""The stage as a whole: scope, health, patches, digests, summaries, what an action carries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Evidence, Owner
from gitops_agent.model.plan import Class, Confidence, Decision, Verb
from gitops_agent.model.status import Health, HealthState
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PlanContext
from gitops_agent.report.json_shapes import count_verbs
from tests.plan import make

pytestmark = pytest.mark.unit

SAID = (Evidence("heartbeat", "none within 60 s", make.NOW), Evidence("liveness probe", "fails", make.NOW))
STUCK = Health(HealthState.STUCK, "HeartbeatStale", "no heartbeat for 90 s.", restart=True, evidence=SAID)


def test_health_restarts_a_runtime_that_is_in_sync() -> None:
    declared, recorded, seen = make.running("acme/bot", {"a": 1})
    plan = make.plan(make.snapshot([declared]), [seen], [recorded], {declared.key: STUCK})
    (action,) = plan.allowed
    assert (action.verb, action.drift_class, action.reason) == (
        Verb.RESTART,
        Class.STUCK_PROGRESS,
        "HeartbeatStale",
    )
    assert (action.confidence, action.message, action.patch) == (Confidence.HIGH, STUCK.message, ())
    assert action.evidence == SAID


def test_a_rotated_secret_does_not_hide_that_an_agent_is_stuck() -> None:
    """A hint to restart it when it suits would be wrong while a tool call is open."""
    declared, recorded, seen = make.running("acme/bot", {"a": 1})
    rotated = replace(seen, reason="SecretRotated")
    stuck = Health(HealthState.STUCK, "ToolCallStuck", "a tool call is open.")
    for observed in (seen, rotated):
        [action] = make.plan(make.snapshot([declared]), [observed], [recorded], {declared.key: stuck}).actions
        assert (action.reason, action.drift_class) == ("ToolCallStuck", Class.STUCK_PROGRESS)
        assert action.decision is Decision.ASK


def test_health_does_not_restart_what_is_stopped_dead_foreign_or_not_a_runtime() -> None:
    declared, recorded, seen = make.running("acme/bot", {"a": 1})
    healths = {declared.key: STUCK}
    stopped = make.stopped(declared)
    asleep = replace(recorded, fields=Fields.of({"a": 1, "stopped": True}))
    assert make.plan(make.snapshot([stopped]), [], [asleep], healths).actions == ()
    assert make.verbs(make.plan(make.snapshot([declared]), [], [recorded], healths))[0][0] == "create"
    foreign = replace(seen, owner=Owner.OTHER)
    assert make.plan(make.snapshot([declared]), [foreign], [recorded], healths).allowed == ()
    config = make.key("acme/bot", "config", "bundle")
    agent = make.agent("acme/bot", [make.resource(config, {"a": 1})])
    plan = make.plan(make.snapshot([agent]), [make.live(config, {"a": 1})], [make.base(config, {"a": 1})], healths)
    assert plan.actions == ()


def test_health_without_a_wish_changes_nothing() -> None:
    declared, recorded, seen = make.running("acme/bot", {"a": 1})
    sick = Health(HealthState.UNHEALTHY, "ReadinessFailed", "not ready.")
    assert make.plan(make.snapshot([declared]), [seen], [recorded], {declared.key: sick}).actions == ()


def test_an_action_carries_its_legs_facts_and_terms() -> None:
    key = make.key("acme/bot")
    agent = make.agent(
        "acme/bot", [make.resource(key, {"a": 2, "b": 1}, idempotent=False)], deletion_policy=DeletionPolicy.RETAIN
    )
    pids, old = Fields.of({"pid": 7}), Fields.of({"pid": 6})
    proof = (Evidence("kernel", "pid 7 is there", make.NOW),)
    seen = make.live(key, {"a": 1}, handle=pids, evidence=proof)
    plan = make.plan(make.snapshot([agent]), [seen], [make.base(key, {"a": 1, "b": 1}, handle=old)])
    (action,) = plan.actions
    assert (action.base, action.desired, action.live) == tuple(
        map(Fields.of, ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1}))
    )
    assert (action.handle, action.evidence, action.driver) == (pids, proof, "fake")
    assert (action.deletion_policy, action.idempotent) == (DeletionPolicy.RETAIN, False)
    assert action.patch == ({"op": "replace", "path": "/a", "value": 2},)
    assert "Fields: a." in action.message


def test_what_is_gone_keeps_the_facts_of_its_base() -> None:
    key, old = make.key("acme/bot"), Fields.of({"pid": 6})
    agent = make.agent("acme/bot", {"a": 1})
    plan = make.plan(make.snapshot([agent]), [make.live(key, None)], [make.base(key, {"a": 1}, handle=old)])
    assert plan.actions[0].handle == old


def test_patches_lead_from_what_is_to_what_is_desired() -> None:
    key = make.key("acme/bot")
    cases: list[tuple[Any, Any, Any, Any]] = [
        ({"a": 1, "h": 1}, {"a": 2, "h": 2, "n": []}, {"a": 3}, {"a": 3, "h": 1}),
        ({"a": 1}, {"a": 1}, None, {}),
        (None, {"a": 1, "h": 1}, {"a": 2}, {"a": 2, "h": 1}),
    ]
    for base, desired, live, before in cases:
        plan = make.plan(
            make.snapshot([make.agent("acme/bot", desired)]),
            [make.live(key, live)],
            [make.base(key, base)] if base else [],
        )
        assert jsonpatch.apply_patch(before, list(plan.actions[0].patch)) == desired
    plan = make.plan(
        make.snapshot([make.agent("other/bot")]), [make.live(key, {"a": 1})], [make.base(key, {"a": 1, "h": 2})]
    )
    assert jsonpatch.apply_patch({"a": 1, "h": 2}, list(plan.actions[0].patch)) == {}


def test_scope_limits_the_plan_to_some_agents() -> None:
    agents = [make.agent(f"t/{n}", {"a": 1}) for n in range(5)]
    gone, orphan = make.key("t/gone"), make.key("t/orphan")
    scope = frozenset({AgentKey("t", "3"), AgentKey("t", "gone"), AgentKey("t", "never")})
    bases = [make.base(gone, {"a": 1}), make.base(make.key("t/also-gone"), {"a": 1})]
    plan = make.plan(make.snapshot(agents), [make.live(orphan, {"a": 1})], bases, scope=scope)
    assert make.verbs(plan) == [("forget", str(gone)), ("create", "t/3:runtime/process")]


class Unwalkable(dict[Any, Any]):
    """A mapping that may be asked but not walked."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("a scoped pass walked the whole fleet")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_a_scoped_pass_never_walks_the_desired_fleet() -> None:
    members = [make.running(f"t/{n}", {"a": 1}) for n in range(10)]
    bases = {base.key: base for _, base, _ in members}
    key = AgentKey("t", "3")
    agents = {declared.key: declared for declared, *_ in members} | {key: make.agent("t/3", {"a": 2})}
    snapshot = replace(make.snapshot([]), agents=Unwalkable(agents))
    context = PlanContext(
        now=make.NOW,
        snapshot=snapshot,
        bases=bases,
        attempts=Unwalkable(),
        scope=frozenset({key}),
    )
    plan = build(snapshot, [members[3][2]], context, Unwalkable({key: STUCK}))
    assert make.verbs(plan) == [("update", "t/3:runtime/process")]


def test_an_object_seen_twice_is_judged_by_the_more_doubtful_owner() -> None:
    declared, recorded, seen = make.running("acme/bot", {"a": 1})
    foreign = replace(seen, owner=Owner.OTHER)
    for observations in ([seen, foreign], [foreign, seen]):
        plan = make.plan(make.snapshot([declared]), observations, [recorded])
        assert [action.reason for action in plan.actions] == ["MarkedByOther"]


def test_the_plan_follows_the_snapshot_it_is_given() -> None:
    new = make.snapshot([make.agent("t/a", {"a": 1})])
    plan = build(new, [], make.context(make.snapshot([])), {})
    assert [action.verb for action in plan.allowed] == [Verb.CREATE]


def test_old_evidence_asks_and_commits_do_not_need_any() -> None:
    declared, recorded, seen = make.running("acme/bot", {"a": 1})
    old = replace(seen, fields=Fields.of({"a": 5}), observed_at=make.NOW - 301)
    (action,) = make.plan(make.snapshot([declared]), [old], [recorded]).actions
    assert (action.confidence, action.decision) == (Confidence.MEDIUM, Decision.ASK)
    stale = replace(seen, observed_at=make.NOW - 301)
    (action,) = make.plan(make.snapshot([make.agent("acme/bot", {"a": 2})]), [stale], [recorded]).actions
    assert (action.confidence, action.decision) == (Confidence.HIGH, Decision.REPAIR)


def test_a_resource_repaired_too_often_waits_and_is_not_asked_about() -> None:
    declared, recorded, _ = make.running("acme/bot", {"a": 1})
    for repairs, confidence, decision in (
        (4, Confidence.HIGH, Decision.REPAIR),
        (5, Confidence.MEDIUM, Decision.WAIT),
    ):
        plan = make.plan(
            make.snapshot([declared]), [], [recorded], repairs={recorded.key: [make.NOW - 1.0] * repairs}
        )
        assert (plan.actions[0].confidence, plan.actions[0].decision) == (confidence, decision)


def test_the_digest_names_the_work_and_nothing_else() -> None:
    declared, recorded, seen = make.running("acme/bot", {"a": 1})
    wanted = make.agent("acme/bot", {"a": 2})
    plan = make.plan(make.snapshot([wanted]), [seen], [recorded])
    later = make.plan(
        make.snapshot([replace(wanted, description="new words")], sha="d" * 40),
        [replace(seen, handle=Fields.of({"pid": 9}), observed_at=make.NOW + 5, live={"pid": 9}, message="hello")],
        [replace(recorded, commit="e" * 40, applied_at=0.0)],
        now=make.NOW + 10,
        attempts={},
    )
    assert later.digest == plan.digest
    held = make.plan(make.snapshot([wanted], {"actionsPerMinute": 1}), [seen], [recorded])
    assert held.digest == plan.digest
    others = [
        make.plan(make.snapshot([make.agent("acme/bot", {"a": 3})]), [seen], [recorded]),
        make.plan(make.snapshot([wanted]), [make.live(seen.key, {"a": 7})], [recorded]),
        make.plan(make.snapshot([wanted]), [seen], [replace(recorded, fields=Fields.of({"a": 8}))]),
        make.plan(make.snapshot([wanted]), [], [recorded]),
        make.plan(make.snapshot([declared]), [seen], [recorded]),
    ]
    assert len({plan.digest, *(other.digest for other in others)}) == 6
    assert len({action.digest for other in (plan, later) for action in other.actions}) == 1


def test_the_summary_counts_what_is_wanted_and_what_is_held() -> None:
    members = [make.running(f"t/{n}", {"a": 1}) for n in range(6)]
    orphan = make.live(make.key("t/orphan"), {"a": 1})
    plan = make.plan(
        make.snapshot([make.agent("t/new", {"a": 1}), members[5][0]]),
        [*(seen for *_, seen in members[:5]), orphan],
        [base for _, base, _ in members],
    )
    assert plan.blocked
    assert count_verbs(plan) == {
        "create": 2, "update": 0, "restart": 0, "stop": 0, "delete": 5,
        "adopt": 0, "forget": 0, "release": 0, "held": 6,
    }  # fmt: skip
    assert [str(action.key.agent) for action in plan.allowed] == ["t/5"]
