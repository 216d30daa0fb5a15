"""What GitPython carries for us: git's own values, our limits around it, its advisories at our border."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import gitops_agent
from gitops_agent.errors import SourceError, SourceRefused, SourceUnavailable, UsageError
from gitops_agent.settings import Settings
from gitops_agent.source.address import Address
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.git import Git
from gitops_agent.source.git_environment import identity
from gitops_agent.source.git_errors import LocalFailure
from gitops_agent.source.git_text import LOG_FORMAT, parse_commits
from gitops_agent.source.gitpython import GitPythonCannot
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.notes import Notes
from tests.source.conftest import PLAIN, Desk, git, make_desk

MirrorOf = Callable[..., Mirror]
SettingsOf = Callable[..., Settings]

ADA = b"Ada <ada@example.com> 1700000000 +0100"
ARMOUR = b"-----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----"
HEADERS = {
    "plain": b"",
    "latin-1": b"encoding ISO-8859-1\n",
    "unknown encoding": b"encoding klingon\n",
    "signed": b"gpgsig " + ARMOUR + b"\n",
    "signed twice": b"gpgsig " + ARMOUR + b"\ngpgsig-sha256 " + ARMOUR + b"\n",
    "mergetag": b"mergetag object " + b"1" * 40 + b"\n type commit\n tag x\n \n text\n",
}


def _write_commit(mirror: Mirror, header: bytes, body: bytes, author: bytes = ADA) -> str:
    tree = git(mirror.git.directory, "rev-parse", f"{mirror.head_ref}^{{tree}}").encode()
    parent = mirror.cached_head() or ""
    raw = b"tree %s\nparent %s\nauthor %s\ncommitter %s\n%s\n%s" % (
        tree,
        parent.encode(),
        author,
        ADA,
        header,
        body,
    )
    command = ["git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"]
    done = subprocess.run(command, cwd=mirror.git.directory, env=PLAIN, input=raw, capture_output=True, check=True)
    return done.stdout.decode().strip()


def _by_log(mirror: Mirror, sha: str, tree: str) -> object:
    shape = ("log", "--no-walk", "--encoding=UTF-8", f"--format={LOG_FORMAT}", sha)
    return next(parse_commits(mirror.git.local(*shape).output, iter([tree])))


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize("body", [b"Change\n\nBecause.\n", b"no newline", b"", b"caf\xe9\n", "für\n".encode()])
def test_a_commit_reads_as_git_log_shows_it(kind: str, body: bytes, mirror: Mirror) -> None:
    mirror.refresh()
    sha = _write_commit(mirror, HEADERS[kind], body)
    with mirror.git.conversation() as repo:
        assert repo.revision(sha, "t") == _by_log(mirror, sha, "t")
    assert mirror.git.revisions([sha], ["t"]) == [_by_log(mirror, sha, "t")]


@pytest.mark.parametrize(
    "author",
    [
        b"<ada@example.com> 1700000000 +0000",
        b"Ada L. <> 1700000000 +0000",
        b"Ada <ada@example.com> 1700000000 +051800",
        b"\xffda <a@example.com> 1700000000 -0000",
    ],
)
def test_odd_authors_read_as_git_log_shows_them(author: bytes, mirror: Mirror) -> None:
    mirror.refresh()
    sha = _write_commit(mirror, b"", b"x\n", author)
    assert mirror.revision(sha) == _by_log(mirror, sha, mirror.revision(sha).tree)


@pytest.mark.parametrize("raw", [b"", b"no header at all", b"author \nauthor\n\n"])
def test_a_commit_that_makes_no_sense_is_an_error_and_the_reader_lives_on(raw: bytes, mirror: Mirror) -> None:
    head = mirror.refresh()
    command = ["git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"]
    made = subprocess.run(command, cwd=mirror.git.directory, env=PLAIN, input=raw, capture_output=True, check=True)
    with pytest.raises(GitPythonCannot), mirror.git.conversation() as repo:
        repo.revision(made.stdout.decode().strip(), "")
    assert mirror.revision(head.sha) == head


def test_an_oversized_commit_is_not_read_into_this_process(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = mirror.refresh()
    sha = _write_commit(mirror, b"", b"x" * 5000)
    monkeypatch.setattr("gitops_agent.source.gitpython.COMMIT_BYTES", 4000)
    with pytest.raises(GitPythonCannot), mirror.git.conversation() as repo:
        repo.revision(sha, "")
    assert mirror.revision(sha).message == "x" * 5000  # git log reads it, up to the cap of an answer
    assert mirror.revision(head.sha) == head


def test_ancestry_of_a_missing_commit_is_a_failure_of_the_mirror(mirror: Mirror) -> None:
    head = mirror.refresh().sha
    assert mirror.git.contains(head, head)
    assert not mirror.git.contains("f" * 40, head)
    with pytest.raises(LocalFailure, match=r"git merge-base failed: .*f{40}"):
        mirror.git.contains(head, "f" * 40)


def test_many_threads_read_at_once(desk: Desk, mirror: Mirror) -> None:
    shas = [desk.commit({"agents/acme/a.yaml": f"a: {n}\n"}, push=n == 5) for n in range(2, 6)]
    mirror.refresh()
    wrong: list[str] = []

    def read(sha: str) -> None:
        wrong.extend(sha for _ in range(30) if mirror.revision(sha).sha != sha)

    threads = [threading.Thread(target=read, args=(sha,)) for sha in shas * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
def test_a_reader_that_hangs_or_dies_is_replaced_in_time(
    blow: signal.Signals, desk: Desk, mirror_of: MirrorOf
) -> None:
    mirror = mirror_of(git_timeout=2.0)
    first = mirror.refresh()
    head = desk.commit({"agents/acme/a.yaml": "a: 2\n"})
    mirror.refresh()
    for _ in range(2):
        reader = mirror.git._repo().git.cat_file_header
        assert reader is not None
        os.kill(reader.proc.pid, blow)
        began = time.monotonic()
        assert mirror.is_ancestor(first.sha, head)
        assert time.monotonic() - began < 10
        assert mirror.revision(first.sha) == first


def test_a_name_of_several_lines_does_not_put_the_reader_out_of_step(mirror: Mirror) -> None:
    head = mirror.refresh()
    assert mirror.git.find(f"{head.sha}\n{head.tree}", "commit") is None
    assert mirror.git.find(head.tree, "tree") == head.tree
    assert mirror.git.find("nothing here", "commit") is None
    assert mirror.git.find(head.sha, "commit") == head.sha


# ----- writing


def test_a_repository_with_sha256_is_written_too(
    tmp_path: Path, mirror_of: MirrorOf, settings: SettingsOf
) -> None:
    desk = make_desk(tmp_path / "other", "--object-format=sha256")
    shutil.rmtree(desk.work)
    git(desk.bare.parent, "init", "-q", "--object-format=sha256", str(desk.work))
    desk.git("remote", "add", "origin", str(desk.bare))
    first = desk.commit({"agents/a.yaml": "a: 1\n"})
    bad = desk.commit({"agents/a.yaml": "a: 2\n"})
    mirror = mirror_of(repo=str(desk.bare))
    assert [each.sha for each in mirror.history(mirror.refresh().sha, 5)] == [bad, first]
    writer = BranchWriter(mirror, settings(repo=str(desk.bare)))
    writer.push(writer.revert([bad], "Roll back"), "main")
    undone = mirror.refresh()
    assert undone.tree == mirror.revision(first).tree
    assert mirror.undoes(undone.sha, bad)
    edited = writer.edit({"agents/a.yaml": b"a: 3\n"}, "Edit")
    assert mirror.revision(edited).author == "gitops-agent <gitops-agent@localhost>"
    notes = Notes(mirror, settings(repo=str(desk.bare)))
    notes.write({bad: "x\n"})
    notes.push()


def test_an_edit_keeps_names_that_are_no_text(desk: Desk, mirror: Mirror, writer: BranchWriter) -> None:
    blob = git(desk.work, "rev-parse", "HEAD:agents/acme/a.yaml")
    listing = b"100644 blob %s\tbad\xff.yaml\0" % blob.encode() + b"100644 blob %s\tx.yaml\0" % blob.encode()
    made = subprocess.run(["git", "mktree", "-z"], cwd=desk.work, input=listing, capture_output=True, check=True)
    commit = git(desk.work, "commit-tree", made.stdout.decode().strip(), "-p", "HEAD", "-m", "bytes")
    git(desk.work, "push", "-q", "origin", f"{commit}:main")
    mirror.refresh()
    sha = writer.edit({"x.yaml": b"x: 2\n"}, "Edit")
    assert [entry.path for entry in mirror.entries(sha)] == ["bad\udcff.yaml", "x.yaml"]


def test_a_tree_is_written_as_git_add_writes_it(mirror: Mirror, writer: BranchWriter, desk: Desk) -> None:
    names = ["a-b/x", "a/x", "a.b", "ä/ö", "a0", "日本/語", 'quo"te', "back\\slash", "new\nline", "run"]
    (desk.work / "run").touch(0o755)
    desk.commit(dict.fromkeys(names, "1"))
    mirror.refresh()
    written = mirror.revision(writer.edit(dict.fromkeys(names, b"2"), "Edit"))
    assert git(mirror.git.directory, "fsck", "--strict", "--no-dangling", written.sha) == ""
    for name in names:
        (desk.work / name).write_text("2")
    desk.git("commit", "-q", "-a", "-m", "Edit")
    assert written.tree == desk.git("rev-parse", "HEAD^{tree}")


def test_time_and_encoding_of_our_commits_come_from_us(
    desk: Desk,
    mirror: Mirror,
    writer: BranchWriter,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / ".gitconfig").write_text("[i18n]\n commitEncoding = latin1\n[user]\n name = Mallory\n")
    for name, value in (
        ("HOME", str(tmp_path)),
        ("GIT_AUTHOR_DATE", "@1 +0000"),
        ("GIT_COMMITTER_DATE", "@1 +0000"),
    ):
        monkeypatch.setenv(name, value)
    bad = desk.commit({"agents/acme/a.yaml": "a: 2\n"})
    mirror.refresh()
    sha = writer.revert([bad], "Zurück für alle")
    raw = subprocess.run(
        ["git", "cat-file", "commit", sha], cwd=mirror.git.directory, env=PLAIN, capture_output=True, check=True
    ).stdout
    assert "Zurück für alle".encode() in raw
    assert b"encoding" not in raw
    assert b"Mallory" not in raw
    assert mirror.revision(sha).committed_at > 1_700_000_000


# ----- the remote


def test_a_first_fetch_reports_how_far_it_is(desk: Desk, settings: SettingsOf, mirror_of: MirrorOf) -> None:
    desk.commit({f"agents/acme/{n}.yaml": f"n: {n}\n" for n in range(300)})
    steps: list[tuple[str, int, int | None]] = []
    clock = mirror_of()._given[1]
    mirror = Mirror(settings(), os.environ, clock, lambda *step: steps.append(step))
    mirror.refresh()
    phases = {phase for phase, _, _ in steps}
    assert phases & {"Receiving objects", "Counting objects", "Compressing objects"}
    assert all(total is None or 0 <= done <= total for _, done, total in steps)
    count = len(steps)
    mirror.refresh()
    assert len(steps) == count


def test_a_bar_that_fails_does_not_stop_a_fetch(desk: Desk, settings: SettingsOf, mirror_of: MirrorOf) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no terminal")

    assert Mirror(settings(), os.environ, mirror_of()._given[1], fail).refresh().sha == desk.head()


def _stub(folder: Path, verb: str, script: str) -> dict[str, str]:
    """An environment whose git does something else for one verb."""
    real = shutil.which("git")
    path = folder / "bin/git"
    path.parent.mkdir()
    path.write_text(
        f'#!/bin/bash\nfor word; do if [ "$word" = {verb} ]; then {script}; fi; done\nexec {real} "$@"\n'
    )
    path.chmod(0o755)
    return {"PATH": f"{path.parent}{os.pathsep}{os.environ['PATH']}"}


def test_a_flood_of_complaints_is_cut_and_not_logged(
    mirror_of: MirrorOf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    flood = r"head -c 20000000 /dev/zero | tr '\0' x >&2; printf 'error: canary \xff\n%.0s' {1..5000} >&2; exit 1"
    mirror = mirror_of(_stub(tmp_path, "fetch", flood))
    with pytest.raises(SourceUnavailable, match="canary") as caught:
        mirror.refresh()
    assert len(caught.value.message) < 2000
    assert "canary" not in caplog.text


@pytest.mark.parametrize("end", ["wait", "exit 1", "exit 0"])
def test_a_fetch_that_hangs_is_ended_with_all_it_started(end: str, mirror_of: MirrorOf, tmp_path: Path) -> None:
    mark = tmp_path / "child"
    environment = _stub(tmp_path, "fetch", f'sleep 600 & echo $! > "{mark}"; {end}')
    mirror = mirror_of(environment, git_timeout=2.0)
    began = time.monotonic()
    with pytest.raises(SourceUnavailable, match="no end after 2 s"):
        mirror.refresh()
    assert time.monotonic() - began < 20
    child = Path("/proc") / mark.read_text().strip() / "stat"
    deadline = time.monotonic() + 10
    while _is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)  # killed, and not yet off the processor
    assert not _is_alive(child)


def _is_alive(stat: Path) -> bool:
    try:
        return stat.read_text().split()[2] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_only_one_module_imports_gitpython() -> None:
    package = Path(gitops_agent.__file__).parent
    importing = re.compile(r"^\s*(?:import git\b|from git(?:db)?[. ])", re.MULTILINE)
    found = [path.name for path in package.rglob("*.py") if importing.search(path.read_text())]
    assert found == ["gitpython.py"]


# ----- the advisories of GitPython, at our border and behind it


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that appears when an attack works."""
    return tmp_path / "pwned"


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch {mark}'",
        "ext://touch {mark}",
        "::touch {mark}",
        "--upload-pack=touch {mark}",
        "-u touch",
    ],
)
def test_protocols_and_options_in_an_address(url: str, mark: Path, mirror_of: MirrorOf) -> None:
    """CVE-2022-24439, CVE-2023-40267, CVE-2026-67322: refused by our grammar, and by the door without it."""
    text = url.format(mark=mark)
    with pytest.raises(UsageError):
        mirror_of(repo=text)
    mirror = mirror_of()
    mirror.refresh()
    door = Git(mirror.git.directory, Address("path", text), mirror._settings, os.environ, mirror._given[1])
    for call in (
        lambda: door.fetch("+refs/heads/main:refs/x"),
        lambda: door.push("refs/remotes/origin/main:refs/heads/x"),
        lambda: door.remote("ls-remote", "--refs", "--", text),
    ):
        with pytest.raises(SourceError):
            call()
    assert not mark.exists()


@pytest.mark.parametrize(
    "option", ["--upload-pack=touch {mark}", "--receive-pack=touch {mark}", "--exec=touch {mark}"]
)
def test_options_in_a_refspec(option: str, mark: Path, mirror: Mirror) -> None:
    """CVE-2026-42215, -42284: an option where a refspec is due stays an operand."""
    mirror.refresh()
    text = option.format(mark=mark)
    with pytest.raises(SourceError):
        mirror.git.fetch(text)
    with pytest.raises(SourceError):
        mirror.git.push(text)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    ["--output={mark}", "-o{mark}", "--upload-pack=x", "main\n--output={mark}", "@{{u}}", "main^{{/x}}", ":/x"],
)
def test_options_in_a_revision(name: str, mark: Path, mirror: Mirror) -> None:
    """CVE-2026-67323, -67325: revisions are checked by our grammar, and the reader takes names, never options."""
    mirror.refresh()
    text = name.format(mark=mark)
    with pytest.raises((UsageError, SourceRefused)):
        mirror.revision(text)
    mirror.git.find(text, "commit")
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["refs/../../secret", "../secret", "refs/heads/../../../secret", "/{where}/secret"]
)
def test_refs_outside_of_the_repository(name: str, mirror: Mirror) -> None:
    """CVE-2023-41040: a ref is never read from a file outside of the mirror."""
    head = mirror.refresh()
    state = mirror.git.directory.parent
    (state / "secret").write_text(head.sha + "\n")
    assert mirror.git.ref(name.format(where=state)) is None


def test_another_program_is_never_taken_for_git(mark: Path, tmp_path: Path, settings: SettingsOf) -> None:
    """CVE-2023-40590, CVE-2024-22190: neither the working directory nor a variable names the program."""
    here = tmp_path / "here"
    here.mkdir()
    for name in ("git", "git.exe", "env"):
        (here / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (here / name).chmod(0o755)
    code = (
        "import os; from gitops_agent.settings import Settings; from gitops_agent.source.mirror import Mirror\n"
        "from gitops_agent.support.clock import SystemClock\n"
        f"made = Settings(repo={settings().repo!r}, state_dir={settings().state_dir!r}, instance='test')\n"
        "print(Mirror(made, os.environ, SystemClock()).refresh().sha)"
    )
    world = {**os.environ, "GIT_PYTHON_GIT_EXECUTABLE": str(here / "git"), "GIT_PYTHON_TRACE": "full"}
    world["PYTHONPATH"] = str(Path.cwd())
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=here, env=world, capture_output=True, text=True, check=True
    )
    assert len(done.stdout.strip()) == 40
    assert not mark.exists()


@pytest.mark.parametrize("name", ["x\ncommitter Mallory", "x <m@example.com>", "x\0y"])
def test_an_identity_cannot_add_headers(name: str, settings: SettingsOf) -> None:
    """PYSEC-2026-3952, CVE-2026-44244: newlines in what we write are refused before GitPython sees them."""
    with pytest.raises(UsageError):
        identity(settings(author_name=name))


def test_the_configuration_of_the_mirror_is_not_written_through_gitpython(mirror: Mirror) -> None:
    """CVE-2026-67326, -78676: no remote, no section, no value of ours gets into a configuration file."""
    mirror.refresh()
    before = (mirror.git.directory / "config").read_text()
    mirror.git.fetch(f"+refs/heads/main:{mirror.head_ref}")
    assert (mirror.git.directory / "config").read_text() == before
    assert replace(mirror.address).target not in before
