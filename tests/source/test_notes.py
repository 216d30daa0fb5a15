from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_agent.errors import SourceUnavailable
from gitops_agent.settings import Settings
from gitops_agent.source.mirror import Mirror
from gitops_agent.source.notes import Notes
from tests.source.conftest import Desk, git

MirrorOf = Callable[..., Mirror]
SettingsOf = Callable[..., Settings]
REF = "refs/notes/gitops-agent/test"


@pytest.fixture
def open_notes(mirror_of: MirrorOf, settings: SettingsOf) -> Callable[[Path], Notes]:
    def build(state: Path) -> Notes:
        mirror = mirror_of(state_dir=str(state))
        mirror.refresh()
        return Notes(mirror, settings(state_dir=str(state)), sleep=lambda _: None)

    return build


def test_notes_are_read_by_plain_git_in_a_clone(desk: Desk, mirror: Mirror, notes: Notes) -> None:
    first = desk.head()
    second = desk.commit({"agents/acme/a.yaml": "a: 2\n"})
    mirror.refresh()
    notes.write({first: "test: Superseded\n", second: "test: Converged, 2 agents\n\nkind: ConvergenceStatus\n"})
    notes.push()
    desk.git("fetch", "-q", "origin", f"{REF}:{REF}")
    log = desk.git("log", "--notes=gitops-agent/test")
    assert "Notes (gitops-agent/test):\n    test: Converged, 2 agents" in log
    assert "test: Superseded" in log
    assert desk.git("log", "-1", "--format=%an <%ae>", REF) == "gitops-agent <gitops-agent@localhost>"
    assert desk.git("rev-list", "--count", REF) == "1"


def test_notes_are_replaced_and_kept(desk: Desk, mirror: Mirror, notes: Notes) -> None:
    first = desk.head()
    second = desk.commit({"x.yaml": "x: 1\n"})
    mirror.refresh()
    assert notes.read_all([first]).get(first) is None
    notes.write({first: "one\n", second: "two\n"})
    notes.write({first: "three\n"})
    notes.write({})
    notes.write({"f" * 40: "nobody\n"})
    assert (notes.read_all([first]).get(first), notes.read_all([second]).get(second)) == ("three\n", "two\n")


def test_any_text_survives(mirror: Mirror, notes: Notes) -> None:
    head = mirror.refresh().sha
    text = "prod: Converged ✓\n\nfrom refs/heads/main\ncommit x\ndone\ndata 3\n\\ \"'\t\n"
    notes.write({head: text})
    assert notes.read_all([head]).get(head) == text


def test_a_fresh_state_directory_continues_the_notes(
    mirror: Mirror, notes: Notes, open_notes: Callable[[Path], Notes], tmp_path: Path
) -> None:
    head = mirror.refresh().sha
    notes.write({head: "old\n"})
    notes.push()
    assert open_notes(tmp_path / "second").read_all([head]).get(head) == "old\n"


def test_writers_that_collide_lose_nothing_and_what_is_said_last_stays(
    desk: Desk, open_notes: Callable[[Path], Notes], tmp_path: Path
) -> None:
    first = desk.head()
    second = desk.commit({"x.yaml": "x: 1\n"})
    third = desk.commit({"x.yaml": "x: 2\n"})
    one, two = open_notes(tmp_path / "one"), open_notes(tmp_path / "two")
    one.push(lambda: one.write({first: "one\n", second: "one\n"}))
    two.push(lambda: two.write({second: "two\n", third: "two\n"}))
    assert [two.read_all([sha]).get(sha) for sha in (first, second, third)] == ["one\n", "two\n", "two\n"]
    shown = [git(desk.bare, "notes", f"--ref={REF}", "show", sha) for sha in (first, second, third)]
    assert shown == ["one", "two", "two"]
    two.push()
    one.push(lambda: one.write({third: "one again\n"}))
    assert git(desk.bare, "notes", f"--ref={REF}", "show", third) == "one again"


def test_what_was_said_before_others_took_over_replaces_nothing_of_theirs(
    desk: Desk, open_notes: Callable[[Path], Notes], tmp_path: Path
) -> None:
    """Killed with a note that was not pushed; the one that took over said more; then it is our turn again."""
    first = desk.head()
    second = desk.commit({"x.yaml": "x: 1\n"})
    one, two = open_notes(tmp_path / "one"), open_notes(tmp_path / "two")
    one.push(lambda: one.write({first: "Pending\n"}))
    one.write({first: "Reconciling\n"})
    two.push(lambda: two.write({first: "Converged\n"}))
    one = open_notes(tmp_path / "one")
    one.push(lambda: one.write({second: "Pending\n"}))
    shown = [git(desk.bare, "notes", f"--ref={REF}", "show", sha) for sha in (first, second)]
    assert shown == ["Converged", "Pending"]
    assert one.read_all([first]) == {first: "Converged\n"}


def test_what_was_written_while_nothing_was_pushed_is_pushed_one_day(
    desk: Desk, open_notes: Callable[[Path], Notes], tmp_path: Path
) -> None:
    first = desk.head()
    second = desk.commit({"x.yaml": "x: 1\n"})
    one, two = open_notes(tmp_path / "one"), open_notes(tmp_path / "two")
    one.write({first: "Converged\n"})
    two.push(lambda: two.write({second: "Pending\n"}))
    one.push()
    shown = [git(desk.bare, "notes", f"--ref={REF}", "show", sha) for sha in (first, second)]
    assert shown == ["Converged", "Pending"]


@pytest.mark.parametrize("asked", [0, 1], ids=["before it asks whether it leads", "right after that"])
def test_who_is_paused_and_leads_no_more_pushes_nothing(
    desk: Desk, open_notes: Callable[[Path], Notes], tmp_path: Path, asked: int
) -> None:
    """A leader that stands still while it pushes, for as long as another one needs to take over and to report."""
    head, answers = desk.head(), iter([True] * asked + [False] * 9)
    one, two = open_notes(tmp_path / "one"), open_notes(tmp_path / "two")

    def leading() -> bool:
        two.push(lambda: two.write({head: "Converged\n"}))
        return next(answers)

    one.mirror.leading = leading
    with pytest.raises(SourceUnavailable, match="leads its instance no more"):
        one.push(lambda: one.write({head: "Reconciling\n"}))
    assert git(desk.bare, "notes", f"--ref={REF}", "show", head) == "Converged"


def test_concurrent_writers_all_arrive(desk: Desk, open_notes: Callable[[Path], Notes], tmp_path: Path) -> None:
    shas = [desk.head(), *(desk.commit({"x.yaml": f"x: {n}\n"}) for n in range(2))]
    writers = [open_notes(tmp_path / f"state{n}") for n in range(3)]
    failures: list[Exception] = []

    def work(writer: Notes, sha: str) -> None:
        try:
            writer.write({sha: f"{sha}\n"})
            writer.push()
        except Exception as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(writers, shas, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [git(desk.bare, "notes", f"--ref={REF}", "show", sha) for sha in shas] == shas


def test_a_rejected_ref_is_tried_again_and_then_reported(
    desk: Desk, mirror: Mirror, notes: Notes, settings: SettingsOf
) -> None:
    head = mirror.refresh().sha
    notes.write({head: "x\n"})
    lock = desk.bare / f"{REF}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    pauses: list[float] = []
    stubborn = Notes(mirror, settings(), jitter=lambda: 0.5, sleep=pauses.append)
    with pytest.raises(SourceUnavailable, match="rejected"):
        stubborn.push()
    assert len(pauses) >= 3
    assert pauses == sorted(pauses)
    impatient = Notes(mirror, settings(), sleep=lambda _: lock.unlink(missing_ok=True))
    impatient.push()
    assert git(desk.bare, "notes", f"--ref={REF}", "show", head) == "x"


def test_an_unreachable_remote_keeps_the_notes_for_later(desk: Desk, mirror: Mirror, notes: Notes) -> None:
    head = mirror.refresh().sha
    away = desk.bare.rename(desk.bare.with_name("away.git"))
    with pytest.raises(SourceUnavailable):
        notes.push(lambda: notes.write({head: "x\n"}))
    away.rename(desk.bare)
    notes.push()
    assert git(desk.bare, "notes", f"--ref={REF}", "show", head) == "x"


def test_nothing_to_push_is_no_error(mirror: Mirror, notes: Notes) -> None:
    mirror.refresh()
    notes.push()


def test_a_push_from_a_damaged_mirror_fails_and_does_not_wait_for_itself(mirror: Mirror, notes: Notes) -> None:
    head = mirror.refresh().sha
    for text in ("one\n", "two\n"):
        notes.write({head: text})
        if text == "one\n":
            notes.push()
    tip = mirror.git.ref(mirror.notes_ref) or ""
    (mirror.git.directory / "objects" / tip[:2] / tip[2:]).unlink()
    with pytest.raises(SourceUnavailable):
        notes.push()
    with mirror.exclusive():
        pass
