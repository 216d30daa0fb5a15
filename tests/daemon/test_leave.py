"""The end of a process that leads no more: it is over in time, or the process goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from gitops_agent.settings import Settings
from tests.support.fleet import until

pytestmark = pytest.mark.unit


@dataclass
class Open:
    """What is known of an instance that is open."""

    queue: WorkQueue
    watchers: Sequence[Any] = ()
    liveness: Any = None


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set when the process would have ended itself; in a moment rather than in a minute."""
    left = Event()

    @contextmanager
    def instance(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(context=Open(WorkQueue()), metrics=lambda: b"")

    monkeypatch.setattr(wiring, "open_instance", instance)
    monkeypatch.setattr(wiring, "Daemon", lambda context, *_: context)
    monkeypatch.setattr(wiring, "_leave", left.set)
    monkeypatch.setattr(wiring, "MAX_END_SECONDS", 0.05)
    return left


def candidacy(*, leads: bool) -> Candidacy:
    made = Candidacy()
    made.fence = SimpleNamespace(holds=lambda: leads)  # type: ignore[assignment]
    return made


def opened(folder: Path, *, leads: bool) -> Any:
    settings = Settings(repo=str(folder), state_dir=str(folder), listen="")
    return wiring.open_daemon(settings, {}, lambda *_: None, candidacy=candidacy(leads=leads))


def test_who_leads_no_more_and_hangs_ends_itself(left: Event, tmp_path: Path) -> None:
    with opened(tmp_path, leads=False) as context:
        watcher = context.watchers[-1]
        watcher.start(lambda *_: None)
        assert left.wait(10), "what hangs would neither lead nor stand by"
        assert (context.queue.closed, context.queue.restart) == (True, True)
        watcher.stop()


def test_who_ends_in_time_stands_by_again(left: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "MAX_END_SECONDS", 600.0)
    with opened(tmp_path, leads=False) as context:
        watcher = context.watchers[-1]
        watcher.start(lambda *_: None)
        until(lambda: timers(), "its time runs")
        watcher.stop()
    until(lambda: not timers(), "nothing ends the process any more")
    assert not left.is_set()


def timers() -> list[Thread]:
    return [each for each in enumerate_threads() if isinstance(each, Timer)]
