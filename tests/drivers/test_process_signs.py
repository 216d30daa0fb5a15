"""Between observations: suspensions, edited bundles and heartbeats are events. The poll of these fleets comes
after ten minutes, so nothing but an event explains what is noticed."""

from __future__ import annotations

import errno
import json
import os
import queue
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from gitops_agent.drivers.local import marks, runner, start, watch
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.folder_events import FolderEvents
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.local.registry import WatchedAgent
from gitops_agent.drivers.local.signs import REST_SECONDS, SETTLED_SECONDS, Signs
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.model.key import AgentKey
from tests.drivers.conftest import BOT, SLEEP, Fleet, kill, until

Events = queue.Queue[tuple[AgentKey, str]]
NO_POLL_SECONDS = 600.0


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(watch_every=NO_POLL_SECONDS)


def watching(fleet: Fleet, *agents: AgentKey) -> Events:
    """The events from when the folders of these agents are watched."""
    events: Events = queue.Queue()
    fleet.driver.start(lambda agent, reason: events.put((agent, reason)))
    signs = fleet.driver.watcher._signs
    until(lambda: signs._events and all(agent in signs._events and agent in signs._looked_at for agent in agents))
    return events


@pytest.fixture
def bundle(fleet: Fleet) -> Path:
    fleet.run(*SLEEP)
    path = fleet.folder() / "config.json"
    path.write_text('{"instructions": "be kind"}')
    return path


def _edit(path: Path) -> None:
    path.write_text("{}")


def _replace(path: Path) -> None:
    other = path.with_name("mine")
    other.write_text("{}")
    other.rename(path)


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def _move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def _pipe(path: Path) -> None:
    os.mkfifo(path.with_name("mine"))
    path.with_name("mine").rename(path)


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("done", [_edit, Path.unlink, _replace, _link, _move_folder])
def test_a_changed_bundle_is_an_event(fleet: Fleet, bundle: Path, done: Callable[[Path], None]) -> None:
    events = watching(fleet, BOT)
    done(bundle)
    assert events.get(timeout=10) == (BOT, "BundleChanged")


@pytest.mark.parametrize("done", [_pipe, _endless])
def test_a_bundle_that_cannot_be_read_to_its_end_keeps_no_other_waiting(
    fleet: Fleet, bundle: Path, done: Callable[[Path], None]
) -> None:
    other = BOT._replace(name="other")
    fleet.run(*SLEEP, agent=other)
    events = watching(fleet, BOT, other)
    done(bundle)
    assert events.get(timeout=10) == (BOT, "BundleChanged")
    os.kill(*fleet.pids(other), signal.SIGKILL)
    assert events.get(timeout=10) == (other, "ProcessExited")
    fleet.driver.stop()
    assert fleet.driver.watcher._thread is None


def test_a_watcher_that_hangs_does_not_keep_the_end_waiting(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a dead file system, which no test can have."""
    monkeypatch.setattr(watch, "END_SECONDS", 0.1)
    entered, go_on = threading.Event(), threading.Event()

    def hang(_signs: Signs) -> None:
        entered.set()
        go_on.wait()

    fleet.run(*SLEEP)
    watching(fleet, BOT)
    monkeypatch.setattr(Signs, "gather", hang)
    (fleet.folder() / "config.json").write_text("{}")
    assert entered.wait(10)
    ending = threading.Thread(target=fleet.driver.stop, daemon=True)
    ending.start()
    ending.join(10)
    ended = not ending.is_alive()
    go_on.set()
    assert ended


def test_a_bundle_that_is_edited_back_after_its_repair_is_an_event_again(fleet: Fleet, bundle: Path) -> None:
    """Also when nothing looked at it in between."""
    events = watching(fleet, BOT)
    written = bundle.read_text()
    _edit(bundle)
    assert events.get(timeout=10) == (BOT, "BundleChanged")
    bundle.write_text(written)
    _edit(bundle)
    assert events.get(timeout=10) == (BOT, "BundleChanged")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_suspension_and_its_end_are_events(fleet: Fleet, restarted: bool) -> None:
    """Also of an agent that an earlier process of ours started."""
    fleet.run(*SLEEP)
    if restarted:
        fleet.restart()
    (pid,) = fleet.pids()
    events = watching(fleet, BOT)
    for number, word in (
        (signal.SIGSTOP, "Suspended"),
        (signal.SIGCONT, "Resumed"),
        (signal.SIGSTOP, "Suspended"),
    ):
        os.kill(pid, number)
        assert events.get(timeout=10) == (BOT, word)
    os.kill(pid, signal.SIGKILL)
    assert events.get(timeout=10) == (BOT, "ProcessExited")


def _of_an_earlier_version(_fleet: Fleet) -> None:
    """As it was started."""


def _killed(fleet: Fleet) -> None:
    (known,) = fleet.driver._registry.replicas(BOT)
    kill(known.runner)
    until(lambda: not ProcessTable().exists(known.runner) or fleet.driver._registry.reap())


@pytest.mark.parametrize("lost", [_of_an_earlier_version, _killed])
def test_a_suspension_that_no_runner_tells_of_is_noticed_by_the_poll(
    make_fleet: Callable[..., Fleet],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lost: Callable[[Fleet], None],
) -> None:
    fleet = make_fleet(watch_every=0.2)
    if lost is _of_an_earlier_version:
        earlier = tmp_path / "runner.py"
        earlier.write_text(Path(runner.__file__).read_text().replace(" _touch(folder)\n", " pass\n"))
        monkeypatch.setattr(start, "RUNNER_COMMAND", (*start.RUNNER_COMMAND[:-1], str(earlier)))
        monkeypatch.setattr(marks, "RUNNER_VERSION", "1")
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    events = watching(fleet, BOT)
    lost(fleet)
    os.kill(pid, signal.SIGSTOP)
    assert events.get(timeout=10) == (BOT, "Suspended")
    os.kill(pid, signal.SIGCONT)
    assert events.get(timeout=10) == (BOT, "Resumed")


def test_an_agent_that_suspends_itself_again_when_it_is_resumed_is_noticed_each_time(fleet: Fleet) -> None:
    """From its first moment on; between the two it is suspended whenever it is looked at."""
    events = watching(fleet)
    fleet.run("sh", "-c", "while :; do kill -STOP $$; done")
    (pid,) = fleet.pids()
    assert events.get(timeout=10) == (BOT, "Suspended")
    os.kill(pid, signal.SIGCONT)
    assert events.get(timeout=10) == (BOT, "Suspended")


def test_a_heartbeat_that_ends_a_stuck_call_is_an_event(fleet: Fleet) -> None:
    limits = {"heartbeat": {"staleAfter": "60s", "maxToolCall": "1s"}}
    fleet.run(*SLEEP, spec=limits)
    path = fleet.folder() / "heartbeat-0.json"

    def beat(*pending: str) -> None:
        path.with_suffix(".tmp").write_text(json.dumps({"at": time.time(), "turn": 1, "pending": pending}))
        path.with_suffix(".tmp").rename(path)

    beat()
    events = watching(fleet, BOT)
    beat("crm.lookup")
    assert events.get(timeout=10) == (BOT, "HeartbeatWritten"), "it will be stuck soon: a look is due"
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.1)  # by then it is stuck
    beat()
    assert events.get(timeout=10) == (BOT, "HeartbeatWritten")


def test_an_agent_that_comes_later_is_watched_too(fleet: Fleet, bundle: Path) -> None:
    """And one whose folder is taken away costs the others nothing."""
    events = watching(fleet, BOT)
    other = BOT._replace(name="other")
    fleet.folder(other).mkdir()
    (fleet.folder(other) / "config.json").write_text('{"instructions": "be kind"}')
    fleet.run(*SLEEP, agent=other)
    looked = fleet.driver.watcher._signs._looked_at
    until(lambda: other in looked)
    _edit(fleet.folder(other) / "config.json")
    assert events.get(timeout=10) == (other, "BundleChanged")
    fleet.folder(other).rename(fleet.folder(other).with_name("elsewhere"))
    assert events.get(timeout=10) == (other, "BundleChanged")
    _edit(bundle)
    assert events.get(timeout=10) == (BOT, "BundleChanged")


@pytest.mark.parametrize("refused", ["add", "__init__"])
def test_without_events_everything_is_looked_at_and_that_is_logged_once(
    make_fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FolderEvents, refused, full)
    fleet = make_fleet(watch_every=0.05)
    fleet.run(*SLEEP)
    fleet.run(*SLEEP, agent=BOT._replace(name="other"))
    events: Events = queue.Queue()
    with structlog.testing.capture_logs() as logged:
        fleet.driver.start(lambda agent, reason: events.put((agent, reason)))
        os.kill(fleet.pids()[0], signal.SIGSTOP)
        assert events.get(timeout=10) == (BOT, "Suspended")
        _edit(fleet.folder() / "config.json")
        assert events.get(timeout=10) == (BOT, "BundleChanged")
        fleet.driver.stop()
    (entry,) = logged
    assert (entry["log_level"], entry["error"]) == ("warning", "No space left on device")
    assert "fs.inotify.max_user_watches" in entry["hint"]


# -- Signs alone, with a clock of the test


class Ward:
    """One agent without processes, and what is noticed of it."""

    def __init__(self, root: Path) -> None:
        self.dirs = AgentDir(str(root))
        with self.dirs.opened(BOT, create=True):
            self.bundle = Path(self.dirs.config(BOT))
        self.selector = selectors.DefaultSelector()
        self.signs = Signs(self.dirs, ProcessTable())
        self.signs.open(self.selector)
        self.now = 1000.0
        fleet = Fleet(root)
        self.signs.follow({BOT: WatchedAgent(Desired.of(fleet.fields(*SLEEP)), ())})
        assert self.look() == []

    def look(self, after: float = REST_SECONDS) -> list[str]:
        self.now += after
        self.signs.gather()
        return [word for _, word in self.signs.look_at_touched(self.now)]


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    ward = Ward(tmp_path)
    yield ward
    ward.signs.close()
    ward.selector.close()


@pytest.mark.unit
def test_an_agent_that_edits_without_a_pause_is_looked_at_once_a_second(ward: Ward) -> None:
    found = []
    for number in range(36):
        ward.bundle.write_text(f'{{"edit": {number}}}')
        found += ward.look(after=REST_SECONDS / 8)
    assert found == ["BundleChanged"] * 4
    assert 0 < ward.signs.due - ward.now < REST_SECONDS
    assert ward.look() == ["BundleChanged"], "the last edit is not missed"
    assert ward.signs.due == float("inf")


@pytest.mark.unit
def test_a_bundle_that_is_put_right_is_no_news(ward: Ward) -> None:
    ward.bundle.write_text("ours")
    assert ward.look() == ["BundleChanged"], "a commit wrote it, or a person"
    ward.now += SETTLED_SECONDS
    for _ in range(3):
        ward.bundle.write_text("edited")
        assert ward.look() == ["BundleChanged"]
        ward.bundle.write_text("ours")
        assert ward.look() == []
    ward.bundle.write_text("ours")
    assert ward.look() == []


@pytest.mark.unit
def test_other_files_of_an_agent_are_no_reason_to_look(ward: Ward) -> None:
    (ward.bundle.parent / "work").mkdir()
    (ward.bundle.parent / "work" / "config.json").write_text("{}")
    (ward.bundle.parent / "heartbeat-0.json.tmp").write_text("{}")
    ward.signs.gather()
    assert ward.signs.due == float("inf")


@pytest.mark.unit
def test_more_events_than_the_kernel_keeps_hide_none(ward: Ward) -> None:
    """Another file of the agent floods the queue; the edit comes when it is full."""
    flood = ward.bundle.parent / "flood"
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for _ in range(most // 2 + 1):
        flood.touch()
        flood.unlink()
    ward.bundle.write_text("{}")
    assert ward.look() == ["BundleChanged"]
