from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_agent.errors import SourceRefused, SourceUnavailable
from gitops_agent.source.git import Git
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.notes import Notes
from tests.source.conftest import Desk, git, make_desk

MirrorOf = Callable[..., Mirror]


def test_the_head_is_fetched_and_followed(desk: Desk, mirror: Mirror) -> None:
    first = mirror.refresh()
    assert first.sha == desk.head()
    assert first.author == "Ada <ada@example.com>"
    assert (first.parents, first.subject) == ((), "commit 1")
    second = desk.commit({"agents/acme/a.yaml": "a: 2\n"}, "Change a\n\nBecause.")
    found = mirror.refresh()
    assert (found.sha, found.parents, found.message) == (second, (first.sha,), "Change a\n\nBecause.")
    assert found.tree == desk.git("rev-parse", "HEAD^{tree}")
    assert mirror.refresh() == found


def test_only_a_bare_mirror_without_remotes_is_kept(mirror: Mirror, desk: Desk) -> None:
    mirror.refresh()
    place = mirror.git.directory
    assert git(place, "rev-parse", "--is-bare-repository") == "true"
    assert git(place, "remote") == ""
    assert str(desk.bare) not in (place / "config").read_text()
    assert not (place / "hooks").exists()


def test_nothing_is_fetched_when_nothing_moved(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.refresh()
    calls: list[str] = []
    original = Git.remote
    monkeypatch.setattr(
        Git, "remote", lambda git, *args, **more: calls.append(args[0]) or original(git, *args, **more)
    )
    mirror.refresh()
    assert calls == ["ls-remote"]


@pytest.mark.parametrize("form", ["bare path", "work path", "file url", "relative"])
def test_local_forms(form: str, desk: Desk, mirror_of: MirrorOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.bare.parent)
    repo = {"bare path": str(desk.bare), "work path": str(desk.work), "file url": desk.bare.as_uri()}
    mirror = mirror_of(repo=repo.get(form, "./fleet.git"), state_dir="state")
    assert mirror.refresh().sha == desk.head()
    assert (desk.bare.parent / "state/mirror.git").is_dir()


def test_a_repository_of_another_user_is_read(desk: Desk, mirror_of: MirrorOf, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    head = desk.head()
    for path in (desk.bare.parent, *desk.bare.parent.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(desk.bare)
    for number, repo in enumerate((desk.bare, desk.work, tmp_path / "link", tmp_path / "x/../link")):
        assert mirror_of(repo=str(repo), state_dir=str(tmp_path / f"state{number}")).refresh().sha == head


def test_only_the_path_counts(desk: Desk, mirror_of: MirrorOf) -> None:
    desk.commit({"prod/x.yaml": "x: 1\n", "docs/readme": "one"})
    mirror = mirror_of(path="./prod/")
    first = mirror.refresh()
    assert first.tree == desk.git("rev-parse", "HEAD:prod")
    assert [entry.path for entry in mirror.entries(first.sha)] == ["x.yaml"]
    desk.commit({"docs/readme": "two"})
    second = mirror.refresh()
    assert second.tree == first.tree
    assert mirror.changed(first.sha, second.sha) == []


def test_a_missing_path_is_an_empty_tree_id_and_no_entries(desk: Desk, mirror_of: MirrorOf) -> None:
    mirror = mirror_of(path="nowhere")
    head = mirror.refresh()
    assert (head.sha, head.tree) == (desk.head(), "")
    assert mirror.entries(head.sha) == []
    file_as_path = mirror_of(path="agents/acme/a.yaml")
    assert file_as_path.refresh().tree == ""


def test_empty_repository_is_refused(tmp_path: Path, mirror_of: MirrorOf) -> None:
    git(tmp_path, "init", "-q", "--bare", "empty.git")
    with pytest.raises(SourceRefused, match="is empty") as caught:
        mirror_of(repo=str(tmp_path / "empty.git")).refresh()
    assert "push a first commit" in caught.value.hint


def test_missing_branch_names_the_branches_there_are(mirror_of: MirrorOf) -> None:
    with pytest.raises(SourceRefused, match=r"branch prod does not exist; branches found: main"):
        mirror_of(branch="prod").refresh()


def test_deleted_branch_is_refused_and_the_head_stays_readable(desk: Desk, mirror: Mirror) -> None:
    head = mirror.refresh().sha
    desk.git("push", "-q", "origin", "HEAD:refs/heads/other")
    git(desk.bare, "update-ref", "-d", "refs/heads/main")
    with pytest.raises(SourceRefused, match=f"was deleted; it was last seen at {head}"):
        mirror.refresh()
    assert mirror.cached_head() == head
    assert len(mirror.entries(head)) == 2


def test_branches_with_slashes(desk: Desk, mirror_of: MirrorOf) -> None:
    desk.git("push", "-q", "origin", "HEAD:refs/heads/team/prod", "HEAD~0:refs/heads/x/refs/heads/team/prod")
    mirror = mirror_of(branch="team/prod")
    assert mirror.refresh().sha == mirror.revision("team/prod").sha == mirror.revision("HEAD").sha == desk.head()


def test_remote_down_and_back(desk: Desk, mirror_of: MirrorOf) -> None:
    head = mirror_of().refresh().sha
    away = desk.bare.rename(desk.bare.with_name("away.git"))
    restarted = mirror_of()
    with pytest.raises(SourceUnavailable):
        restarted.refresh()
    assert restarted.cached_head() == head
    assert restarted.revision(head).sha == head
    assert dict(restarted.blobs(entry.blob for entry in restarted.entries(head)))
    away.rename(desk.bare)
    assert restarted.refresh().sha == head


def test_before_the_first_fetch_there_is_no_cached_head(mirror: Mirror) -> None:
    assert mirror.cached_head() is None
    with pytest.raises(SourceRefused, match="is not in branch"):
        mirror.revision("HEAD")


def test_commits_between_two_heads_oldest_first(desk: Desk, mirror: Mirror) -> None:
    first = mirror.refresh().sha
    shas = [desk.commit({"agents/acme/a.yaml": f"a: {number}\n"}) for number in (2, 3, 4)]
    head = mirror.refresh().sha
    assert [commit.sha for commit in mirror.between(first, head)] == shas
    assert [commit.sha for commit in mirror.between(None, head)] == [head]
    assert mirror.between(head, head) == ()
    assert [commit.sha for commit in mirror.between("0" * 40, head)] == [head]
    assert [commit.sha for commit in mirror.history(head, 10)] == [*reversed(shas), first]
    assert [commit.sha for commit in mirror.history("main~1", 2)] == [shas[1], shas[0]]
    assert mirror.is_ancestor(first, head)
    assert not mirror.is_ancestor(head, first)
    assert not mirror.is_ancestor("1" * 40, head)


def test_revisions_by_the_names_people_use(desk: Desk, mirror: Mirror) -> None:
    first = desk.head()
    second = desk.commit({"x.yaml": "x: 1\n"})
    mirror.refresh()
    for name in ("main", "HEAD", "@", second, second[:8], "origin/main"):
        assert mirror.revision(name).sha == second
    for name in ("main~1", "HEAD^", first[:10]):
        assert mirror.revision(name).sha == first
    with pytest.raises(SourceRefused, match="is not in branch main"):
        mirror.revision("f" * 40)


def test_an_unknown_commit_is_no_reason_to_rebuild(mirror: Mirror) -> None:
    mirror.refresh()
    (mirror.git.directory / "same").touch()
    for name in ("f" * 40, "nope"):
        with pytest.raises(SourceRefused):
            mirror.revision(name)
    with pytest.raises(SourceUnavailable):
        mirror.entries("f" * 40)
    assert (mirror.git.directory / "same").exists()


def test_a_force_push_is_seen_and_the_old_head_survives(desk: Desk, mirror: Mirror) -> None:
    desk.commit({"agents/acme/a.yaml": "a: 2\n"})
    old = mirror.refresh().sha
    desk.git("reset", "-q", "--hard", "HEAD~1")
    desk.commit({"agents/acme/a.yaml": "a: 3\n"}, push=False)
    desk.push("--force")
    new = mirror.refresh().sha
    assert not mirror.is_ancestor(old, new)
    git(mirror.git.directory, "gc", "-q", "--prune=now")
    assert mirror.revision(old).sha == old
    assert [entry.path for entry in mirror.entries(old)] == ["agents/acme/a.yaml", "agents/acme/b.yaml"]


def _truncate_packs(place: Path) -> None:
    for pack in (place / "objects").rglob("*"):
        if pack.is_file():
            pack.chmod(0o600)
            pack.write_bytes(pack.read_bytes()[:20])


def _drop_objects(place: Path) -> None:
    shutil.rmtree(place / "objects")
    (place / "objects").mkdir()


def _drop_head(place: Path) -> None:
    (place / "HEAD").unlink(missing_ok=True)  # damage that no reading has met yet is still there


def _garbage_head(place: Path) -> None:
    (place / "HEAD").write_bytes(b"\0\1\2")


def _garbage_ref(place: Path) -> None:
    (place / "refs/remotes/origin/main").write_text("no sha\n")


def _empty_folder(place: Path) -> None:
    shutil.rmtree(place)
    place.mkdir()


def _bad_config(place: Path) -> None:
    (place / "config").write_text("[core\n")


DAMAGE = [_truncate_packs, _drop_objects, _drop_head, _garbage_head, _garbage_ref, _empty_folder, _bad_config]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_mirror_is_rebuilt(damage: Callable[[Path], None], mirror: Mirror) -> None:
    head = mirror.refresh()
    damage(mirror.git.directory)
    assert mirror.refresh() == head
    assert [content for _, content in mirror.blobs(e.blob for e in mirror.entries(head.sha))] == [
        b"a: 1\n",
        b"b: 1\n",
    ]


@pytest.mark.parametrize("damage", [_truncate_packs, _drop_objects, _drop_head])
def test_damage_found_while_reading_is_repaired_too(damage: Callable[[Path], None], mirror: Mirror) -> None:
    head = mirror.refresh()
    listed = mirror.entries(head.sha)
    damage(mirror.git.directory)
    assert mirror.revision(head.sha) == head
    damage(mirror.git.directory)
    assert mirror.entries(head.sha) == listed
    damage(mirror.git.directory)
    assert dict(mirror.blobs(entry.blob for entry in listed))[listed[0].blob] == b"a: 1\n"


def test_a_damaged_mirror_with_the_remote_down_says_so_and_recovers(desk: Desk, mirror: Mirror) -> None:
    head = mirror.refresh()
    _drop_objects(mirror.git.directory)
    away = desk.bare.rename(desk.bare.with_name("away.git"))
    with pytest.raises(SourceUnavailable):
        mirror.entries(head.sha)
    away.rename(desk.bare)
    assert mirror.refresh() == head


def test_a_crash_between_the_renames_of_a_rebuild_is_finished(mirror: Mirror) -> None:
    head = mirror.refresh()
    place = mirror.git.directory
    place.rename(place.with_name("mirror.git.old"))
    (place.with_name("mirror.git.new")).mkdir()
    assert mirror.refresh() == head
    assert not place.with_name("mirror.git.old").exists()


def test_locks_of_a_killed_git_do_not_stop_us(desk: Desk, mirror: Mirror) -> None:
    mirror.refresh()
    place = mirror.git.directory
    for name in ("HEAD.lock", "packed-refs.lock", "refs/remotes/origin/main.lock"):
        (place / name).touch()
    (place / "objects/pack/tmp_pack_abc").write_bytes(b"half")
    sha = desk.commit({"agents/acme/a.yaml": "a: 9\n"})
    assert mirror.refresh().sha == sha
    assert not list(place.rglob("*.lock")) + list(place.rglob("tmp_pack_*"))


def test_notes_that_were_not_pushed_survive_a_rebuild(mirror: Mirror, notes: Notes) -> None:
    head = mirror.refresh()
    notes.write({head.sha: "test: Converged\n"})
    _drop_head_ref = mirror.git.directory / "refs/remotes/origin/main"
    _drop_head_ref.write_text("broken\n")
    assert mirror.refresh() == head
    assert notes.read_all([head.sha]).get(head.sha) == "test: Converged\n"


def test_a_repository_with_sha256(tmp_path: Path, mirror_of: MirrorOf) -> None:
    desk = make_desk(tmp_path / "other", "--object-format=sha256")
    shutil.rmtree(desk.work)
    git(desk.bare.parent, "init", "-q", "--object-format=sha256", str(desk.work))
    desk.git("remote", "add", "origin", str(desk.bare))
    sha = desk.commit({"a.yaml": "a: 1\n"})
    assert len(sha) == 64
    mirror = mirror_of(repo=str(desk.bare))
    assert mirror.refresh().sha == sha
    assert [entry.path for entry in mirror.entries(sha)] == ["a.yaml"]
