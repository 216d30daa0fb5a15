"""Reverts and restores without a work tree, and recognising them afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gitops_agent.errors import SourceRefused, UsageError
from gitops_agent.settings import Settings
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import Mirror
from tests.source.conftest import Desk, git

A, B = "agents/acme/a.yaml", "agents/acme/b.yaml"
TEN = [f"line{n}: {n}" for n in range(10)]


def _ten(**changes: str) -> str:
    return "\n".join(changes.get(line.split(":")[0], line) for line in TEN) + "\n"


def _revert(writer: BranchWriter, mirror: Mirror, desk: Desk, *shas: str) -> str:
    sha = writer.revert(shas, "Roll back")
    writer.push(sha, "main")
    assert mirror.refresh().sha == sha
    desk.git("pull", "-q", "--ff-only", "origin", "main")
    return sha


def test_revert_of_one(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    before = desk.git("rev-parse", "HEAD^{tree}")
    bad = desk.commit({A: "a: 2\n", "new.yaml": "n: 1\n"})
    mirror.refresh()
    sha = _revert(writer, mirror, desk, bad)
    assert desk.git("rev-parse", "HEAD^{tree}") == before
    assert mirror.revision(sha).parents == (bad,)
    assert mirror.revision(sha).message == f"Roll back\n\nThis reverts commit {bad}."
    assert mirror.revision(sha).author == "gitops-agent <gitops-agent@localhost>"
    assert mirror.undoes(sha, bad)


def test_revert_in_the_middle(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    desk.commit({A: _ten()})
    middle = desk.commit({A: _ten(line1="line1: changed")})
    desk.commit({A: _ten(line1="line1: changed", line8="line8: later"), B: "b: 2\n"})
    mirror.refresh()
    sha = _revert(writer, mirror, desk, middle)
    assert (desk.work / A).read_text() == _ten(line8="line8: later")
    assert mirror.undoes(sha, middle)
    assert not mirror.undoes(sha, desk.git("rev-parse", "HEAD~1"))


def test_revert_of_a_range(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    before = desk.git("rev-parse", "HEAD^{tree}")
    shas = [desk.commit({A: f"a: {n}\n", f"x{n}.yaml": "x: 1\n"}) for n in (2, 3, 4)]
    mirror.refresh()
    sha = _revert(writer, mirror, desk, *reversed(shas))
    assert desk.git("rev-parse", "HEAD^{tree}") == before
    assert all(mirror.undoes(sha, each) for each in shas)
    assert mirror.revision(sha).message.count("This reverts commit") == 3


def test_revert_of_a_merge(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    desk.git("checkout", "-q", "-b", "topic")
    desk.commit({"topic.yaml": "t: 1\n"}, push=False)
    desk.commit({"topic.yaml": "t: 2\n"}, push=False)
    desk.git("checkout", "-q", "main")
    mainline = desk.commit({B: "b: 2\n"})
    before = desk.git("rev-parse", "HEAD^{tree}")
    desk.git("merge", "-q", "--no-ff", "-m", "Merge topic", "topic")
    desk.push()
    merge = desk.head()
    mirror.refresh()
    sha = _revert(writer, mirror, desk, merge)
    assert desk.git("rev-parse", "HEAD^{tree}") == before
    assert f"This reverts commit {merge}, reversing\nchanges made to {mainline}." in mirror.revision(sha).message
    assert mirror.undoes(sha, merge)


def test_revert_of_a_revert(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    change = desk.commit({A: "a: 2\n"})
    after = desk.git("rev-parse", "HEAD^{tree}")
    mirror.refresh()
    first = _revert(writer, mirror, desk, change)
    second = _revert(writer, mirror, desk, first)
    assert desk.git("rev-parse", "HEAD^{tree}") == after
    assert mirror.undoes(second, first)
    assert not mirror.undoes(second, change)


def test_reverts_made_by_plain_git_are_recognised_too(desk: Desk, mirror: Mirror) -> None:
    change = desk.commit({A: _ten()})
    other = desk.commit({A: _ten(line1="line1: x"), B: "b: 5\n"})
    desk.git("revert", "--no-edit", other)
    desk.push()
    mirror.refresh()
    assert mirror.undoes(desk.head(), other)
    assert not mirror.undoes(desk.head(), change)


def test_a_claim_alone_is_not_a_revert(desk: Desk, mirror: Mirror) -> None:
    change = desk.commit({A: "a: 2\n"})
    liar = desk.commit({A: "a: 99\n"}, f'Revert "x"\n\nThis reverts commit {change}.')
    mirror.refresh()
    assert not mirror.undoes(liar, change)


def test_whitespace_is_a_difference(desk: Desk, mirror: Mirror) -> None:
    desk.commit({A: "a:\n  b: 1\n"})
    change = desk.commit({A: "a:\n  b: 2\n"})
    near = desk.commit({A: "a:\n    b: 1\n"})
    mirror.refresh()
    assert not mirror.undoes(near, change)


def test_only_below_the_path_counts(desk: Desk, mirror_of: Callable[..., Mirror]) -> None:
    change = desk.commit({A: "a: 2\n", "docs/x": "1"})
    undo = desk.commit({A: "a: 1\n", "docs/x": "2"})
    mirror = mirror_of(path="agents")
    mirror.refresh()
    assert mirror.undoes(undo, change)


def test_modes_and_binary_files_are_compared(desk: Desk, mirror: Mirror) -> None:
    (desk.work / "bin").write_bytes(b"\0one")
    desk.commit({})
    (desk.work / "bin").write_bytes(b"\0two")
    (desk.work / A).chmod(0o755)
    change = desk.commit({})
    (desk.work / "bin").write_bytes(b"\0three")
    (desk.work / A).chmod(0o644)
    other = desk.commit({})
    (desk.work / "bin").write_bytes(b"\0two")
    (desk.work / A).chmod(0o755)
    undo = desk.commit({})
    mirror.refresh()
    assert not mirror.undoes(other, change)
    assert mirror.undoes(undo, other)


def test_revert_of_the_first_commit(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    first = desk.head()
    desk.commit({"keep.yaml": "k: 1\n"})
    mirror.refresh()
    sha = _revert(writer, mirror, desk, first)
    assert [entry.path for entry in mirror.entries(sha)] == ["keep.yaml"]
    assert mirror.undoes(sha, first)


def test_a_conflict_is_refused_and_names_the_paths(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    change = desk.commit({A: "a: 2\n"})
    head = desk.commit({A: "a: 3\n"})
    mirror.refresh()
    with pytest.raises(SourceRefused, match=A) as caught:
        writer.revert([change], "x")
    assert "--to" in caught.value.hint
    assert git(desk.bare, "rev-parse", "main") == head


def test_what_is_already_undone_is_refused(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    change = desk.commit({A: "a: 2\n"})
    mirror.refresh()
    _revert(writer, mirror, desk, change)
    with pytest.raises(SourceRefused, match="nothing to do"):
        writer.revert([change], "again")


def test_only_commits_of_the_branch_are_reverted(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    with pytest.raises(SourceRefused, match="is not in branch"):
        writer.revert(["f" * 40], "x")


def test_restore_gives_exactly_that_tree_below_the_path(
    desk: Desk, mirror_of: Callable[..., Mirror], settings: Callable[..., Settings]
) -> None:
    target = desk.commit({"deep/prod/x.yaml": "x: 1\n", "deep/dev/y.yaml": "y: 1\n"})
    desk.commit({"deep/prod/x.yaml": "x: 2\n", "deep/prod/z.yaml": "z: 1\n", "deep/dev/y.yaml": "y: 2\n"})
    mirror = mirror_of(path="deep/prod")
    mirror.refresh()
    writer = BranchWriter(mirror, settings(path="deep/prod"))
    sha = writer.restore(target, "Back to the good one")
    writer.push(sha, "main")
    desk.git("pull", "-q", "--ff-only", "origin", "main")
    assert mirror.refresh().tree == mirror.revision(target).tree
    assert (desk.work / "deep/prod/x.yaml").read_text() == "x: 1\n"
    assert not (desk.work / "deep/prod/z.yaml").exists()
    assert (desk.work / "deep/dev/y.yaml").read_text() == "y: 2\n"
    assert target in mirror.revision(sha).message


def test_restore_of_the_whole_repository_and_of_a_lost_folder(
    desk: Desk, mirror_of: Callable[..., Mirror], settings: Callable[..., Settings]
) -> None:
    target = desk.head()
    desk.commit({A: None, B: None, "other.yaml": "o: 1\n"})
    for path, left in ((".", [A, B]), ("agents", [A, B, "other.yaml"])):
        mirror = mirror_of(path=path)
        mirror.refresh()
        sha = BranchWriter(mirror, settings(path=path)).restore(target, "back")
        assert git(mirror.git.directory, "ls-tree", "-r", "--name-only", sha).split() == left


def test_restore_of_a_commit_without_the_folder_is_refused(
    desk: Desk, mirror_of: Callable[..., Mirror], settings: Callable[..., Settings]
) -> None:
    first = desk.head()
    desk.commit({"prod/x.yaml": "x: 1\n"})
    mirror = mirror_of(path="prod")
    mirror.refresh()
    with pytest.raises(SourceRefused, match="has no folder prod"):
        BranchWriter(mirror, settings(path="prod")).restore(first, "back")


def test_push_is_fast_forward_only(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    change = desk.commit({A: "a: 2\n"})
    mirror.refresh()
    sha = writer.revert([change], "Roll back")
    newer = desk.commit({B: "b: 9\n"})
    with pytest.raises(SourceRefused, match="did not take") as caught:
        writer.push(sha, "main")
    assert "try again" in caught.value.hint
    assert git(desk.bare, "rev-parse", "main") == newer
    writer.push(sha, "rollback/one")
    assert git(desk.bare, "rev-parse", "rollback/one") == sha
    with pytest.raises(UsageError):
        writer.push(sha, "--mirror")


def test_the_branch_checked_out_in_a_work_tree_is_not_moved(
    desk: Desk, mirror_of: Callable[..., Mirror], settings: Callable[..., Settings]
) -> None:
    change = desk.commit({A: "a: 2\n"})
    mirror = mirror_of(repo=str(desk.work))
    mirror.refresh()
    writer = BranchWriter(mirror, settings(repo=str(desk.work)))
    sha = writer.revert([change], "Roll back")
    with pytest.raises(SourceRefused, match="is checked out in") as caught:
        writer.push(sha, "main")
    assert "--branch-name" in caught.value.hint
    assert desk.head() == change


def test_an_edit_changes_one_file_and_keeps_its_mode(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    desk.commit({A: "a: 10\n", B: "b: 10\n"})
    (desk.work / A).chmod(0o755)
    before = desk.commit({"c.yaml": "c: 1\n"})
    mirror.refresh()

    sha = writer.edit({A: b"a: 2\n"}, "Follow live")

    assert mirror.revision(sha).parents == (before,)
    assert [change.path for change in mirror.changed(before, sha)] == [A]
    (entry,) = [entry for entry in mirror.entries(sha) if entry.path == A]
    assert entry.mode == "100755"
    assert dict(mirror.blobs([entry.blob])) == {entry.blob: b"a: 2\n"}
    with pytest.raises(SourceRefused, match=r"nothing.yaml"):
        writer.edit({"nothing.yaml": b""}, "No such file")


def test_a_proposal_has_a_branch_of_its_own(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    desk.commit({A: "a: 10\n"})
    head = mirror.refresh().sha
    assert writer.tip("gitops-agent/import/acme-a-1") is None
    sha = writer.edit({A: b"a: 2\n"}, "Follow live")
    writer.push(sha, "gitops-agent/import/acme-a-1")
    assert writer.tip("gitops-agent/import/acme-a-1") == sha
    assert mirror.refresh().sha == head, "the tracked branch is where it was"
