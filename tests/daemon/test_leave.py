"""The end of ``run``, for good or to begin anew: it is over in time, or the process goes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread, Timer
from threading import enumerate as enumerate_threads
from types import SimpleNamespace
from typing import Any

import pytest

from gitops_agent import wiring
from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.daemon.standby import Candidacy
from gitops_agent.errors import JournalTaken
from gitops_agent.settings import Settings
from tests.support.fleet import until

pytestmark = pytest.mark.unit


@dataclass
class Open:
    """What is known of an instance that is open."""

    queue: WorkQueue
    watchers: Sequence[Any] = ()
    liveness: Any = None


@contextmanager
def instance(*_: object, **__: object) -> Iterator[SimpleNamespace]:
    liveness = SimpleNamespace(state_lost=lambda: None)
    yield SimpleNamespace(context=Open(WorkQueue(), liveness=liveness), metrics=lambda: b"")


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set when the process would have ended itself; in a moment rather than in a minute."""
    left = Event()

    monkeypatch.setattr(wiring, "open_instance", instance)
    monkeypatch.setattr(wiring, "Daemon", lambda context, *_: context)
    monkeypatch.setattr(wiring, "_leave", left.set)
    monkeypatch.setattr(wiring, "MAX_END_SECONDS", 0.05)
    return left


def candidacy(*, leads: bool) -> Candidacy:
    made = Candidacy()
    made.fence = SimpleNamespace(holds=lambda: leads)  # type: ignore[assignment]
    return made


def opened(folder: Path, candidate: Candidacy) -> Any:
    settings = Settings(repo=str(folder), state_dir=str(folder), listen="")
    return wiring.open_daemon(settings, {}, lambda *_: None, candidacy=candidate)


def test_who_leads_no_more_and_hangs_ends_itself(left: Event, tmp_path: Path) -> None:
    with opened(tmp_path, candidacy(leads=False)) as context:
        watcher = context.watchers[-1]
        watcher.start(lambda *_: None)
        assert left.wait(10), "what hangs would neither lead nor stand by"
        assert context.queue.closed
        watcher.stop()


def told_to_end(context: Open) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert context.queue.closed


def lost_its_state(context: Open) -> None:
    context.watchers[-2]._on_lost()


def lost_its_journal(context: Open) -> None:
    wiring._pass_failed(JournalTaken("another one writes it"), lambda *_: None, context.queue)


def failed(_: Open) -> None:
    raise MemoryError


@pytest.mark.parametrize("ends", [told_to_end, lost_its_state, lost_its_journal, failed])
def test_what_hangs_while_all_is_closed_ends_itself(
    left: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Callable[[Open], None]
) -> None:
    """A server of the journal that no longer answers, say: pipeline, outbox and journal end after the passes."""
    in_time = []

    @contextmanager
    def hanging(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        with instance() as opened:
            try:
                yield opened
            finally:
                in_time.append(left.wait(10))

    monkeypatch.setattr(wiring, "open_instance", hanging)
    with suppress(MemoryError), opened(tmp_path, candidacy(leads=True)) as context:
        ends(context)
    assert in_time == [True]
    until(lambda: not timers(), "what ended after all is left alone")


def test_who_ends_in_time_stands_by_again(left: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "MAX_END_SECONDS", 600.0)
    with opened(tmp_path, candidacy(leads=False)) as context:
        watcher = context.watchers[-1]
        watcher.start(lambda *_: None)
        until(lambda: timers(), "its time runs")
        watcher.stop()
    until(lambda: not timers(), "nothing ends the process any more")
    assert not left.is_set()


def test_who_is_told_to_end_while_it_opens_its_instance_ends(
    left: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an election it has stood by, and learns in every state that it is to end."""
    monkeypatch.setattr(wiring, "_election", lambda *_: SimpleNamespace(resign=lambda: None))
    settings = Settings(repo=str(tmp_path), state_dir=str(tmp_path), listen="", election="kubernetes")
    with wiring.open_candidacy(settings, {}) as candidate:
        os.kill(os.getpid(), signal.SIGTERM)
        assert candidate.stop.is_set()
        assert left.wait(10), "what hangs where the instance is opened would keep the process"


@pytest.mark.usefixtures("left")
def test_who_is_told_to_end_while_it_begins_anew_ends(tmp_path: Path) -> None:
    candidate = candidacy(leads=True)
    with opened(tmp_path, candidate) as context:
        lost_its_state(context)
    assert candidate.wait(), "it begins anew"
    with opened(tmp_path, candidate) as context:
        lost_its_state(context)
        told_to_end(context)
    assert not candidate.wait()


def timers() -> list[Thread]:
    return [each for each in enumerate_threads() if isinstance(each, Timer)]
