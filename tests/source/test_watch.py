from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gitops_agent.errors import UsageError
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.ref_watcher import RefWatcher
from tests.source.conftest import Desk, git

MirrorOf = Callable[..., Mirror]


class Bell:
    """Counts rings; waits for the next one with a deadline."""

    def __init__(self) -> None:
        self.rings = threading.Semaphore(0)

    def __call__(self) -> None:
        self.rings.release()

    def rang(self) -> bool:
        return self.rings.acquire(timeout=10)


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def watched(mirror: Mirror, bell: Bell) -> Iterator[RefWatcher]:
    watcher = RefWatcher(mirror, bell)
    watcher.start()
    yield watcher
    watcher.stop()


def test_every_commit_rings(desk: Desk, bell: Bell, watched: RefWatcher) -> None:
    for number in range(3):
        desk.commit({"x.yaml": f"x: {number}\n"})
        assert bell.rang()


def test_a_work_tree_and_a_branch_with_slashes(desk: Desk, bell: Bell, mirror_of: MirrorOf) -> None:
    desk.git("checkout", "-q", "-b", "team/eu/prod")
    watcher = RefWatcher(mirror_of(repo=desk.work.as_uri(), branch="team/eu/prod"), bell)
    watcher.start()
    try:
        desk.commit({"x.yaml": "x: 1\n"}, push=False)
        assert bell.rang()
    finally:
        watcher.stop()


def test_deletion_and_return_of_the_refs_folder(desk: Desk, bell: Bell, watched: RefWatcher) -> None:
    refs = desk.bare / "refs"
    kept = shutil.copytree(refs, desk.bare.parent / "kept")
    shutil.rmtree(refs)
    assert bell.rang()
    shutil.copytree(kept, refs)
    assert bell.rang()
    desk.commit({"x.yaml": "x: 1\n"})
    assert bell.rang()


def test_the_whole_repository_may_go_and_come_back(desk: Desk, bell: Bell, watched: RefWatcher) -> None:
    away = desk.bare.rename(desk.bare.with_name("away.git"))
    assert bell.rang()
    away.rename(desk.bare)
    assert bell.rang()
    desk.commit({"x.yaml": "x: 1\n"})
    assert bell.rang()


def test_packed_refs(desk: Desk, bell: Bell, watched: RefWatcher) -> None:
    git(desk.bare, "pack-refs", "--all")
    desk.commit({"x.yaml": "x: 1\n"})
    assert bell.rang()
    git(desk.bare, "update-ref", "refs/heads/main", "HEAD~1")
    git(desk.bare, "pack-refs", "--all")
    assert bell.rang()


def test_other_branches_do_not_ring(desk: Desk, bell: Bell, watched: RefWatcher) -> None:
    desk.git("push", "-q", "origin", "HEAD:refs/heads/other", "HEAD:refs/heads/mainly")
    desk.commit({"x.yaml": "x: 1\n"})
    assert bell.rang()
    assert not bell.rings.acquire(blocking=False)


def test_a_linked_work_tree_is_understood(desk: Desk, bell: Bell, mirror_of: MirrorOf, tmp_path: Path) -> None:
    desk.git("worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    watcher = RefWatcher(mirror_of(repo=str(tmp_path / "linked"), branch="linked"), bell)
    watcher.start()
    try:
        git(tmp_path / "linked", "commit", "-q", "--allow-empty", "-m", "x")
        assert bell.rang()
    finally:
        watcher.stop()


def test_remote_repositories_cannot_be_watched(bell: Bell, mirror_of: MirrorOf) -> None:
    with pytest.raises(UsageError):
        RefWatcher(mirror_of(repo="https://host/x"), bell)


def test_without_git_the_watcher_starts_and_waits(
    desk: Desk, bell: Bell, mirror_of: MirrorOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shutil.which
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda *_, **__: None)
        watcher = RefWatcher(mirror_of(), bell)
        watcher.start()
    assert shutil.which is found
    try:
        assert bell.rang(), "git is there now: what the branch has is news"
    finally:
        watcher.stop()


def test_a_moment_without_file_handles_does_not_end_the_watcher(
    desk: Desk, bell: Bell, watched: RefWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail(*_: object) -> None:
        failed.set()
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(watched._mirror.git.__class__, "ref", fail)
        desk.commit({"x.yaml": "x: 1\n"})
        assert failed.wait(10)
    desk.commit({"x.yaml": "x: 2\n"})
    assert bell.rang()
