"""A plain folder, offline; and real git, whose trees hold what no work tree would."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.fleet import build_fleet, commit, git, spec
from benchmarks.snapshot import PlainReader, revision
from gitops_agent.errors import InvalidDesiredState, UsageError
from gitops_agent.model.finding import errors
from gitops_agent.model.snapshot import changed_agents
from gitops_agent.settings import Settings
from gitops_agent.snapshot.folder import validate_folder
from gitops_agent.snapshot.loader import Loader
from tests.snapshot.world import PLUGINS, agent, codes

EXAMPLES = Path(__file__).parents[2] / "examples" / "desired-repo"


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_folder_is_judged_without_git(tmp_path: Path) -> None:
    write(tmp_path, "agents/acme/bot.yaml", agent())
    write(tmp_path, ".git/config.yaml", "a: [\n")
    write(tmp_path, "agents/.git/config.yaml", "a: [\n")
    assert validate_folder(tmp_path, PLUGINS, Settings()) == ()
    aside = write(tmp_path, "agents/.acme/bot.yaml", agent())
    assert [finding.code for finding in validate_folder(tmp_path, PLUGINS, Settings())] == ["NotRead"]
    aside.unlink()
    write(tmp_path, "agents/acme/crm.yaml", agent("crm", typo=1))
    (tmp_path / "agents/acme/link.yaml").symlink_to("/etc/passwd")
    (tmp_path / "agents/loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "agents/acme/pipe.yaml")
    found = validate_folder(tmp_path, PLUGINS, Settings())
    assert sorted(codes(found)) == ["Gitlink", "Symlink", "Symlink", "UnknownField"]


def test_a_folder_that_does_not_exist_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        validate_folder(tmp_path / "missing", PLUGINS, Settings())


def test_the_example_is_valid() -> None:
    for instance in ("demo", "other"):
        assert errors(validate_folder(EXAMPLES, PLUGINS, Settings(instance=instance))) == ()


def test_real_git_from_commit_to_commit(tmp_path: Path) -> None:
    repo = tmp_path / "fleet.git"
    first_sha = build_fleet(repo, 30)
    loader = Loader(PlainReader(repo), PLUGINS, Settings())
    first = loader.load(revision(repo, first_sha))
    path, stopped = spec(3, lifecycle="Stopped")
    second = loader.load(revision(repo, commit(repo, {path: stopped})))
    assert len(first.agents) == 30
    assert {key.name for key in changed_agents(first, second)} == {"desk-00003"}
    third = loader.load(revision(repo, commit(repo, {path: spec(3)[1]})))
    assert third.agents == first.agents
    assert third.revision.tree == first.revision.tree


def test_real_git_with_a_symlink_and_a_submodule(tmp_path: Path) -> None:
    repo = tmp_path / "fleet.git"
    build_fleet(repo, 2)
    target = git(repo, "hash-object", "-w", "--stdin", stdin=b"/etc/passwd").decode().strip()
    head = git(repo, "rev-parse", "main").decode().strip()
    listing = git(repo, "ls-tree", "main")
    listing += f"120000 blob {target}\tlink.yaml\n160000 commit {head}\tsub\n".encode()
    tree = git(repo, "mktree", stdin=listing).decode().strip()
    author = ["-c", "user.name=A", "-c", "user.email=a@localhost"]
    sha = git(repo, *author, "commit-tree", tree, "-m", "odd").decode().strip()

    class Sizeless(PlainReader):
        def entries(self, sha: str):  # type: ignore[no-untyped-def]
            listed = git(repo, "ls-tree", "-r", "-z", "--full-tree", sha).decode().split("\0")[:-1]
            from gitops_agent.ports import TreeEntry

            handle = [line.partition("\t") for line in listed]
            return [TreeEntry(*about.split(), None, path) for about, _, path in handle]

    with pytest.raises(InvalidDesiredState) as refused:
        Loader(Sizeless(repo), PLUGINS, Settings()).load(revision(repo, sha))
    assert codes(refused.value.findings) == ["Symlink", "Gitlink"]
