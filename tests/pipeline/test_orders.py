"""What is in force for a pass: folded from controls and Git, never more than was on record, cheap when quiet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.control.directives import Orders, approved_by
from gitops_agent.model.control import Control, ControlVerb, freezes, spent
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.passes import Approval
from gitops_agent.model.revision import Revision
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.plan.digest import plan_digest
from gitops_agent.testing.clock import FrozenClock
from tests.journal.values import a_commit, a_plan, an_action

pytestmark = pytest.mark.unit
OLD, NEW = "0a" * 20, "0b" * 20
HEAD = Revision(NEW, "t", (OLD,), "Ada <ada@example.com>", 1.0, 1.0, "Tidy up")
DIGESTS = ["a1", "b2", "c3", "d4"]
TARGETS = ["*", "acme", "acme/bot"]


class Paper:
    """A journal of which Orders needs five questions; counts them. ``done``: when which action was done."""

    def __init__(self, controls: Sequence[Control] = (), plans: dict[str, frozenset[str]] | None = None) -> None:
        self.said = [replace(each, seq=number) for number, each in enumerate(controls, 1)]
        self.plans = plans or {}
        self.records: list[CommitRecord] = []
        self.done: list[tuple[str, float]] = []
        self.asked: Counter[str] = Counter()

    def last_control(self) -> int:
        self.asked["last_control"] += 1
        return self.said[-1].seq if self.said else 0

    def controls(self) -> Sequence[Control]:
        self.asked["controls"] += 1
        return list(self.said)

    def planned(self, digest: str) -> frozenset[str]:
        self.asked["planned"] += 1
        return self.plans.get(digest, frozenset())

    def carried_out(self, digest: str, since: float) -> frozenset[str]:
        self.asked["carried_out"] += 1
        return frozenset(action for action, at in self.done if at >= since and action in self.plans[digest])

    def commits(self, limit: int | None = None) -> Sequence[CommitRecord]:
        self.asked["commits"] += 1
        return self.records[:limit]


class Endpoints:
    """Approvals in Git."""

    def __init__(self, *said: Approval) -> None:
        self.said = said
        self.since_what: str | None = None

    def since(self, enforced: str | None, head: Revision) -> Sequence[Approval]:
        self.since_what = enforced
        return self.said

    def objections(self, enforced: str | None, head: Revision) -> Sequence[Finding]:
        return ()


def orders(paper: Paper, clock: FrozenClock | None = None, voices: Endpoints | None = None) -> Orders:
    journal: Any = paper
    return Orders(journal, clock or FrozenClock(), voices)


def approve(digest: str, at: float = 10.0) -> Control:
    return Control(ControlVerb.APPROVE, digest, "ada@host", at)


controls = st.builds(
    Control,
    st.sampled_from(ControlVerb),
    st.sampled_from([*TARGETS, *DIGESTS]),
    st.just("ada@host"),
    st.floats(0, 100),
    until=st.none() | st.floats(0, 200),
    plan=st.sampled_from(["", *DIGESTS]),
)
plans = st.dictionaries(st.sampled_from(DIGESTS), st.frozensets(st.integers(0, 20).map(str)), max_size=4)


@given(st.lists(controls, max_size=8), plans, st.lists(st.sampled_from(DIGESTS), max_size=3))
def test_an_approval_covers_nothing_that_is_not_in_its_plan_on_record(
    said: list[Control], recorded: dict[str, frozenset[str]], in_git: list[str]
) -> None:
    voices = Endpoints(*(Approval(digest, "bob@example.com", "note") for digest in in_git))
    order = orders(Paper(said, recorded), voices=voices).now(OLD, HEAD)
    named = {approval.digest for approval in order.approvals}
    assert named <= {each.target for each in said} | {each.plan for each in said} | set(in_git)
    assert order.approved == frozenset[str]().union(*(recorded.get(digest, frozenset()) for digest in named))
    for digest, covered in order.covered.items():
        assert covered <= recorded.get(digest, frozenset())


@given(st.lists(controls, max_size=12), st.floats(0, 100), st.sets(st.sampled_from(DIGESTS)))
def test_retention_changes_nothing_that_is_in_force(
    said: list[Control], before: float, recorded: set[str]
) -> None:
    numbered = Paper(said).said
    gone = spent(numbered, before, recorded)
    left = [each for each in numbered if each.seq not in gone]
    for now in (before, before + 50, before + 500):
        assert set(freezes(left, now)) == set(freezes(numbered, now))
    assert all(each.at < before for each in numbered if each.seq in gone)
    plans_of = {each: frozenset({each}) for each in recorded}
    after, earlier = (orders(Paper(kept, plans_of)).now(OLD, HEAD).approved for kept in (left, numbered))
    assert after == earlier
    assert not numbered or numbered[-1].seq not in gone


def test_a_quiet_pass_costs_one_small_question() -> None:
    paper = Paper([approve("a1"), Control(ControlVerb.FREEZE, "*", "ada@host", 1.0)], {"a1": frozenset({"x"})})
    ours = orders(paper)
    first = ours.now(OLD, HEAD)
    paper.asked.clear()
    assert ours.now(OLD, HEAD) == first
    assert paper.asked == {"last_control": 1, "carried_out": 1}, "and one more while something approved is open"
    paper.done = [("x", 1e12)]
    ours.now(OLD, HEAD)
    paper.asked.clear()
    assert ours.now(OLD, HEAD).approved == frozenset()
    assert paper.asked == {"last_control": 1}


def test_an_approval_is_spent_action_by_action_and_the_same_plan_can_be_approved_again() -> None:
    paper = Paper([approve("a1", at=10.0)], {"a1": frozenset({"x", "y"})})
    paper.done = [("x", 5.0)]
    ours = orders(paper)
    assert ours.now(OLD, HEAD).approved == {"x", "y"}, "what was done before it was approved does not count"
    paper.done.append(("x", 11.0))
    assert ours.now(OLD, HEAD).approved == {"y"}
    paper.done.append(("y", 12.0))
    assert ours.now(OLD, HEAD).approved == frozenset()
    paper.said.append(replace(approve("a1", at=20.0), seq=2))
    assert ours.now(OLD, HEAD).approved == {"x", "y"}
    assert orders(paper).now(OLD, HEAD).approved == {"x", "y"}, "also after a restart"


def test_an_approval_in_git_that_was_carried_out_is_not_unmatched() -> None:
    paper = Paper(plans={"a1": frozenset({"x"})})
    paper.done = [("x", 11.0)]
    order = orders(paper, voices=Endpoints(Approval("a1", "bob@example.com", "note", 10.0, NEW))).now(OLD, HEAD)
    assert (order.approved, order.findings) == (frozenset(), ())


def test_a_freeze_ends_while_nobody_says_anything() -> None:
    clock = FrozenClock()
    paper = Paper([Control(ControlVerb.FREEZE, "*", "ada@host", clock.now(), until=clock.now() + 60)])
    ours = orders(paper, clock)
    assert len(ours.now(OLD, HEAD).freezes) == 1
    assert ours.now(OLD, HEAD).ends_in(clock.now()) == 60
    clock.advance(61)
    assert ours.now(OLD, HEAD).ends_in(clock.now()) is None
    assert ours.now(OLD, HEAD).freezes == ()


def test_what_is_added_is_heard() -> None:
    paper = Paper()
    ours = orders(paper)
    assert ours.now(OLD, HEAD).freezes == ()
    paper.said.append(Control(ControlVerb.FREEZE, "acme", "ada@host", 1.0, seq=1))
    assert [each.target for each in ours.now(OLD, HEAD).freezes] == ["acme"]


def test_a_plan_recorded_after_its_approval_is_covered_then() -> None:
    paper = Paper()
    ours = orders(paper, voices=Endpoints(Approval("a1", "bob@example.com", "note", 5.0, NEW)))
    order = ours.now(OLD, HEAD)
    assert order.approved == frozenset()
    assert [each.code for each in order.findings] == ["ApprovalUnmatched"]
    paper.plans["a1"] = frozenset({"x"})
    assert (ours.now(OLD, HEAD).approved, ours.now(OLD, HEAD).findings) == (frozenset({"x"}), ())


def test_an_approval_holds_until_a_later_commit_comes() -> None:
    """It survives its own commit being in force and converged, but not the next round of the same."""
    paper = Paper([approve("a1", at=50.0)], {"a1": frozenset({"x"})})
    voices = Endpoints()
    paper.records = [a_commit(NEW, 2, Phase.RECONCILING), a_commit(OLD, 1, finished_at=40.0)]
    assert orders(paper, voices=voices).now(NEW, HEAD).approved == {"x"}
    assert voices.since_what == OLD, "not the commit in force: its waves are not over"
    paper.records[0] = a_commit(NEW, 2, finished_at=60.0)
    assert orders(paper).now(NEW, HEAD).approved == {"x"}
    later = replace(HEAD, sha="0c" * 20)
    assert orders(paper, voices=voices).now(NEW, later).approved == frozenset()
    assert voices.since_what == NEW


def test_who_approved_is_told() -> None:
    key = ResourceKey(AgentKey("acme", "bot"), "runtime", "main")
    action, other = an_action(key), an_action(replace_id(key))
    digest = plan_digest([action])
    paper = Paper([approve(digest, at=1_700_000_000.0)], {digest: frozenset({action.digest})})
    order = orders(paper).now(OLD, HEAD)
    (said,) = approved_by(order, a_plan(action, other, commit=NEW))
    assert said.code == "ApprovedBy"
    assert said.summary == (
        f"plan {digest[:12]} was approved by ada@host on the command line at 2023-11-14T22:13:20Z"
    )
    assert digest in said.detail
    assert approved_by(order, a_plan(other)) == ()


def replace_id(key: ResourceKey) -> ResourceKey:
    return ResourceKey(key.agent, "config", "bundle")
