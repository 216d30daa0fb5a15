from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_agent.errors import UsageError
from gitops_agent.source.address import parse_address
from gitops_agent.source.ref_watcher import RefWatcher, ref_value
from tests.source.conftest import Desk, git


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
def watched(desk: Desk, bell: Bell) -> Iterator[RefWatcher]:
    watcher = RefWatcher(parse_address(str(desk.bare)), "main", bell)
    watcher.start()
    yield watcher
    watcher.stop()


def test_every_commit_rings(desk: Desk, bell: Bell, watched: RefWatcher) -> None:
    for number in range(3):
        desk.commit({"x.yaml": f"x: {number}\n"})
        assert bell.rang()


def test_a_work_tree_and_a_branch_with_slashes(desk: Desk, bell: Bell) -> None:
    desk.git("checkout", "-q", "-b", "team/eu/prod")
    watcher = RefWatcher(parse_address(desk.work.as_uri()), "team/eu/prod", bell)
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


def test_a_linked_work_tree_is_understood(desk: Desk, tmp_path: Path) -> None:
    desk.git("worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    assert ref_value(tmp_path / "linked", "refs/heads/linked") == desk.head()
    assert ref_value(tmp_path / "linked", "refs/heads/nope") is None


def test_remote_repositories_cannot_be_watched(bell: Bell) -> None:
    with pytest.raises(UsageError):
        RefWatcher(parse_address("https://host/x"), "main", bell)
