"""What is in force for a pass: folded from controls and Git, never more than was on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.control.directives import Controls, with_approvals
from gitops_agent.model.control import Control, ControlVerb, freezes, spent
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.passes import Approval, Directives, Now
from gitops_agent.model.plan import plan_digest
from gitops_agent.model.revision import Revision
from gitops_agent.model.state import CommitsState, ControlState, RolloutState, State
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.testing.clock import FrozenClock
from tests.journal.values import a_commit, a_plan, an_action

pytestmark = pytest.mark.unit
OLD, NEW = "0a" * 20, "0b" * 20
HEAD = Revision(NEW, "t", (OLD,), "Ada <ada@example.com>", 1.0, 1.0, "Tidy up")
DIGESTS = ["a1", "b2", "c3", "d4"]
TARGETS = ["*", "acme", "acme/bot"]


class Paper:
    """A journal of which Controls needs two questions, and the state of a pass; counts the questions.
    ``done``: when which action was done."""

    def __init__(self, controls: Sequence[Control] = (), plans: dict[str, frozenset[str]] | None = None) -> None:
        self.controls = [replace(each, seq=number) for number, each in enumerate(controls, 1)]
        self.plans = plans or {}
        self.records: list[CommitRecord] = []
        self.done: list[tuple[str, float]] = []
        self.asked: Counter[str] = Counter()
        self.first_seen: Mapping[str, float] = {}

    def planned(self, digest: str) -> frozenset[str]:
        self.asked["planned"] += 1
        return self.plans.get(digest, frozenset())

    def carried_out(self, digest: str, since: float) -> frozenset[str]:
        self.asked["carried_out"] += 1
        return frozenset(action for action, at in self.done if at >= since and action in self.plans[digest])

    def state(self, enforced: str = OLD) -> State:
        commits = CommitsState({each.sha: each for each in self.records})
        return State(
            control=ControlState(tuple(self.controls)), commits=commits, rollout=RolloutState(enforced=enforced)
        )


class InGit:
    """Approvals in Git."""

    def __init__(self, *approvals: Approval) -> None:
        self.approvals = approvals
        self.since_what: str | None = None

    def since(self, enforced: str | None, head: Revision) -> tuple[Sequence[Approval], Sequence[Finding]]:
        self.since_what = enforced
        return self.approvals, ()


class Asking:
    """Controls over a paper journal, asked as a pass would."""

    def __init__(self, paper: Paper, clock: FrozenClock | None = None, in_git: InGit | None = None) -> None:
        journal: Any = paper
        self._paper, self._clock = paper, clock or FrozenClock()
        self._controls = Controls(journal, in_git)

    def now(self, enforced: str = OLD, head: Revision = HEAD) -> Directives:
        time = Now(self._clock.now(), self._clock.monotonic())
        state = self._paper.state(enforced)
        state = replace(state, control=replace(state.control, approvals_first_seen=self._paper.first_seen))
        state, found = self._controls.in_force(state, head, time)
        self._paper.first_seen = state.control.approvals_first_seen
        return found


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
    asked: list[Control], recorded: dict[str, frozenset[str]], noted: list[str]
) -> None:
    in_git = InGit(*(Approval(digest, "bob@example.com", "note") for digest in noted))
    directives = Asking(Paper(asked, recorded), in_git=in_git).now()
    named = {approval.digest for approval in directives.approvals}
    assert named <= {each.target for each in asked} | {each.plan for each in asked} | set(noted)
    assert directives.approved == frozenset[str]().union(*(recorded.get(digest, frozenset()) for digest in named))
    for digest, covered in directives.open_actions.items():
        assert covered <= recorded.get(digest, frozenset())


@given(st.lists(controls, max_size=12), st.floats(0, 100), st.sets(st.sampled_from(DIGESTS)))
def test_retention_changes_nothing_that_is_in_force(
    asked: list[Control], before: float, recorded: set[str]
) -> None:
    numbered = Paper(asked).controls
    gone = spent(numbered, before, recorded)
    left = [each for each in numbered if each.seq not in gone]
    for now in (before, before + 50, before + 500):
        assert set(freezes(left, now)) == set(freezes(numbered, now))
    assert all(each.at < before for each in numbered if each.seq in gone)
    plans_of = {each: frozenset({each}) for each in recorded}
    after, earlier = (Asking(Paper(kept, plans_of)).now().approved for kept in (left, numbered))
    assert after == earlier
    assert not numbered or numbered[-1].seq not in gone


def test_a_quiet_pass_asks_the_journal_nothing() -> None:
    paper = Paper([approve("a1"), Control(ControlVerb.FREEZE, "*", "ada@host", 1.0)], {"a1": frozenset({"x"})})
    ours = Asking(paper)
    first = ours.now()
    paper.asked.clear()
    assert ours.now() == first
    assert paper.asked == {"carried_out": 1}, "one question, while something approved is open"
    paper.done = [("x", 1e12)]
    ours.now()
    paper.asked.clear()
    assert ours.now().approved == frozenset()
    assert paper.asked == {}


def test_an_approval_is_spent_action_by_action_and_the_same_plan_can_be_approved_again() -> None:
    paper = Paper([approve("a1", at=10.0)], {"a1": frozenset({"x", "y"})})
    paper.done = [("x", 5.0)]
    ours = Asking(paper)
    assert ours.now().approved == {"x", "y"}, "what was done before it was approved does not count"
    paper.done.append(("x", 11.0))
    assert ours.now().approved == {"y"}
    paper.done.append(("y", 12.0))
    assert ours.now().approved == frozenset()
    paper.controls.append(replace(approve("a1", at=20.0), seq=2))
    assert ours.now().approved == {"x", "y"}
    assert Asking(paper).now().approved == {"x", "y"}, "also after a restart"


def test_an_approval_in_git_that_was_carried_out_is_not_unmatched() -> None:
    paper = Paper(plans={"a1": frozenset({"x"})})
    paper.done, paper.first_seen = [("x", 11.0)], {":a1": 10.0}
    directives = Asking(paper, in_git=InGit(Approval("a1", "bob@example.com", "note", 0.0, NEW))).now()
    assert (directives.approved, directives.findings) == (frozenset(), ())


def test_a_freeze_ends_by_itself() -> None:
    clock = FrozenClock()
    paper = Paper([Control(ControlVerb.FREEZE, "*", "ada@host", clock.now(), until=clock.now() + 60)])
    ours = Asking(paper, clock)
    assert len(ours.now().freezes) == 1
    assert ours.now().ends_in(clock.now()) == 60
    clock.advance(61)
    assert ours.now().ends_in(clock.now()) is None
    assert ours.now().freezes == ()


def test_a_control_that_is_added_counts() -> None:
    paper = Paper()
    ours = Asking(paper)
    assert ours.now().freezes == ()
    paper.controls.append(Control(ControlVerb.FREEZE, "acme", "ada@host", 1.0, seq=1))
    assert [each.target for each in ours.now().freezes] == ["acme"]


def test_a_plan_recorded_after_its_approval_is_covered_then() -> None:
    paper = Paper()
    ours = Asking(paper, in_git=InGit(Approval("a1", "bob@example.com", "note", 5.0, NEW)))
    directives = ours.now()
    assert directives.approved == frozenset()
    assert [each.code for each in directives.findings] == ["ApprovalUnmatched"]
    paper.plans["a1"] = frozenset({"x"})
    assert (ours.now().approved, ours.now().findings) == (frozenset({"x"}), ())


def test_an_approval_holds_until_a_later_commit_comes() -> None:
    """It survives its own commit being in force and converged, but not the next round of the same."""
    paper = Paper([approve("a1", at=50.0)], {"a1": frozenset({"x"})})
    in_git = InGit()
    paper.records = [a_commit(NEW, 2, Phase.RECONCILING), a_commit(OLD, 1, finished_at=40.0)]
    assert Asking(paper, in_git=in_git).now(NEW, HEAD).approved == {"x"}
    assert in_git.since_what == OLD, "not the commit in force: its waves are not over"
    paper.records[0] = a_commit(NEW, 2, finished_at=60.0)
    assert Asking(paper).now(NEW, HEAD).approved == {"x"}
    later = replace(HEAD, sha="0c" * 20)
    assert Asking(paper, in_git=in_git).now(NEW, later).approved == frozenset()
    assert in_git.since_what == NEW


def test_a_plan_names_its_approvers() -> None:
    key = ResourceKey(AgentKey("acme", "bot"), "runtime", "main")
    action, other = an_action(key), an_action(replace_id(key))
    digest = plan_digest([action])
    paper = Paper([approve(digest, at=1_700_000_000.0)], {digest: frozenset({action.digest})})
    directives = Asking(paper).now()
    (found,) = with_approvals(a_plan(action, other, commit=NEW), directives).findings
    assert found.code == "ApprovedBy"
    assert found.summary == (
        f"plan {digest[:12]} was approved by ada@host on the command line at 2023-11-14T22:13:20Z"
    )
    assert digest in found.detail
    assert with_approvals(a_plan(other), directives).findings == ()


def replace_id(key: ResourceKey) -> ResourceKey:
    return ResourceKey(key.agent, "config", "bundle")


def test_an_approval_in_git_is_dated_by_when_it_was_first_seen_and_so_is_spent() -> None:
    """Whatever date its author wrote: done since we saw it is done."""
    clock, paper = FrozenClock(), Paper(plans={"a1": frozenset({"1", "2"})})
    given = Approval("a1", "bob@example.com", "trailer", 4_070_908_800.0, NEW, stated_in=NEW)
    asking = Asking(paper, clock, InGit(given))
    first = asking.now()
    assert first.approved == {"1", "2"}
    assert [each.at for each in first.approvals] == [clock.now()]
    clock.advance(5.0)
    paper.done += [("1", clock.now()), ("2", clock.now())]
    again = Asking(paper, clock, InGit(given))  # also after a restart
    assert again.now().approved == frozenset()
    clock.advance(5.0)
    anew = replace(given, stated_in="0c" * 20)
    assert Asking(paper, clock, InGit(anew)).now().approved == {"1", "2"}, "taken back and given again"
