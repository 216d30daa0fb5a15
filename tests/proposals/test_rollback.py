"""Rollback: which commits an operator means, in the order of history, and the plan of what undoes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gitops_agent.errors import SourceRefused, UsageError
from gitops_agent.model.revision import Revision
from gitops_agent.proposals.rollback import RollbackCommand
from gitops_agent.support.secrets import Redactor
from tests.report.values import a_plan

pytestmark = pytest.mark.unit

HISTORY = [f"{number:02}" + "0" * 38 for number in range(100)]
"""The commits of the branch, oldest first."""


class Branch:
    """A branch in memory; the dates of its commits tell nothing about their order."""

    def __init__(self) -> None:
        self.reverted: list[tuple[list[str], str]] = []
        self.restored: list[tuple[str, str]] = []
        self.pushed: list[tuple[str, str]] = []
        self.stray = "f" * 40
        self.empty: frozenset[str] = frozenset()

    def refresh(self) -> Revision:
        return self.revision(HISTORY[-1])

    def revision(self, ref: str) -> Revision:
        found = [sha for sha in [*HISTORY, self.stray, "new"] if sha.startswith(ref)]
        if not found:
            raise SourceRefused(f"there is no commit {ref}", hint="see gitops-agent history")
        at = HISTORY.index(found[0]) if found[0] in HISTORY else 0
        tree = next((sha for sha in HISTORY[at::-1] if sha not in self.empty), "")
        return Revision(found[0], tree, tuple(HISTORY[at - 1 : at]), "Ada", 0.0, 0.0, f"commit {found[0][:2]}")

    def is_ancestor(self, old: str, new: str) -> bool:
        return HISTORY.index(old) <= HISTORY.index(new)

    def between(self, old: str | None, new: str) -> tuple[Revision, ...]:
        assert old is not None
        return tuple(map(self.revision, HISTORY[HISTORY.index(old) + 1 : HISTORY.index(new) + 1]))

    def history(self, sha: str, limit: int) -> tuple[Revision, ...]:
        newest_first = HISTORY[HISTORY.index(sha) :: -1]
        return tuple(map(self.revision, newest_first[:limit]))

    def revert(self, shas: Sequence[str], message: str) -> str:
        self.reverted.append(([sha[:2] for sha in shas], message))
        return "new"

    def restore(self, to: str, message: str) -> str:
        self.restored.append((to[:2], message))
        return "new"

    def check_push(self, branch: str) -> None:
        if branch == "protected":
            raise SourceRefused("takes no push")

    def push(self, sha: str, branch: str) -> None:
        self.pushed.append((sha, branch))


@pytest.fixture
def branch() -> Branch:
    return Branch()


@pytest.fixture
def command(branch: Branch) -> RollbackCommand:
    def plan(sha: str) -> object:
        assert sha == "new"
        return a_plan()

    return RollbackCommand(branch, branch, plan, "main", Redactor())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("commits", "undone", "message"),
    [
        ([], ["99"], 'Revert "commit 99"'),
        (["98"], ["98"], 'Revert "commit 98"'),
        (["03", "97", "40"], ["97", "40", "03"], f"Revert 3 commits, {HISTORY[3][:10]} to {HISTORY[97][:10]}"),
        (["96..98"], ["98", "97"], f"Revert 2 commits, {HISTORY[97][:10]} to {HISTORY[98][:10]}"),
        (["97..", "98"], ["99", "98"], f"Revert 2 commits, {HISTORY[98][:10]} to {HISTORY[99][:10]}"),
    ],
)
def test_commits_are_undone_newest_first_each_once(
    command: RollbackCommand, branch: Branch, commits: list[str], undone: list[str], message: str
) -> None:
    made = command.propose(commits, None, None)
    assert branch.reverted == [(undone, message)]
    assert (made.sha, made.plan) == ("new", a_plan())
    assert branch.pushed == []
    command.writer.push(made.sha, "main")
    assert branch.pushed == [("new", "main")]


def test_an_earlier_tree_is_restored(command: RollbackCommand, branch: Branch) -> None:
    command.propose([], "40", None)
    command.propose([], "40", "Back to Monday")
    assert branch.restored == [("40", f'Restore "commit 40" ({HISTORY[40][:10]})'), ("40", "Back to Monday")]


def test_an_empty_commit_on_top_goes_back_to_the_last_good_tree(command: RollbackCommand, branch: Branch) -> None:
    branch.empty = frozenset(HISTORY[98:])  # 97 is blocked, and two approvals of it are empty
    replace(command, last_good=HISTORY[96]).propose([], None, None)
    assert branch.restored == [("96", f'Restore "commit 96" ({HISTORY[96][:10]})')]
    assert branch.reverted == []
    replace(command, last_good=HISTORY[99]).propose([], None, None)
    assert branch.reverted == [(["99"], 'Revert "commit 99"')], "the fleet is as the empty commit asks for already"


@pytest.mark.parametrize(
    ("commits", "to", "why"),
    [
        (["98"], "40", "not both"),
        (["ff"], None, "is not part of main"),
        (["xyz"], None, "there is no commit xyz"),
        ([], "xyz", "there is no commit xyz"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    command: RollbackCommand, commits: list[str], to: str | None, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        command.propose(commits, to, None)


def test_a_push_that_would_be_refused_is_known_beforehand(command: RollbackCommand) -> None:
    command.writer.check_push("main")
    with pytest.raises(SourceRefused):
        command.writer.check_push("protected")
