"""When commits of ours are made and pushed: recorded first, once, again after a failure, and never on a pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gitops_agent.errors import NothingToDo, SourceRefused, SourceUnavailable
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.passes import Directives, Now, PassRecord, Scope, SourceResult
from gitops_agent.model.plan import Action, Decision
from gitops_agent.model.revision import Revision
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import ProposalState, RevertProposal, RolloutState, State
from gitops_agent.proposals.import_live import ImportRefused, branch_of, update_imports
from gitops_agent.proposals.outbox import MAX_BACKOFF_SECONDS, ProposalOutbox
from gitops_agent.proposals.revert import (
    MAX_REVERTS_KEPT,
    OVERTAKEN,
    RevertProposer,
    propose_if_due,
    revert_finding,
    with_revert,
)
from tests.report.passes import a_pass_record
from tests.report.values import an_action

pytestmark = pytest.mark.unit

BOT = AgentKey("acme", "bot")
GOOD, BAD, REVERT, THEIRS = "a" * 40, "b" * 40, "c" * 40, "d" * 40
DOWN = SourceUnavailable("the remote does not answer")
PROPOSAL = f"gitops-agent/revert-{BAD[:10]}"


class Inline(Executor):
    """Runs jobs at once, on the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as problem:
            future.set_exception(problem)
        return future


class Remote:
    """The source and the writer of reverts in memory: a branch with a good commit, and a bad one on it."""

    def __init__(self) -> None:
        self.head = BAD
        self.made: list[str] = []
        self.pushed: list[tuple[str, str]] = []
        self.tried = 0
        self.down: Exception | None = None
        self.make_error: Exception | None = None
        self.protected: set[str] = set()
        self.meanwhile: Callable[[], None] = lambda: None

    def refresh(self) -> Revision:
        return self.revision(self.head)

    def revision(self, ref: str) -> Revision:
        return Revision(ref, "t", (self.head,) if ref == REVERT else (), "Ada", 0.0, 0.0, f"subject of {ref[:1]}")

    def between(self, old: str | None, new: str) -> tuple[Revision, ...]:
        assert (old, new) == (GOOD, BAD)
        return (self.revision(BAD),)

    def restore(self, to: str, message: str) -> str:
        assert to == GOOD
        assert f"This reverts commit {BAD}." in message
        self.meanwhile()
        if self.make_error is not None:
            raise self.make_error
        self.made.append(REVERT)
        return REVERT

    def has(self, sha: str) -> bool:
        return sha in (GOOD, BAD, *self.made)

    def tip(self, branch: str) -> str | None:
        if self.down is not None:
            raise self.down
        return next((sha for sha, pushed in self.pushed if pushed == branch), None)

    def check_push(self, branch: str) -> None:
        """Every branch may be tried."""

    def push(self, sha: str, branch: str) -> None:
        self.tried += 1
        if self.down is not None:
            raise self.down
        self.meanwhile()
        if branch in self.protected or (branch == "main" and self.head != BAD):
            raise SourceRefused(f"{branch} takes no push")
        self.pushed.append((sha, branch))


class FakeImporter:
    """Proposes nothing; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[Action], Finding | None] = lambda action: Finding(
            Severity.INFO, "ImportProposed", str(action.key), "proposed"
        )

    def propose(self, action: Action) -> Finding | None:
        self.asked.append(branch_of(action))
        return self.answer(action)


def wish(value: int = 3, agent: AgentKey = BOT) -> Action:
    step = {"op": "replace", "path": "/replicas", "value": value, "before": 1}
    return an_action(key=ResourceKey(agent, "runtime", "process"), decision=Decision.IMPORT, patch=(step,))


@dataclass
class Passes:
    """The calls that a pass makes, in its order: collect, update, commit, start."""

    remote: Remote = field(default_factory=Remote)
    importer: FakeImporter = field(default_factory=FakeImporter)
    executor: Executor | None = field(default_factory=Inline)
    on_failure: str = "Revert"
    converged: str | None = GOOD
    hold: float = 0.0
    now: Now = field(default_factory=lambda: Now(1000.0, 0.0))
    woken: int = 0
    committed: ProposalState = field(default_factory=ProposalState)

    def __post_init__(self) -> None:
        self.head = BAD
        self.rollout: Rollout | None = None
        self.boot()

    def boot(self) -> None:
        """Start another process: it has what was committed, and nothing else."""
        reverter = RevertProposer(self.remote, self.remote, "main")  # type: ignore[arg-type]
        self.outbox = ProposalOutbox(reverter, self.importer, self._wake, self.executor)  # type: ignore[arg-type]

    def _wake(self) -> None:
        self.woken += 1

    def fail_gate(self) -> None:
        waves = ((BOT,),)
        self.rollout = Rollout(BAD, "t", waves, released=1, failed="not Ready", on_failure=self.on_failure)

    def run(self, *wishes: Action, scope: Scope = None, freezes: tuple[Control, ...] = ()) -> ProposalState:
        """One pass; what it committed."""
        proposals = self.outbox.collect(self.committed, self.now)
        record = self.record(*wishes, scope=scope, freezes=freezes)
        rollout = RolloutState(rollout=self.rollout, converged=self.converged)
        state = State(rollout=rollout, proposals=proposals)
        proposals = propose_if_due(state, record, self.now)
        proposals = update_imports(proposals, record, self.now, hold_seconds=self.hold)
        self.state = replace(state, proposals=proposals)
        progress = self.outbox.progress(self.committed, self.state, record, self.now)
        self.reverting, self.wait = progress.reverting, progress.wait
        self.committed = proposals
        self.outbox.start(self.state, record, self.now)
        return proposals

    def record(self, *wishes: Action, scope: Scope, freezes: tuple[Control, ...]) -> PassRecord:
        source = SourceResult(head=self.remote.revision(self.head))
        return a_pass_record(*wishes, scope=scope, source=source, directives=Directives(freezes=freezes))

    def settle(self, *wishes: Action) -> ProposalState:
        for _ in range(4):
            self.run(*wishes)
        return self.committed

    def later(self, seconds: float) -> None:
        self.now = Now(self.now.wall + seconds, self.now.active + seconds)

    @property
    def revert(self) -> RevertProposal:
        (proposal,) = self.committed.reverts.values()
        return proposal


@pytest.fixture
def passes() -> Passes:
    return Passes()


def findings(proposals: ProposalState) -> tuple[Finding, ...]:
    return tuple(each.finding for each in proposals.imports.values() if each.finding is not None)


def freeze(target: str) -> tuple[Control, ...]:
    return (Control(ControlVerb.FREEZE, target, "ada", 0.0, "incident"),)


# -- reverts


def test_a_revert_is_recorded_before_it_is_made_and_made_before_it_is_pushed(passes: Passes) -> None:
    passes.run()
    assert passes.committed == ProposalState()
    passes.fail_gate()
    passes.run()
    assert (passes.revert, passes.remote.made) == (RevertProposal(BAD), [REVERT]), (
        "the job started after the commit"
    )
    assert passes.reverting
    passes.run()
    assert (passes.revert.sha, passes.remote.pushed) == (REVERT, [(REVERT, "main")])
    assert passes.reverting
    passes.run()
    assert passes.revert == RevertProposal(BAD, REVERT, "main", True, f"reverted by {REVERT[:10]}")
    assert not passes.reverting
    assert revert_finding(passes.revert).code == "Reverted"
    passes.settle()
    assert (passes.remote.made, passes.remote.pushed) == ([REVERT], [(REVERT, "main")])
    assert passes.woken == 2, "the end of a job asks for a pass"


@pytest.mark.parametrize("passes_before", range(5))
def test_whenever_we_die_the_same_commit_is_pushed(passes: Passes, passes_before: int) -> None:
    passes.fail_gate()
    for _ in range(passes_before):
        passes.run()
    passes.boot()
    passes.settle()
    assert {sha for sha, _ in passes.remote.pushed} == {REVERT}
    assert passes.revert.finished


def test_hold_leaves_git_alone() -> None:
    passes = Passes(on_failure="Hold")
    passes.fail_gate()
    assert passes.settle() == ProposalState()


def test_a_proposal_leaves_the_branch_and_is_named() -> None:
    passes = Passes(on_failure="ProposeRevert")
    passes.fail_gate()
    passes.settle()
    assert passes.remote.pushed == [(REVERT, PROPOSAL)]
    assert (revert_finding(passes.revert).code, PROPOSAL in passes.revert.message) == ("RevertProposed", True)


def test_nothing_may_be_pushed() -> None:
    passes = Passes()
    passes.outbox = ProposalOutbox(None, None)
    passes.fail_gate()
    passes.settle(wish())
    assert passes.remote.made == []
    assert (passes.reverting, passes.wait) == (False, None)


def test_a_remote_that_is_down_is_tried_again_later_and_later(passes: Passes) -> None:
    passes.fail_gate()
    passes.remote.down = DOWN
    waits = []
    for _ in range(40):
        tried = passes.remote.tried
        passes.run()
        if passes.remote.tried == tried and passes.wait:
            assert not passes.reverting, "nothing is under way while it waits"
            waits.append(passes.wait)
            passes.later(passes.wait)
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]
    assert waits[-1] <= MAX_BACKOFF_SECONDS * 1.2
    passes.run()
    passes.remote.down = None
    passes.later(waits[-1] * 2)
    passes.settle()
    assert (passes.remote.made, passes.remote.pushed) == ([REVERT], [(REVERT, "main")])


def test_an_unexpected_error_is_tried_again_too(passes: Passes) -> None:
    passes.fail_gate()
    passes.remote.make_error = OSError(28, "No space left")
    passes.settle()
    assert passes.revert == RevertProposal(BAD)
    passes.remote.make_error = None
    passes.later(60)
    passes.settle()
    assert passes.revert.finished


def test_a_commit_pushed_before_ours_was_made_wins(passes: Passes) -> None:
    passes.fail_gate()
    passes.remote.meanwhile = lambda: setattr(passes.remote, "head", THEIRS)
    passes.settle()
    assert (passes.remote.pushed, passes.revert.message) == ([], f"no revert was made: {OVERTAKEN}")


def test_a_commit_pushed_before_ours_was_sent_wins(passes: Passes) -> None:
    passes.fail_gate()
    passes.run()
    passes.remote.meanwhile = lambda: setattr(passes.remote, "head", THEIRS)
    passes.settle()
    assert (passes.remote.pushed, passes.revert.message, passes.revert.branch) == ([], OVERTAKEN, "")
    assert revert_finding(passes.revert).code == "NotReverted"


def test_a_newer_head_ends_the_revert_of_the_one_before(passes: Passes) -> None:
    passes.fail_gate()
    passes.remote.down = DOWN
    passes.settle()
    passes.remote.down = None
    passes.head = THEIRS
    passes.later(600)
    passes.settle()
    assert passes.remote.pushed == []
    assert (passes.reverting, passes.wait) == (False, None)


def test_a_branch_that_takes_no_push_gets_a_proposal(passes: Passes) -> None:
    passes.fail_gate()
    passes.remote.protected = {"main"}
    passes.settle()
    assert passes.remote.pushed == [(REVERT, PROPOSAL)]


def test_no_branch_takes_a_push(passes: Passes) -> None:
    passes.fail_gate()
    passes.remote.protected = {"main", PROPOSAL}
    passes.settle()
    assert passes.revert.finished
    assert revert_finding(passes.revert).code == "NotReverted"
    assert "takes no push" in passes.revert.message


def test_a_revert_that_fails_is_not_reverted(passes: Passes) -> None:
    passes.committed = with_revert(ProposalState(), RevertProposal(GOOD, BAD, "main", True, "reverted"))
    passes.fail_gate()
    passes.settle()
    assert passes.remote.made == []


def test_nothing_ever_converged_so_there_is_no_way_back() -> None:
    passes = Passes(converged=None)
    passes.fail_gate()
    passes.settle()
    assert "no commit has ever converged" in passes.revert.message


def test_a_tree_that_is_there_already_needs_no_revert(passes: Passes) -> None:
    passes.fail_gate()
    passes.remote.make_error = NothingToDo("already so")
    passes.settle()
    assert "nothing to revert" in passes.revert.message


@pytest.mark.parametrize("target", ["*", "acme", "acme/bot"])
def test_in_a_freeze_git_is_left_alone(passes: Passes, target: str) -> None:
    passes.fail_gate()
    for _ in range(3):
        passes.run(freezes=freeze(target))
    assert (passes.committed, passes.remote.made) == (ProposalState(), [])
    passes.run()
    passes.run(freezes=freeze(target))
    passes.run(freezes=freeze(target))
    assert passes.remote.pushed == [], "made, and not pushed while the freeze is in force"
    passes.run(freezes=freeze("other"))
    assert passes.remote.pushed == [(REVERT, "main")]


def test_so_many_reverts_are_kept() -> None:
    proposals = ProposalState()
    for number in range(MAX_REVERTS_KEPT + 5):
        proposals = with_revert(proposals, RevertProposal(f"{number}"))
    proposals = with_revert(proposals, RevertProposal("5", finished=True))
    assert list(proposals.reverts)[-1] == "5"
    assert len(proposals.reverts) == MAX_REVERTS_KEPT


# -- imports


def test_each_change_is_proposed_once_also_across_restarts(passes: Passes) -> None:
    passes.settle(wish())
    (finding,) = findings(passes.committed)
    assert finding.summary == "proposed"
    passes.boot()
    passes.settle(wish())
    assert passes.importer.asked == [branch_of(wish())]
    assert findings(passes.committed) == (finding,)
    passes.settle(wish(4))
    assert passes.importer.asked == [branch_of(wish()), branch_of(wish(4))], "another value is another proposal"


def test_a_value_must_hold_before_it_is_proposed() -> None:
    passes = Passes(hold=60.0)
    passes.run(wish(2))
    passes.later(40)
    passes.run(wish(3))
    passes.later(40)
    passes.run(wish(3))
    assert (passes.wait, passes.importer.asked) == (20.0, [])
    assert passes.outbox.due_agents(passes.committed, passes.now) == frozenset()
    passes.later(20)
    assert passes.outbox.due_agents(passes.committed, passes.now) == {BOT}, "a scoped pass must plan for it"
    passes.run(wish(3))
    assert passes.importer.asked == [branch_of(wish(3))]
    passes.run(wish(3))
    assert passes.wait is None


def test_in_a_freeze_nothing_is_proposed(passes: Passes) -> None:
    passes.run(wish(), freezes=freeze("acme"))
    assert (passes.importer.asked, passes.wait) == ([], None)
    passes.run(wish())
    assert passes.importer.asked == [branch_of(wish())]


def test_what_is_no_longer_wanted_is_forgotten_within_the_scope(passes: Passes) -> None:
    passes.settle(wish())
    passes.run(scope=frozenset({AgentKey("other", "cat")}))
    assert len(passes.committed.imports) == 1
    passes.run(scope=frozenset({BOT}))
    assert passes.committed.imports == {}


def test_a_remote_that_does_not_answer_is_asked_again_later(passes: Passes) -> None:
    proposed = passes.importer.answer

    def down(action: Action) -> Finding | None:
        raise SourceUnavailable(f"no answer for {action.key}")

    passes.importer.answer = down
    passes.settle(wish())
    assert (len(passes.importer.asked), findings(passes.committed)) == (1, ())
    assert passes.wait is not None
    passes.importer.answer = proposed
    passes.later(passes.wait)
    passes.settle(wish())
    assert len(findings(passes.committed)) == 1


def test_what_was_refused_is_tried_again_when_git_moves(passes: Passes) -> None:
    proposed = passes.importer.answer

    def refuse(action: Action) -> Finding | None:
        change: Any = type(
            "Change", (), {"action": action, "agent": type("Agent", (), {"origin": "x", "key": BOT})}
        )
        raise ImportRefused(change, "an overlay sets it")

    passes.importer.answer = refuse
    passes.settle(wish())
    assert [each.code for each in findings(passes.committed)] == ["ImportRefused"]
    assert (len(passes.importer.asked), passes.wait) == (1, None)
    passes.importer.answer = proposed
    passes.head = THEIRS
    passes.settle(wish())
    assert [each.code for each in findings(passes.committed)] == ["ImportProposed"]


def test_a_result_that_is_no_longer_wanted_is_dropped(passes: Passes) -> None:
    passes.run(wish())
    passes.committed = ProposalState()
    assert passes.outbox.collect(passes.committed, passes.now) == ProposalState()


# -- threads


def test_a_job_that_hangs_holds_neither_a_pass_nor_a_revert_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops_agent.proposals.outbox.CLOSE_SECONDS", 0.01)
    passes, gate, pushed = Passes(executor=None), threading.Event(), threading.Event()

    def hang(action: Action) -> Finding | None:
        del action
        assert gate.wait(20)
        return None

    passes.importer.answer = hang
    passes.run(wish())
    passes.fail_gate()
    monkeypatch.setattr(passes.remote, "push", lambda *_: pushed.set())
    while not pushed.is_set():
        passes.run(wish())
        pushed.wait(0.01)
    passes.outbox.close()
    assert not gate.is_set(), "the import hangs, and was not waited for"
    assert all(thread.daemon for thread in threading.enumerate() if thread.name in ("revert", "import"))
    gate.set()


def test_what_ends_while_we_close_is_collected(passes: Passes) -> None:
    passes = Passes(executor=None)
    passes.run(wish())
    passes.outbox.close()
    assert len(findings(passes.outbox.collect(passes.committed, passes.now))) == 1
