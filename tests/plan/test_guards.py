"""Every guard at its edges: what it holds, what it lets through, and what it says."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.agent import Agent, DeletionPolicy, Lifecycle, Mode, Pause
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Decision, Effect, Plan, Verdict
from gitops_agent.plan.guards import GUARDS
from tests.plan import make

pytestmark = pytest.mark.unit

BOT = AgentKey("acme", "bot")


def verdict(plan: Plan, guard: str) -> Verdict:
    return next(each for each in plan.verdicts if each.guard == guard)


def allowed(plan: Plan) -> list[str]:
    return [str(action.key.agent) for action in plan.allowed]


def changed(**options: Any) -> Plan:
    """A plan that would update the one agent there is."""
    declared, recorded, seen = make.running("acme/bot", {"a": 1}, **options)
    wanted = replace(declared, resources=(make.resource(make.key("acme/bot"), {"a": 2}),))
    return make.plan(make.snapshot([wanted]), [seen], [recorded])


def test_every_guard_is_evaluated_and_named_after_its_function() -> None:
    assert [each.guard for each in changed().verdicts] == [guard.__name__ for guard in GUARDS]  # type: ignore[attr-defined]


def test_observe_mode_reports_and_does_nothing() -> None:
    plan = changed(mode=Mode.OBSERVE)
    assert allowed(plan) == []
    assert [action.decision for action in plan.actions] == [Decision.ALERT]
    (finding,) = plan.findings
    assert (finding.severity, finding.code) == (Severity.INFO, "ObserveMode")
    assert "agents/acme/bot.yaml:1" in finding.detail


def test_observe_mode_still_keeps_the_record() -> None:
    declared, _, seen = make.running("acme/bot", {"a": 1}, mode=Mode.OBSERVE)
    assert [action.verb for action in make.plan(make.snapshot([declared]), [seen]).allowed] == ["adopt"]


@pytest.mark.parametrize(
    ("until", "holds"),
    [(None, True), (make.NOW + 1, True), (make.NOW, False), (make.NOW - 1, False), (math.inf, True)],
)
def test_pause_lasts_until_its_end(until: float | None, holds: bool) -> None:
    plan = changed(pause=Pause("migration", until))
    assert (allowed(plan) == []) == holds
    if holds:
        (finding,) = plan.findings
        assert finding.code == "Paused"
        assert "migration" in finding.summary
        assert [action.decision for action in plan.actions] == [Decision.WAIT]


def test_pause_says_when_it_ends() -> None:
    (finding,) = changed(pause=Pause(None, make.NOW + 86400)).findings
    assert finding.summary == "paused until 1970-01-13T13:46:40Z: no reason given"


def fleet(count: int, tenant: str = "acme") -> list[tuple[Agent, Any, Any]]:
    return [make.running(f"{tenant}/bot-{number:03}", {"a": 1}) for number in range(count)]


def plan_of(
    kept: Iterable[Agent], members: Iterable[tuple[Agent, Any, Any]], policy: Any = None, **options: Any
) -> Plan:
    members = list(members)
    return make.plan(
        make.snapshot(kept, policy), [seen for *_, seen in members], [base for _, base, _ in members], **options
    )


def without(members: list[tuple[Agent, Any, Any]], lost: int) -> list[Agent]:
    return [declared for declared, *_ in members[lost:]]


def test_an_empty_source_deletes_nothing() -> None:
    members = fleet(1)
    plan = plan_of([], members)
    assert plan.blocked
    assert allowed(plan) == []
    assert [action.decision for action in plan.actions] == [Decision.ASK]
    assert [finding.code for finding in plan.findings if finding.severity is Severity.ERROR] == ["EmptySource"]


def test_an_empty_source_with_nothing_on_record_is_fine() -> None:
    assert plan_of([], []).verdicts == ()


@pytest.mark.parametrize(
    ("size", "lost", "blocks"),
    [
        (2, 2, False),  # all of them, but fewer than three
        (4, 3, True),  # small fleets are guarded too
        (10, 3, False),  # 3 is not more than 3.0
        (10, 4, True),
        (16, 5, True),  # 5 > 4.8
        (17, 5, False),  # 5 < 5.1
        (20, 6, False),  # 6 is not more than 6.0
        (20, 7, True),
        (5, 5, True),
    ],
)
def test_mass_delete_needs_both_numbers(size: int, lost: int, blocks: bool) -> None:
    members = fleet(size)
    extra = make.agent("other/keep")  # so that the source is never empty
    plan = plan_of([*without(members, lost), extra], members)
    assert plan.blocked is blocks
    if blocks:
        finding = verdict(plan, "mass_delete").findings[0]
        assert (finding.severity, finding.code) == (Severity.ERROR, "MassDelete")
        assert finding.summary == f"{lost} of {size} agents of the fleet would be stopped or deleted"
        for way_out in ("split the commit", "earlier commit", "gitops-agent rollback"):
            assert way_out in finding.detail
        assert allowed(plan) == []


def retired(declared: Agent) -> Agent:
    return replace(declared, lifecycle=Lifecycle.RETIRED, resources=())


def moved_to_other_driver(declared: Agent) -> Agent:
    key = make.key(str(declared.key), identity="pm2")
    return replace(declared, resources=(make.resource(key, {"a": 1}),))


def moved_to_other_tenant(declared: Agent) -> Agent:
    return make.agent(f"umbrella/{declared.key.name}", {"a": 1})


@pytest.mark.parametrize("fate", [retired, make.stopped, moved_to_other_driver, moved_to_other_tenant])
def test_mass_delete_counts_every_way_to_lose_a_runtime(fate: Any) -> None:
    members = fleet(10)
    kept = [declared if number >= 5 else fate(declared) for number, (declared, *_) in enumerate(members)]
    plan = plan_of(kept, members)
    assert plan.blocked
    assert plan.allowed == ()


def test_mass_delete_does_not_count_retained_or_stopped_or_forgotten_agents() -> None:
    members = fleet(10)
    retain = [(a, replace(b, deletion_policy=DeletionPolicy.RETAIN), seen) for a, b, seen in members]
    assert not plan_of(without(retain, 5), retain).blocked
    stopped = make.resource(make.key("x/x"), {"a": 1, "stopped": True}).fields
    asleep = [(a, replace(b, fields=stopped), make.live(b.key, None)) for a, b, _ in members]
    assert not plan_of(without(asleep, 5), asleep).blocked


def test_mass_delete_judges_a_tenant_by_itself() -> None:
    members, others = fleet(10), fleet(90, "umbrella")
    kept = [*without(members, 5), *(declared for declared, *_ in others)]
    plan = plan_of(kept, [*members, *others])
    assert [finding.summary for finding in verdict(plan, "mass_delete").findings] == [
        "5 of 10 agents of tenant acme would be stopped or deleted"
    ]


@pytest.mark.parametrize(
    ("tenant", "blocks"),
    [
        ({"massDelete": {"min": 2, "ratio": 0.1}}, True),
        ({"massDelete": {"min": 2, "ratio": 0.2}}, False),  # 2 is not more than 2.0
        ({"massDelete": {"min": 3, "ratio": 0.1}}, False),
        ({"actionsPerMinute": 100}, False),
    ],
)
def test_a_tenant_may_be_stricter(tenant: Any, blocks: bool) -> None:
    members = fleet(10)
    assert plan_of(without(members, 2), members, {"tenants": {"acme": tenant}}).blocked is blocks


def test_exactly_the_ratio_does_not_trip_although_binary_fractions_fall_short() -> None:
    members = fleet(100)
    policy = {"massDelete": {"min": 5, "ratio": 0.29}}
    assert not plan_of(without(members, 29), members, policy).blocked
    assert plan_of(without(members, 30), members, policy).blocked


def test_a_tenant_can_not_be_looser() -> None:
    members = fleet(10)
    policy = {"tenants": {"acme": {"massDelete": {"min": 100, "ratio": 1.0}}}}
    assert plan_of(without(members, 5), members, policy).blocked


def test_the_policy_can_be_looser_for_all() -> None:
    members = fleet(10)
    policy = {"massDelete": {"min": 6, "ratio": 0.3}, "tenants": {"acme": {"actionsPerMinute": 100}}}
    assert not plan_of(without(members, 5), members, policy).blocked
    assert plan_of(without(members, 6), members, policy).blocked


def test_who_was_never_ready_is_no_loss_and_who_was_is_whatever_became_of_the_commit() -> None:
    members = [(a, replace(b, established=False, commit="bad"), seen) for a, b, seen in fleet(10)]
    kept, keys = without(members, 8), frozenset(declared.key for declared, *_ in members)
    assert not plan_of(kept, members).blocked
    assert plan_of(kept, members, ready=keys).blocked
    ready_once = [(a, replace(b, established=True), seen) for a, b, seen in members]
    assert plan_of(kept, ready_once).blocked


@pytest.mark.parametrize("earlier_is_stricter", [True, False])
def test_the_stricter_of_two_policies_holds(earlier_is_stricter: bool) -> None:
    strict, loose = PolicySpec(), PolicySpec.model_validate({"massDelete": {"min": 100, "ratio": 1.0}})
    members = fleet(10)
    old, new = (strict, loose) if earlier_is_stricter else (loose, strict)
    assert plan_of(without(members, 8), members, policy=new, earlier_policy=old).blocked
    assert not plan_of(without(members, 8), members, policy=loose, earlier_policy=loose).blocked


def test_a_scoped_pass_can_not_slip_one_deletion_of_many_through() -> None:
    members = fleet(10)
    plan = plan_of(without(members, 8), members[:1], scope=frozenset({members[0][0].key}))
    assert not plan.blocked  # alone on record, it is one deletion
    bases = [base for _, base, _ in members]
    scoped = make.plan(
        make.snapshot(without(members, 8)), [members[0][2]], bases, scope=frozenset({members[0][0].key})
    )
    assert scoped.blocked
    assert scoped.allowed == ()


def test_a_scoped_pass_can_not_slip_one_stop_of_many_through() -> None:
    members = fleet(10)
    desired = [make.stopped(declared) for declared, *_ in members[:8]] + without(members, 8)
    bases = [base for _, base, _ in members]
    scoped = make.plan(make.snapshot(desired), [members[0][2]], bases, scope=frozenset({members[0][0].key}))
    assert scoped.blocked
    assert scoped.allowed == ()


def test_a_block_holds_what_the_commit_asks_and_repairs_the_rest() -> None:
    members, healthy, dead, conflict = fleet(5), *(make.running(f"other/{n}", {"a": 1}) for n in ("x", "y", "z"))
    wanted = [
        replace(healthy[0], resources=(make.resource(healthy[1].key, {"a": 2}),)),
        dead[0],
        replace(conflict[0], resources=(make.resource(conflict[1].key, {"a": 2}),)),
    ]
    seen = [healthy[2], make.live(dead[1].key, None), make.live(conflict[1].key, {"a": 3})]
    bases = [base for _, base, _ in (*members, healthy, dead, conflict)]
    plan = make.plan(make.snapshot(wanted), [*(s for *_, s in members), *seen], bases)
    assert plan.blocked
    assert allowed(plan) == ["other/y"]
    assert len(verdict(plan, "mass_delete").held) == 7


@pytest.mark.parametrize(("ahead", "holds"), [(0.5, True), (0.0, False), (-0.5, False)])
def test_backoff_waits_for_the_next_try(ahead: float, holds: bool) -> None:
    declared, recorded, _ = make.running("acme/bot", {"a": 1})
    attempts = {recorded.key: Attempt(3, make.NOW + ahead, "command not found.")}
    plan = make.plan(make.snapshot([declared]), [], [recorded], attempts=attempts)
    assert (plan.allowed == ()) == holds
    if holds:
        (finding,) = plan.findings
        assert (finding.severity, finding.code) == (Severity.INFO, "Backoff")
        assert "3 times, next try at 1970-01-12T13:46:40Z" in finding.summary
        assert "command not found" in finding.detail
        assert plan.actions[0].decision is Decision.WAIT


@pytest.mark.parametrize(("ahead", "holds"), [(301.0, True), (3600.0, True), (3601.0, False)])
def test_backoff_waits_as_long_as_the_policy_of_the_tenant_says(ahead: float, holds: bool) -> None:
    """Further away than the longest pause is a next try only when the clock was set back: it is due at once."""
    desired = make.snapshot(
        [make.agent("acme/bot", {"a": 1})], {"tenants": {"acme": {"backoff": {"longest": "1h"}}}}
    )
    failed = {make.key("acme/bot"): Attempt(1, make.NOW + ahead, "no such program", permanent=True)}
    plan = make.plan(desired, attempts=failed)
    assert bool(verdict(plan, "backoff").held) == holds
    assert [finding.detail for finding in plan.findings if "every 1h" in finding.detail] != [] or not holds


def test_backoff_of_one_resource_holds_the_later_ones_of_its_agent() -> None:
    config, runtime, dns = (make.key("acme/bot", kind, "x") for kind in ("config", "runtime", "dns"))
    agent = make.agent("acme/bot", [make.resource(each, {"a": 1}) for each in (dns, runtime, config)])
    attempts = {runtime: Attempt(1, make.NOW + 9, "no")}
    plan = make.plan(make.snapshot([agent, make.agent("acme/other", {"a": 1})]), attempts=attempts)
    assert [str(action.key) for action in plan.allowed] == ["acme/bot:config/x", "acme/other:runtime/process"]
    assert verdict(plan, "backoff").held == {runtime}
    assert plan.held == {runtime, dns}


def chain(**ready: bool) -> Plan:
    """``c`` depends on ``b`` depends on ``a``; those named are on record, and Ready if they say so."""
    agents = [
        make.agent("t/a", {"a": 1}),
        make.agent("t/b", {"a": 1}, depends_on=(AgentKey("t", "a"),)),
        make.agent("t/c", {"a": 1}, depends_on=(AgentKey("t", "b"),)),
    ]
    keys = [make.key(f"t/{name}") for name in ready]
    return make.plan(
        make.snapshot(agents),
        [make.live(key, {"a": 1}) for key in keys],
        [make.base(key, {"a": 1}) for key in keys],
        ready=frozenset(AgentKey("t", name) for name, is_ready in ready.items() if is_ready),
    )


def test_dependencies_come_first_and_must_be_ready() -> None:
    assert allowed(chain()) == ["t/a"]
    assert allowed(chain(a=False)) == []
    assert allowed(chain(a=True)) == ["t/b"]
    assert allowed(chain(a=True, b=False)) == []
    assert allowed(chain(a=True, b=True)) == ["t/c"]
    findings = {finding.address: finding for finding in chain().findings}
    assert findings["t/c"].code == "WaitingForDependency"
    assert findings["t/c"].summary == "waits for t/b"


def dependent(content: Any, seen: Any, *, first: Any = None, **options: Any) -> Plan:
    """``t/b`` depends on ``t/a``, which is Ready; a is live as ``first`` says."""
    a, a_base, a_live = make.running("t/a", {"a": 1}, **options)
    b = make.agent("t/b", content, depends_on=(a.key,))
    if first is not None:
        a_live = make.live(a_base.key, first)
    bases = [a_base, make.base(make.key("t/b"), {"a": 1})]
    return make.plan(make.snapshot([a, b]), [a_live, make.live(make.key("t/b"), seen)], bases, ready={a.key})


def test_a_ready_dependency_with_work_to_do_is_waited_for() -> None:
    assert allowed(dependent({"a": 2}, {"a": 1})) == ["t/b"]
    assert allowed(dependent({"a": 2}, {"a": 1}, first={"a": 9})) == ["t/a"]


def test_a_ready_dependency_we_may_not_touch_is_not_waited_for() -> None:
    assert allowed(dependent({"a": 2}, {"a": 1}, first={"a": 9}, mode=Mode.OBSERVE)) == ["t/b"]


def test_repairs_in_place_do_not_wait_and_recreation_does() -> None:
    assert allowed(dependent({"a": 1}, {"a": 5}, first={"a": 9})) == ["t/a", "t/b"]
    assert allowed(dependent({"a": 1}, None, first={"a": 9})) == ["t/a"]


def test_deletions_never_wait() -> None:
    gone = make.key("t/b", identity="pm2")
    b = make.agent("t/b", [], depends_on=(AgentKey("t", "a"),))
    plan = make.plan(make.snapshot([b]), [make.live(gone, {"a": 1})], [make.base(gone, {"a": 1})])
    assert make.verbs(plan) == [("delete", "t/b:runtime/pm2")]
    assert len(plan.allowed) == 1


@pytest.mark.parametrize(("cap", "expected"), [(1, 1), (5, 5), (6, 6), (7, 6)])
def test_the_cap_keeps_the_first_actions(cap: int, expected: int) -> None:
    agents = [
        make.agent(name, [make.resource(make.key(name, kind, "x"), {"a": 1}) for kind in ("config", "runtime")])
        for name in ("t/a", "t/b", "t/c")
    ]
    plan = make.plan(make.snapshot(agents, {"actionsPerMinute": cap}))
    assert plan.allowed == tuple(action for action in plan.actions[:expected])
    assert [finding.code for finding in plan.findings] == (["ActionCap"] if cap < 6 else [])
    assert verdict(plan, "action_cap").effect is (Effect.TRIM if cap < 6 else Effect.PASS)


def test_the_cap_counts_only_what_the_other_guards_left() -> None:
    agents = [
        make.agent("t/a", {"a": 1}, pause=Pause("x")),
        make.agent("t/b", {"a": 1}),
        make.agent("t/c", {"a": 1}),
    ]
    plan = make.plan(make.snapshot(agents, {"actionsPerMinute": 1}))
    assert allowed(plan) == ["t/b"]


def test_the_cap_spares_the_record() -> None:
    members = fleet(4)
    plan = make.plan(
        make.snapshot([a for a, *_ in members], {"actionsPerMinute": 1}), [seen for *_, seen in members]
    )
    assert len(plan.allowed) == 4


def test_a_tenant_may_have_a_lower_cap() -> None:
    agents = [make.agent(f"{tenant}/{n}", {"a": 1}) for tenant in ("acme", "umbrella") for n in range(3)]
    policy = {"actionsPerMinute": 4, "tenants": {"acme": {"actionsPerMinute": 1}}}
    assert allowed(make.plan(make.snapshot(agents, policy))) == [
        "acme/0",
        "umbrella/0",
        "umbrella/1",
        "umbrella/2",
    ]


# -- mass delete of replicas


def scaled(sizes: dict[str, tuple[int, int]], policy: Any = None, **options: Any) -> Plan:
    """The plan of a commit that changes how many replicas agents have: before and after."""
    before = {name: make.running(name, {"a": 1, "replicas": size}) for name, (size, _) in sizes.items()}
    wanted = [make.agent(name, {"a": 1, "replicas": after}) for name, (_, after) in sizes.items()]
    bases = [base for _, base, _ in before.values()]
    seen = [live for *_, live in before.values()]
    return make.plan(make.snapshot(wanted, policy), seen, bases, **options)


def test_replicas_that_go_are_counted_like_agents() -> None:
    plan = scaled({f"acme/bot-{number}": (10, 1) for number in range(6)})
    assert plan.blocked
    (finding,) = verdict(plan, "mass_delete").findings
    assert finding.summary == "54 of 60 replicas of the fleet would be stopped or deleted"
    assert f"gitops-agent approve {plan.digest}" in finding.detail
    approved = frozenset(action.digest for action in plan.actions)
    again = scaled({f"acme/bot-{number}": (10, 1) for number in range(6)}, approved=approved)
    assert (again.blocked, len(again.allowed)) == (False, 6)


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ({"acme/a": (60, 6)}, True),
        ({"acme/a": (4, 2)}, False),  # two are few
        ({"acme/a": (10, 7)}, False),  # exactly the ratio
        ({"acme/a": (10, 6)}, True),
        ({"acme/a": (2, 30), "acme/b": (2, 1)}, False),  # more is no loss
    ],
)
def test_replicas_trip_by_both_numbers(sizes: dict[str, tuple[int, int]], blocks: bool) -> None:
    assert scaled(sizes).blocked is blocks


def test_a_large_agent_weighs_as_much_as_its_replicas() -> None:
    members = [make.running("acme/big", {"replicas": 8}), *fleet(10)]
    plan = plan_of([declared for declared, *_ in members[1:]], members)
    (finding,) = verdict(plan, "mass_delete").findings
    assert finding.summary == "8 of 18 replicas of the fleet would be stopped or deleted"


def test_replicas_that_live_decides_are_not_gits_to_take() -> None:
    _, recorded, seen = make.running("acme/a", {"replicas": 10})
    wanted = make.agent("acme/a", {"replicas": 1}, authority=(("runtime.replicas", "live"),))
    assert not make.plan(make.snapshot([wanted]), [seen], [recorded]).blocked
