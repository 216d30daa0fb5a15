"""The notes sink: it writes what changed, pushes it, and never rewrites what a commit ended with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.errors import SourceUnavailable
from gitops_agent.model.status import Phase
from gitops_agent.report.sinks.git_notes import GitNotesSink, parse_note
from gitops_agent.support.secrets import Redactor
from tests.report.values import BOT, OTHER, SHA, a_change, a_record, a_status, an_entry


class Shelf:
    """A NoteStore in memory that fails when a test wants it to."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.remote: dict[str, str] = {}
        self.writes = 0
        self.pushes = 0
        self.push_error: Exception | None = None

    def read_all(self, shas: Sequence[str]) -> Mapping[str, str]:
        return {sha: self.notes[sha] for sha in shas if sha in self.notes}

    def write(self, notes: Mapping[str, str]) -> None:
        self.writes += 1
        self.notes.update(notes)

    def push(self, write: Callable[[], object]) -> None:
        write()
        self.pushes += 1
        if self.push_error is not None:
            raise self.push_error
        self.remote = dict(self.notes)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def sink(shelf: Shelf) -> GitNotesSink:
    return GitNotesSink("prod-eu", shelf, Redactor())


def test_a_note_is_written_and_pushed(sink: GitNotesSink, shelf: Shelf) -> None:
    sink.deliver([a_change()])
    assert shelf.remote[SHA].startswith("prod-eu: Converged")


def test_several_notes_are_one_write_and_one_push(sink: GitNotesSink, shelf: Shelf) -> None:
    sink.deliver([a_change(), a_change(a_record(OTHER))])
    assert (shelf.writes, shelf.pushes, set(shelf.remote)) == (1, 1, {SHA, OTHER})


def test_a_push_that_fails_is_made_up_for_without_another_write(sink: GitNotesSink, shelf: Shelf) -> None:
    shelf.push_error = SourceUnavailable("the remote does not answer")
    with pytest.raises(SourceUnavailable):
        sink.deliver([a_change()])
    shelf.push_error = None
    GitNotesSink("prod-eu", shelf, Redactor()).deliver([a_change()])  # another process, after a crash
    assert (shelf.writes, shelf.remote) == (1, shelf.notes)


def test_a_rollback_keeps_the_agents_of_the_undone_commit_whatever_process_writes_it(shelf: Shelf) -> None:
    bad = a_record(phase=Phase.DEGRADED)
    for change in (
        a_change(bad, statuses={BOT: a_status(ready=False)}),
        a_change(replace(bad, rolled_back_by=OTHER), statuses={BOT: a_status(commit=OTHER)}),
    ):
        GitNotesSink("prod-eu", shelf, Redactor()).deliver([change])
    note = parse_note(shelf.notes[SHA])
    assert note is not None
    assert note["RolledBackBy"] == OTHER
    assert note["agents"][0]["ready"] is False


def test_the_notes_of_a_long_history_keep_their_agents(sink: GitNotesSink, shelf: Shelf) -> None:
    shas = [f"{number:040x}" for number in range(600)]
    sink.deliver([a_change(a_record(sha), statuses={BOT: a_status(commit=sha)}) for sha in shas])
    sink.deliver([a_change(a_record(shas[0], rolled_back_by=OTHER), statuses={BOT: a_status(commit=OTHER)})])
    note = parse_note(shelf.remote[shas[0]])
    assert note is not None
    assert (note["RolledBackBy"], note["agents"][0]["agent"]) == (OTHER, str(BOT))


def test_a_note_that_cannot_be_rendered_does_not_hold_the_others(
    sink: GitNotesSink, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    broken: Any = None
    sink.deliver([a_change(a_record(OTHER, findings=broken)), a_change()])
    assert set(shelf.remote) == {SHA}
    printed = capsys.readouterr()
    assert "a note could not be rendered" in printed.out + printed.err


def test_without_push_notes_stay_local(shelf: Shelf) -> None:
    GitNotesSink("prod-eu", shelf, Redactor(), push=False).deliver([a_change()])
    assert (shelf.pushes, set(shelf.notes)) == (0, {SHA})


def test_secrets_stay_out_of_notes(shelf: Shelf) -> None:
    sink = GitNotesSink("prod-eu", shelf, Redactor(["canary-71f0a9c2"]))
    record = a_record(phase=Phase.DEGRADED, summary="printed canary-71f0a9c2")
    sink.deliver([a_change(record, entries=[an_entry(result="Failed", outcome="canary-71f0a9c2")])])
    assert "canary" not in shelf.notes[SHA]


class CommandLine:
    """A NoteStore over the git command line."""

    REF = "refs/notes/gitops-agent/prod-eu"

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *arguments: str, stdin: str | None = None) -> str:
        identity = {
            f"GIT_{who}_{what}": "gitops-agent" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.path), "GIT_CONFIG_NOSYSTEM": "1", **identity}
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=self.path, env=environment, input=stdin, capture_output=True, text=True, check=True
        )
        return done.stdout

    def write(self, notes: Mapping[str, str]) -> None:
        for sha, text in notes.items():
            self.git("notes", f"--ref={self.REF}", "add", "-f", "-F", "-", sha, stdin=text)

    def read_all(self, shas: Sequence[str]) -> Mapping[str, str]:
        del shas
        return {}

    def push(self, write: Callable[[], object]) -> None:
        write()
        self.git("push", "-q", "origin", self.REF)


def test_git_log_reads_well(tmp_path: Path) -> None:
    remote, mirror = tmp_path / "remote.git", tmp_path / "mirror"
    for path, options in ((remote, ["--bare"]), (mirror, [])):
        path.mkdir()
        CommandLine(path).git("init", "-q", "-b", "main", *options)
    store = CommandLine(mirror)
    store.git("remote", "add", "origin", str(remote))
    store.git("commit", "-q", "--allow-empty", "-m", "Give support-bot a second replica")
    sha = store.git("rev-parse", "HEAD").strip()
    store.git("push", "-q", "origin", "main")
    GitNotesSink("prod-eu", store, Redactor()).deliver(
        [a_change(a_record(sha), statuses={BOT: a_status(commit=sha)})]
    )

    log = CommandLine(remote).git("log", "--notes=gitops-agent/prod-eu", "main")
    lines = [line.strip() for line in log.split("\n")]
    start = lines.index("Notes (gitops-agent/prod-eu):")
    assert lines[start + 1] == "prod-eu: Converged, 12 agents, 3 changed, 4.2 s"
    assert lines[start + 2] == ""
    assert "kind: ConvergenceStatus" in lines
    assert "- agent: acme/support-bot" in lines
    shown = CommandLine(remote).git("notes", "--ref=gitops-agent/prod-eu", "show", sha)
    note = parse_note(shown)
    assert note is not None
    assert note["commit"] == sha
