"""The notes sink: coalesced, never in the way of a pass, never forgetting what it could not send."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gitops_agent.errors import SourceUnavailable
from gitops_agent.model.status import Phase
from gitops_agent.report.note import parse_note
from gitops_agent.report.sinks.git_notes import GitNotesSink
from gitops_agent.support.secrets import Redactor
from gitops_agent.testing.clock import FrozenClock

from .values import BOT, OTHER, SHA, a_record, a_report, a_status, an_entry


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Shelf:
    """A NoteStore in memory that fails when told to."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.remote: dict[str, str] = {}
        self.writes = 0
        self.pushes = 0
        self.write_error: Exception | None = None
        self.push_error: Exception | None = None
        self.gate: threading.Event | None = None
        self.pushing = threading.Event()

    def write(self, notes: Mapping[str, str]) -> None:
        if self.write_error is not None:
            raise self.write_error
        self.writes += 1
        self.notes.update(notes)

    def push(self) -> None:
        self.pushes += 1
        self.pushing.set()
        if self.gate is not None:
            assert self.gate.wait(20)
        if self.push_error is not None:
            raise self.push_error
        self.remote = dict(self.notes)

    def read(self, shas: Sequence[str]) -> Mapping[str, str]:
        return {sha: self.notes[sha] for sha in shas if sha in self.notes}


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def sink(shelf: Shelf, clock: FrozenClock) -> GitNotesSink:
    return GitNotesSink(shelf, clock)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_note_is_in_the_mirror_at_once_and_pushed_after_the_interval(
    sink: GitNotesSink, shelf: Shelf, clock: FrozenClock
) -> None:
    sink.publish(a_report(a_record()))
    assert shelf.notes[SHA].startswith("prod-eu: Converged")
    sink.step()
    assert shelf.pushes == 0
    clock.advance(2.0)
    sink.step()
    assert shelf.remote == shelf.notes
    clock.advance(100)
    sink.step()
    assert shelf.pushes == 1


def test_a_burst_of_reports_is_one_push(sink: GitNotesSink, shelf: Shelf, clock: FrozenClock) -> None:
    for changed in range(20):
        sink.publish(a_report(a_record(changed=changed)))
        clock.advance(0.1)
        sink.step()
    assert shelf.pushes == 1
    assert sink.flush(10.0) is True
    assert "19 changed" in shelf.remote[SHA]


def test_flush_does_not_wait_when_nothing_was_pushed_lately(sink: GitNotesSink, shelf: Shelf) -> None:
    sink.publish(a_report(a_record()))
    assert sink.flush(0.0) is True
    assert shelf.remote == shelf.notes
    assert sink.flush(0.0) is True
    assert shelf.pushes == 1


def test_flush_keeps_the_interval_and_says_when_there_is_no_time_for_it(
    sink: GitNotesSink, shelf: Shelf, clock: FrozenClock
) -> None:
    sink.publish(a_report(a_record()))
    assert sink.flush(0.0) is True
    sink.publish(a_report(a_record(changed=4)))
    assert sink.flush(1.0) is False
    assert shelf.pushes == 1
    assert "4 changed" in shelf.notes[SHA]
    clock.advance(2.0)
    assert sink.flush(1.0) is True
    assert shelf.remote == shelf.notes


def test_an_unchanged_note_is_not_written_again(sink: GitNotesSink, shelf: Shelf) -> None:
    sink.publish(a_report(a_record()))
    sink.publish(a_report(a_record()))
    assert shelf.writes == 1


def test_unchanged_also_means_across_a_restart(sink: GitNotesSink, shelf: Shelf, clock: FrozenClock) -> None:
    sink.publish(a_report(a_record()))
    again = GitNotesSink(shelf, clock, read=shelf.read)
    again.publish(a_report(a_record(), statuses={BOT: a_status(ready=False)}))
    assert shelf.writes == 1


def test_a_rollback_keeps_the_agents_of_the_undone_commit(sink: GitNotesSink, shelf: Shelf) -> None:
    bad = a_record(phase=Phase.DEGRADED)
    sink.publish(a_report(bad, statuses={BOT: a_status(ready=False)}))
    undone = replace(bad, rolled_back_by=OTHER)
    sink.publish(a_report(undone, a_record(OTHER), statuses={BOT: a_status(commit=OTHER)}))
    note = parse_note(shelf.notes[SHA])
    assert note is not None
    assert note["RolledBackBy"] == OTHER
    assert note["agents"][0]["ready"] is False


def test_a_failed_push_is_tried_again_later_and_later(
    sink: GitNotesSink, shelf: Shelf, clock: FrozenClock
) -> None:
    shelf.push_error = SourceUnavailable("the remote does not answer")
    sink.publish(a_report(a_record()))
    attempts = []
    for _ in range(600):
        clock.advance(1.0)
        before = shelf.pushes
        sink.step()
        if shelf.pushes > before:
            attempts.append(clock.monotonic())
    gaps = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert 4 < len(attempts) < 15
    assert gaps[-1] > gaps[0]
    shelf.push_error = None
    clock.advance(1000)
    sink.step()
    assert shelf.remote == shelf.notes


def test_flush_makes_one_more_attempt_and_says_that_it_failed(sink: GitNotesSink, shelf: Shelf) -> None:
    shelf.push_error = SourceUnavailable("the remote does not answer")
    sink.publish(a_report(a_record()))
    assert sink.flush(5.0) is False
    assert shelf.pushes == 1
    assert shelf.notes


@pytest.mark.parametrize("error", [SourceUnavailable("mirror is being rebuilt"), OSError(28, "No space left")])
def test_a_failed_write_never_fails_a_pass_and_is_made_up_for(
    sink: GitNotesSink, shelf: Shelf, clock: FrozenClock, error: Exception
) -> None:
    shelf.write_error = error
    sink.publish(a_report(a_record()))
    clock.advance(2.0)
    sink.step()
    assert shelf.pushes == 0
    shelf.write_error = None
    clock.advance(10.0)
    sink.step()
    assert SHA in shelf.remote


def test_the_newest_text_wins_after_a_failed_write(sink: GitNotesSink, shelf: Shelf, clock: FrozenClock) -> None:
    shelf.write_error = OSError("disk")
    sink.publish(a_report(a_record(phase=Phase.RECONCILING)))
    sink.publish(a_report(a_record()))
    shelf.write_error = None
    assert sink.flush(10.0) is True
    assert "Converged" in shelf.remote[SHA]


def test_without_push_notes_stay_local(shelf: Shelf, clock: FrozenClock) -> None:
    sink = GitNotesSink(shelf, clock, push=False)
    sink.publish(a_report(a_record()))
    clock.advance(5.0)
    sink.step()
    assert sink.flush(1.0) is True
    assert (shelf.pushes, set(shelf.notes)) == (0, {SHA})


def test_secrets_stay_out_of_notes(shelf: Shelf, clock: FrozenClock) -> None:
    sink = GitNotesSink(shelf, clock, redactor=Redactor(["canary-71f0a9c2"]))
    record = a_record(phase=Phase.DEGRADED, summary="said canary-71f0a9c2")
    sink.publish(a_report(record, entries=[an_entry(result="Failed", outcome="canary-71f0a9c2")]))
    assert "canary" not in shelf.notes[SHA]


@pytest.fixture
def running(shelf: Shelf) -> Iterator[GitNotesSink]:
    sink = GitNotesSink(shelf, SystemClock(), interval=0.05)
    sink.start()
    yield sink
    if shelf.gate is not None:
        shelf.gate.set()
    sink.close(20.0)


def test_the_thread_pushes_what_an_earlier_run_left(running: GitNotesSink, shelf: Shelf) -> None:
    until(lambda: shelf.pushes > 0)


def test_the_thread_pushes_by_itself(running: GitNotesSink, shelf: Shelf) -> None:
    running.publish(a_report(a_record()))
    until(lambda: SHA in shelf.remote)


def test_a_pass_does_not_wait_for_a_slow_push(running: GitNotesSink, shelf: Shelf) -> None:
    shelf.gate = threading.Event()
    running.publish(a_report(a_record()))
    assert shelf.pushing.wait(20)
    running.publish(a_report(a_record(OTHER)))  # returns although the push is stuck
    assert OTHER not in shelf.remote
    assert running.flush(0.05) is False
    shelf.gate.set()
    until(lambda: OTHER in shelf.remote)


def test_close_sends_the_last_note_and_ends_the_thread(shelf: Shelf) -> None:
    sink = GitNotesSink(shelf, SystemClock(), interval=0.05)
    sink.start()
    sink.publish(a_report(a_record()))
    assert sink.close(20.0) is True
    assert shelf.remote == shelf.notes
    assert not [thread for thread in threading.enumerate() if thread.name == "git-notes"]


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

    def push(self) -> None:
        self.git("push", "-q", "origin", self.REF)


def test_git_log_reads_well(tmp_path: Path, clock: FrozenClock) -> None:
    remote, mirror = tmp_path / "remote.git", tmp_path / "mirror"
    for path, options in ((remote, ["--bare"]), (mirror, [])):
        path.mkdir()
        CommandLine(path).git("init", "-q", "-b", "main", *options)
    store = CommandLine(mirror)
    store.git("remote", "add", "origin", str(remote))
    store.git("commit", "-q", "--allow-empty", "-m", "Give support-bot a second replica")
    sha = store.git("rev-parse", "HEAD").strip()
    store.git("push", "-q", "origin", "main")
    sink = GitNotesSink(store, clock)
    sink.publish(a_report(a_record(sha), statuses={BOT: a_status(commit=sha)}))
    assert sink.flush(10.0) is True

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
