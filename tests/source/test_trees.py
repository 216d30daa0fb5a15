"""Reading trees and blobs, hostile ones included."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_agent.errors import SourceRefused, SourceUnavailable
from gitops_agent.source import bounded_process as door
from gitops_agent.source.mirror import Mirror
from tests.source.conftest import PLAIN, Desk, git

MirrorOf = Callable[..., Mirror]


def test_entries_have_modes_sizes_and_paths(desk: Desk, mirror: Mirror) -> None:
    (desk.work / "link.yaml").symlink_to("/etc/passwd")
    (desk.work / "run.sh").write_text("x")
    (desk.work / "run.sh").chmod(0o755)
    desk.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    desk.git("add", "link.yaml", "run.sh")
    desk.git("commit", "-qm", "odd")
    desk.push()
    found = {entry.path: entry for entry in mirror.entries(mirror.refresh().sha)}
    assert (found["link.yaml"].mode, found["link.yaml"].type) == ("120000", "blob")
    assert (found["module"].mode, found["module"].type, found["module"].size) == ("160000", "commit", None)
    assert found["run.sh"].mode == "100755"
    assert (found["agents/acme/a.yaml"].mode, found["agents/acme/a.yaml"].size) == ("100644", 5)


def test_strange_names_are_listed_as_they_are(desk: Desk, mirror: Mirror) -> None:
    names = ["mit leer.yaml", "tab\there.yaml", "new\nline.yaml", "ümlaut.yaml", "-dash.yaml", '"quote".yaml']
    desk.commit(dict.fromkeys(names, "x: 1\n"))
    found = [entry.path for entry in mirror.entries(mirror.refresh().sha)]
    assert set(names) <= set(found)


def test_names_that_are_not_utf8_keep_their_bytes(desk: Desk, mirror: Mirror) -> None:
    blob = git(desk.work, "rev-parse", "HEAD:agents/acme/a.yaml")
    listing = b"100644 blob " + blob.encode() + b"\tbad\xff.yaml\0"
    run = subprocess.run(["git", "mktree", "-z"], cwd=desk.work, input=listing, capture_output=True, check=True)
    commit = git(desk.work, "commit-tree", run.stdout.decode().strip(), "-p", "HEAD", "-m", "bytes")
    git(desk.work, "push", "-q", "origin", f"{commit}:main")
    (entry,) = mirror.entries(mirror.refresh().sha)
    assert entry.path.encode(errors="surrogateescape") == b"bad\xff.yaml"


@pytest.mark.parametrize("name", [".git", "..", ".GIT", "."])
def test_trees_that_try_to_leave_are_refused_by_fsck(name: str, desk: Desk, mirror: Mirror) -> None:
    """A tree with an entry no git would write, made byte by byte."""
    head = mirror.refresh()
    blob = git(desk.work, "rev-parse", "HEAD:agents/acme/a.yaml")
    raw = b"100644 " + name.encode() + b"\0" + bytes.fromhex(blob)
    made = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
        cwd=desk.work,
        input=raw,
        env=PLAIN,
        capture_output=True,
        check=True,
    )
    commit = git(desk.work, "commit-tree", made.stdout.decode().strip(), "-p", "HEAD", "-m", "evil")
    git(desk.work, "push", "-q", "origin", f"{commit}:main")
    with pytest.raises(SourceRefused, match="malformed or dangerous"):
        mirror.refresh()
    assert mirror.cached_head() == head.sha


def test_changes_between_commits(desk: Desk, mirror: Mirror) -> None:
    old = desk.head()
    new = desk.commit({"agents/acme/a.yaml": "a: 2\n", "agents/acme/b.yaml": None, "c.yaml": "c: 1\n"})
    mirror.refresh()
    found = {change.path: change for change in mirror.changed(old, new)}
    assert set(found) == {"agents/acme/a.yaml", "agents/acme/b.yaml", "c.yaml"}
    assert found["agents/acme/b.yaml"].blob == ""
    assert found["c.yaml"].blob == desk.git("rev-parse", "HEAD:c.yaml")
    assert found["agents/acme/a.yaml"].mode == "100644"


def test_changes_when_the_path_comes_and_goes(desk: Desk, mirror_of: MirrorOf) -> None:
    old = desk.head()
    new = desk.commit({"prod/x.yaml": "x: 1\n"})
    mirror = mirror_of(path="prod")
    mirror.refresh()
    assert [(c.path, c.blob) for c in mirror.changed(old, new)] == [
        ("x.yaml", desk.git("rev-parse", "HEAD:prod/x.yaml"))
    ]
    assert [(c.path, c.blob) for c in mirror.changed(new, old)] == [("x.yaml", "")]


def test_many_blobs_through_one_process(desk: Desk, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {f"many/{number:04}.yaml": f"n: {number}\n" * (1 + number % 300) for number in range(1500)}
    sha = desk.commit(dict(texts))
    mirror.refresh()
    entries = [entry for entry in mirror.entries(sha) if entry.path in texts]
    started: list[str] = []
    original = door.Runner.start
    monkeypatch.setattr(door.Runner, "start", lambda *args: started.append(args[1][0]) or original(*args))
    contents = dict(mirror.blobs(entry.blob for entry in entries))
    assert {entry.path: contents[entry.blob].decode() for entry in entries} == texts
    assert started == ["cat-file"]


def test_blobs_may_be_left_unread(desk: Desk, mirror: Mirror) -> None:
    sha = desk.commit({f"x{n}": f"{n}" * 300_000 for n in range(20)})
    mirror.refresh()
    blobs = mirror.blobs([entry.blob for entry in mirror.entries(sha)])
    assert next(blobs)
    blobs.close()


def test_a_blob_above_the_cap_is_refused(desk: Desk, mirror: Mirror) -> None:
    sha = desk.commit({"big.yaml": "x" * 5000})
    mirror.refresh()
    (big,) = [entry for entry in mirror.entries(sha) if entry.path == "big.yaml"]
    assert big.size == 5000
    with pytest.raises(SourceRefused, match="5000 bytes"):
        list(mirror.git.blobs([big.blob], 4999))
    assert list(mirror.git.blobs([big.blob], 5000)) == [(big.blob, b"x" * 5000)]
    assert list(mirror.blobs([])) == []


def test_a_bomb_of_trees_ends_at_the_cap(desk: Desk, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten levels of ten names for the same tree are 10^10 files."""
    monkeypatch.setattr(door, "MAX_ANSWER_BYTES", 1_000_000)
    tree = git(desk.work, "rev-parse", "HEAD:agents/acme")
    for _ in range(10):
        listing = "".join(f"040000 tree {tree}\td{name}\n" for name in range(10))
        made = subprocess.run(
            ["git", "mktree"], cwd=desk.work, input=listing.encode(), capture_output=True, check=True
        )
        tree = made.stdout.decode().strip()
    commit = git(desk.work, "commit-tree", tree, "-p", "HEAD", "-m", "bomb")
    git(desk.work, "push", "-q", "origin", f"{commit}:main")
    mirror.refresh()
    with pytest.raises(SourceRefused, match="more than 1000000 bytes"):
        mirror.entries(commit)


def test_the_file_system_of_the_work_tree_is_never_used(mirror: Mirror, tmp_path: Path) -> None:
    mirror.refresh()
    names = sorted(path.name for path in (tmp_path / "state").iterdir())
    assert (names[0].split("-")[0], names[1:]) == (
        "git",
        ["mirror.git", "mirror.git.fetch.lock", "mirror.git.lock"],
    )


def test_a_pack_without_end_is_cut_off(desk: Desk, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same limit that a full disk sets: the head stays what it was, and the next fetch goes well."""
    head = mirror.refresh().sha
    (desk.work / "noise").write_bytes(random.Random(1).randbytes(300_000))
    newer = desk.commit({})
    with monkeypatch.context() as patch:
        patch.setattr(door, "MAX_FILE_BYTES", 100_000)
        with pytest.raises(SourceUnavailable):
            mirror.refresh()
    assert mirror.cached_head() == head
    assert mirror.refresh().sha == newer
