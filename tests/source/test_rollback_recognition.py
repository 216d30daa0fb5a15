"""A revert is recognised by what it does, not by what it says; tried on real git and on generated histories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.revision import Revision
from gitops_agent.source.commits import Rollback, recognise


def revision(sha: str, tree: str, *parents: str, message: str = "") -> Revision:
    return Revision(sha, tree, parents, "Ada", 0.0, 0.0, message)


def never(later: str, earlier: str) -> bool:
    return False


def always(later: str, earlier: str) -> bool:
    return True


EDITS = st.lists(st.integers(0, 5), min_size=1, max_size=12)


def line(trees: Sequence[int]) -> list[Revision]:
    """A linear history, newest first, one commit for each tree."""
    commits: list[Revision] = []
    for index, tree in enumerate(trees):
        parents = [commits[0].sha] if commits else []
        commits.insert(0, revision(f"c{index:039}", f"tree{tree}", *parents))
    return commits


@pytest.mark.unit
@given(EDITS)
def test_a_restored_tree_is_a_rollback_to_its_newest_holder(trees: list[int]) -> None:
    head, *earlier = line(trees)
    found = recognise(head, earlier, never)
    holders = [other.sha for other in earlier if other.tree == head.tree]
    changed = bool(earlier) and head.tree != earlier[0].tree
    if not holders or not changed:
        assert found is None
    else:
        shas = [other.sha for other in earlier]
        undone = tuple(shas[: shas.index(holders[0])])
        assert found == Rollback(holders[0], undone, undone)


@pytest.mark.unit
@given(EDITS)
def test_undone_and_kept_share_nothing_and_nothing_is_lost(trees: list[int]) -> None:
    head, *earlier = line(trees)
    found = recognise(head, earlier, never)
    if found is not None:
        assert found.undone
        assert found.to not in found.undone
        assert head.sha not in found.undone
        state = next(other.tree for other in earlier if other.sha == found.to)
        assert state == head.tree


@pytest.mark.unit
@given(EDITS, st.integers(0, 11))
def test_words_alone_prove_nothing(trees: list[int], which: int) -> None:
    _, *earlier = line([*trees, 99])
    named = earlier[which % len(earlier)]
    head = revision("d" * 40, "tree-new", earlier[0].sha, message=f"Revert\n\nThis reverts commit {named.sha}.\n")
    assert recognise(head, earlier, never) is None


@pytest.mark.unit
@pytest.mark.parametrize("width", [7, 40])
def test_a_named_commit_is_found_by_prefix(width: int) -> None:
    first, second, third = ("aa" * 20, "bb" * 20, "cc" * 20)
    earlier = [revision(third, "t3", second), revision(second, "t2", first), revision(first, "t1")]
    head = revision("dd" * 20, "t4", third, message=f'Revert "x"\n\nThis reverts commit {second[:width]}.')
    assert recognise(head, earlier, always) == Rollback(None, (second,), (second,))


@pytest.mark.unit
def test_a_name_in_the_middle_of_a_sentence_is_no_claim() -> None:
    earlier = [revision("bb" * 20, "t2", "aa" * 20), revision("aa" * 20, "t1")]
    head = revision("cc" * 20, "t3", "bb" * 20, message=f"Why: This reverts commit {'bb' * 20} only in spirit")
    assert recognise(head, earlier, always) is None


@pytest.mark.unit
def test_a_missing_path_is_no_state_to_go_back_to() -> None:
    earlier = [revision("b" * 40, "t1", "a" * 40), revision("a" * 40, "")]
    assert recognise(revision("c" * 40, "", "b" * 40), earlier, never) is None


@pytest.mark.unit
def test_without_a_known_parent_nothing_is_claimed() -> None:
    earlier = [revision("a" * 40, "t1")]
    assert recognise(revision("c" * 40, "t1", "f" * 40), earlier, never) is None


class Repository:
    """A scratch repository driven by the git command line, read as the source would read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, stdin: str | None = None) -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.path),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{
                f"GIT_{who}_{what}": "ada@example.com"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, name: str, content: str) -> str:
        (self.path / name).write_text(content)
        self.git("add", name)
        self.git("commit", "-q", "-m", f"{name} is {content}")
        return self.head()

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def history(self) -> list[Revision]:
        shas = self.git("log", "--topo-order", "--format=%H").split("\n")
        form = "--format=%H%x00%T%x00%P%x00%B"
        rows = [self.git("show", "-s", form, sha).split("\0") for sha in shas]
        return [revision(sha, tree, *parents.split(), message=text) for sha, tree, parents, text in rows]

    def patch_id(self, one: str, other: str) -> str:
        patch = self.git("diff", one, other)
        return self.git("patch-id", "--stable", stdin=patch + "\n").split(" ")[0] if patch else ""

    def undoes(self, later: str, earlier: str) -> bool:
        return self.patch_id(f"{later}^", later) == self.patch_id(earlier, f"{earlier}^")

    def merged(self, sha: str) -> Sequence[str]:
        shas = self.git("rev-list", f"{sha}^..{sha}").split()
        return [other for other in shas if other != sha]

    def judge(self) -> Rollback | None:
        head, *earlier = self.history()
        return recognise(head, earlier, self.undoes, self.merged)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    made.commit("base", "1")
    return made


def test_git_revert_of_the_last_commit(repository: Repository) -> None:
    first = repository.head()
    second = repository.commit("a", "1")
    repository.git("revert", "--no-edit", "HEAD")
    assert repository.judge() == Rollback(first, (second,), (second,))


def test_an_ordinary_commit_is_none(repository: Repository) -> None:
    repository.commit("a", "1")
    repository.commit("a", "2")
    assert repository.judge() is None


def test_git_revert_of_several_commits_one_by_one(repository: Repository) -> None:
    first = repository.head()
    shas = [repository.commit("a", text) for text in ("1", "2", "3")]
    repository.git("revert", "--no-edit", "HEAD~3..HEAD")
    assert repository.judge() == Rollback(first, (shas[0],), (shas[0],))


def test_git_revert_of_several_commits_at_once(repository: Repository) -> None:
    first = repository.head()
    shas = [repository.commit("a", text) for text in ("1", "2", "3")]
    repository.git("revert", "--no-commit", "HEAD~3..HEAD")
    repository.git("commit", "-q", "-m", "Back to where we were")
    assert repository.judge() == Rollback(first, tuple(reversed(shas)), tuple(reversed(shas)))


def test_git_revert_of_one_in_the_middle(repository: Repository) -> None:
    second = repository.commit("a", "1")
    repository.commit("b", "1")
    repository.git("revert", "--no-edit", second)
    assert repository.judge() == Rollback(None, (second,), (second,))


def test_a_revert_that_was_edited_is_not_one(repository: Repository) -> None:
    second = repository.commit("a", "1")
    repository.commit("b", "1")
    repository.git("revert", "--no-edit", second)
    (repository.path / "b").write_text("2")
    repository.git("commit", "-qa", "--amend", "--no-edit")
    assert repository.judge() is None


def test_git_revert_of_a_revert(repository: Repository) -> None:
    second = repository.commit("a", "1")
    repository.git("revert", "--no-edit", "HEAD")
    reverting = repository.head()
    repository.git("revert", "--no-edit", "HEAD")
    assert repository.judge() == Rollback(second, (reverting,), (reverting,))


def test_git_revert_of_a_revert_with_work_in_between(repository: Repository) -> None:
    second = repository.commit("a", "1")
    repository.git("revert", "--no-edit", second)
    reverting = repository.head()
    repository.commit("b", "1")
    repository.git("revert", "--no-edit", reverting)
    assert repository.judge() == Rollback(None, (reverting,), (reverting,))


def feature(repository: Repository, base: str) -> list[str]:
    """A branch of two commits from ``base``, merged into main; the merge last."""
    repository.git("checkout", "-q", "-b", "feature", base)
    brought = [repository.commit("f", text) for text in ("1", "2")]
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "-m", "Merge feature", "feature")
    return [*brought, repository.head()]


@pytest.mark.parametrize("later_work", [False, True])
def test_git_revert_of_a_merge(repository: Repository, later_work: bool) -> None:
    base = repository.head()
    mainline = repository.commit("m", "1")
    brought = feature(repository, base)
    if later_work:
        repository.commit("after", "1")
    repository.git("revert", "--no-edit", "-m", "1", brought[-1])
    found = repository.judge()
    assert found is not None
    assert found.to == (None if later_work else mainline)
    assert found.reverts == (brought[-1],)
    assert set(found.undone) == set(brought)


def test_a_merged_revert_branch_undoes_what_the_revert_undid(repository: Repository) -> None:
    first = repository.head()
    second = repository.commit("a", "1")
    repository.git("checkout", "-q", "-b", "undo")
    repository.git("revert", "--no-edit", second)
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "-m", "Merge the revert", "undo")
    assert repository.judge() == Rollback(first, (second,), (second,))
