"""Whatever the user, the system or the environment configure, git does as we say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_agent.settings import Settings
from gitops_agent.source.bounded_process import Runner
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.notes import Notes
from tests.source.conftest import Desk, git, make_desk

MirrorOf = Callable[..., Mirror]


def _script(path: Path, mark: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho pwned >> {mark}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a system and an environment that try to take over; the file that would appear if they did."""
    mark, home = tmp_path / "pwned", tmp_path / "home"
    evil = _script(tmp_path / "evil", mark)
    for hook in ("post-update", "pre-push", "reference-transaction", "post-checkout", "fsmonitor-watchman"):
        _script(tmp_path / "templates/hooks" / hook, mark)
    elsewhere = make_desk(tmp_path / "elsewhere")
    elsewhere.commit({"evil.yaml": "evil: 1\n"})
    included = home / "included"
    included.parent.mkdir(parents=True)
    included.write_text(f'[alias]\n  ls-remote = "!{evil}"\n[core]\n  sshCommand = {evil}\n')
    (home / ".gitconfig").write_text(
        f"""
[include]
  path = {included}
[core]
  hooksPath = {tmp_path}/templates/hooks
  fsmonitor = {evil}
  askPass = {evil}
  pager = {evil}
  editor = {evil}
[init]
  templateDir = {tmp_path}/templates
[credential]
  helper = !{evil}
[uploadpack]
  packObjectsHook = {evil}
[protocol]
  allow = always
[url "{elsewhere.bare}"]
  insteadOf = {tmp_path}/remote/fleet.git
[transfer]
  fsckObjects = false
[user]
  name = Mallory
  email = mallory@example.com
[commit]
  gpgSign = true
[gpg]
  program = {evil}
[diff]
  external = {evil}
"""
    )
    config = home / ".config/git"
    config.mkdir(parents=True)
    (config / "config").write_text((home / ".gitconfig").read_text())
    (config / "attributes").write_text("* diff=evil merge=evil filter=evil\n")
    variables = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_SYSTEM": str(home / ".gitconfig"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(evil),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{evil}'",
        "GIT_DIR": str(elsewhere.bare),
        "GIT_WORK_TREE": str(tmp_path),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(elsewhere.bare / "objects"),
        "GIT_NAMESPACE": "evil",
        "GIT_TEMPLATE_DIR": str(tmp_path / "templates"),
        "GIT_EXEC_PATH": str(tmp_path),
        "GIT_SSH_COMMAND": str(evil),
        "GIT_SSH": str(evil),
        "GIT_ASKPASS": str(evil),
        "SSH_ASKPASS": str(evil),
        "GIT_PROXY_COMMAND": str(evil),
        "GIT_EXTERNAL_DIFF": str(evil),
        "GIT_PAGER": str(evil),
        "GIT_EDITOR": str(evil),
        "GIT_TRACE": str(mark),
        "GIT_TRACE2": str(mark),
        "GIT_TRACE_PACKET": str(mark),
        "GIT_AUTHOR_NAME": "Mallory",
        "GIT_COMMITTER_EMAIL": "mallory@example.com",
        "GIT_NOTES_REF": "refs/notes/evil",
        "GIT_REPLACE_REF_BASE": "refs/evil",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_SHALLOW_FILE": str(mark),
        "GIT_ALLOW_PROTOCOL": "ext",
        "LD_LIBRARY_PATH": str(tmp_path),
        "PAGER": str(evil),
        "EDITOR": str(evil),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return mark


def test_nothing_configured_elsewhere_reaches_our_git(
    desk: Desk, hostile: Path, mirror_of: MirrorOf, settings: Callable[..., Settings]
) -> None:
    for form in (str(desk.bare), desk.bare.as_uri()):
        mirror = mirror_of(dict(os.environ), repo=form, state_dir=str(hostile.parent / f"state-{len(form)}"))
        assert mirror.refresh().sha == desk.head()
    bad = desk.commit({"agents/acme/a.yaml": "a: 2\n"})
    assert mirror.refresh().sha == bad
    notes = Notes(mirror, settings())
    notes.write({bad: "x\n"})
    notes.push()
    writer = BranchWriter(mirror, settings())
    sha = writer.revert([bad], "Roll back")
    writer.push(sha, "main")
    assert mirror.undoes(sha, bad)
    assert mirror.revision(sha).author == "gitops-agent <gitops-agent@localhost>"
    assert git(desk.bare, "rev-parse", "main") == sha
    assert not hostile.exists()
    assert not list(mirror.git.directory.glob("hooks/*"))


def test_what_git_sees_is_exactly_what_we_gave(hostile: Path, mirror_of: MirrorOf, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    spy = tmp_path / "bin/git"
    spy.parent.mkdir()
    spy.write_text(f'#!/bin/sh\nenv | sed "s/=.*//" | sort > "{seen}"\necho "git version 2.39.0"\n')
    spy.chmod(0o755)
    mirror = mirror_of({**os.environ, "PATH": f"{spy.parent}{os.pathsep}{os.environ['PATH']}", "CANARY": "1"})
    mirror.git.local("version")
    names = set(seen.read_text().split())
    assert not {name for name in names if name.startswith(("LD_", "SSH_")) and name != "SSH_ASKPASS"}
    assert not names & {
        "CANARY",
        "GIT_DIR",
        "GIT_TRACE",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_PARAMETERS",
        "GIT_EXEC_PATH",
    }
    assert {"GIT_CONFIG_NOSYSTEM", "GIT_TERMINAL_PROMPT", "GIT_ALLOW_PROTOCOL"} <= names


def test_a_hostile_configuration_inside_a_local_repository_runs_nothing(
    desk: Desk, mirror_of: MirrorOf, tmp_path: Path
) -> None:
    mark = tmp_path / "pwned"
    evil = _script(tmp_path / "evil", mark)
    for hook in ("post-update", "pre-receive", "update", "post-receive", "reference-transaction"):
        _script(desk.bare / "hooks" / hook, mark)
    with (desk.bare / "config").open("a") as config:
        config.write(f"[uploadpack]\n packObjectsHook = {evil}\n[core]\n fsmonitor = {evil}\n")
        config.write(f'[remote "p"]\n url = ext::{evil}\n promisor = true\n uploadpack = {evil}\n')
        config.write("[extensions]\n partialClone = p\n")
    mirror = mirror_of()
    assert mirror.refresh().sha == desk.head()
    notes = Notes(mirror, mirror._settings)
    notes.write({desk.head(): "x\n"})
    notes.push()
    assert not mark.exists()


def test_submodules_are_listed_and_never_fetched(desk: Desk, mirror: Mirror, tmp_path: Path) -> None:
    mark = tmp_path / "pwned"
    evil = _script(tmp_path / "evil", mark)
    (desk.work / ".gitmodules").write_text(f'[submodule "m"]\n path = m\n url = {desk.bare}\n update = none\n')
    desk.git("update-index", "--add", "--cacheinfo", f"160000,{desk.head()},m")
    desk.git("add", ".gitmodules")
    desk.git("commit", "-qm", "module")
    desk.push()
    head = mirror.refresh()
    assert {entry.type for entry in mirror.entries(head.sha)} == {"blob", "commit"}
    assert evil.exists()
    assert not mark.exists()
    assert not (mirror.git.directory / "modules").exists()


def test_a_repository_name_that_needs_quoting(tmp_path: Path, mirror_of: MirrorOf) -> None:
    desk = make_desk(tmp_path / 'odd "name" \\ ü = [x]')
    sha = desk.commit({"a.yaml": "a: 1\n"})
    assert mirror_of(repo=str(desk.bare)).refresh().sha == sha


def test_what_a_process_is_given_is_never_printed() -> None:
    runner = Runner(Path("/mirror.git"), {"GIT_CONFIG_VALUE_0": "canary-of-this-test"}, 1.0)
    assert "canary" not in f"{runner} {runner!r}"
