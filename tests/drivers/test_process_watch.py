"""Between observations: exits by event, memory limits, floods of output."""

from __future__ import annotations

import os
import queue
import selectors
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.log_files import LogFiles, Rotation
from gitops_agent.drivers.local.watch import ProcessWatcher
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, PYTHON, SLEEP, Fleet, alive, kill, until

Events = queue.Queue[tuple[AgentKey, str]]

HUNGRY = "import time; ballast = bytearray(96 * 2**20); print('full', flush=True); time.sleep(300)"


def watching(fleet: Fleet) -> Events:
    events: Events = queue.Queue()
    fleet.driver.start(lambda agent, reason: events.put((agent, reason)))
    return events


def test_the_exit_of_a_child_is_an_event_and_it_is_reaped(fleet: Fleet) -> None:
    events = watching(fleet)
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    kill(pid)
    assert events.get(timeout=10) == (BOT, "ProcessExited")
    until(lambda: not Path(f"/proc/{pid}").exists())  # its runner collects it
    assert "killed by signal 9" in fleet.look().message


def test_the_exit_of_an_adopted_agent_is_an_event_too(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet(watch_every=60.0)
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    fleet.restart()
    events = watching(fleet)
    assert fleet.pids() == [pid]
    kill(pid)
    assert events.get(timeout=10) == (BOT, "ProcessExited")


def test_an_exit_before_the_watcher_looked_is_not_missed(fleet: Fleet) -> None:
    events = watching(fleet)
    fleet.run("true")
    assert events.get(timeout=10) == (BOT, "ProcessExited")


def test_one_exit_is_one_event_and_a_wanted_stop_is_none(fleet: Fleet) -> None:
    events = watching(fleet)
    other = BOT._replace(name="other")
    fleet.run(*SLEEP)
    fleet.run(*SLEEP, agent=other)
    fleet.apply(None, Verb.DELETE)
    kill(fleet.pids(other)[0])
    assert events.get(timeout=10) == (other, "ProcessExited")
    fleet.driver.stop()
    assert events.empty()


def test_an_end_that_was_asked_for_is_no_event_however_late_it_is_heard(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bell and exit may be heard in one go: what counts is what the registry says by then."""
    events = watching(fleet)
    watcher = fleet.driver.watcher
    assert isinstance(watcher, ProcessWatcher)
    fleet.run(*SLEEP)
    until(lambda: watcher._handles)
    real, entered, go_on = watcher._selector.select, threading.Event(), threading.Event()

    def late(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        entered.set()
        go_on.wait(10)
        return real(timeout)

    monkeypatch.setattr(watcher._selector, "select", late)
    assert entered.wait(10)
    fleet.apply(None, Verb.DELETE)
    go_on.set()
    until(lambda: not watcher._handles)
    watcher.stop()
    assert events.empty()


def test_a_watcher_can_be_stopped_and_started_again(fleet: Fleet) -> None:
    fleet.run(*SLEEP)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        watching(fleet)
        fleet.driver.stop()
        fleet.driver.stop()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_agent_over_its_memory_limit_is_noticed_and_replaced(fleet: Fleet) -> None:
    events = watching(fleet)
    fields = fleet.run(PYTHON, "-c", HUNGRY, resources={"limits": {"memory": "64Mi"}})
    (pid,) = fleet.pids()
    assert events.get(timeout=20) == (BOT, "MemoryLimit")
    seen = fleet.look()
    assert seen.reason == "MemoryLimit"
    assert seen.fields is not None
    assert seen.fields.value["state"] == "OverMemory"
    fleet.apply(fields, Verb.UPDATE)
    assert not alive(pid)
    assert len(fleet.pids()) == 1


def test_memory_is_counted_over_the_whole_tree(fleet: Fleet) -> None:
    fleet.run("sh", "-c", f'{PYTHON} -c "{HUNGRY}" & wait', resources={"limits": {"memory": "64Mi"}})
    until(lambda: fleet.look().reason == "MemoryLimit")


def test_an_agent_below_its_limit_is_left_alone(fleet: Fleet) -> None:
    fleet.run(*SLEEP, resources={"limits": {"memory": "64Mi"}})
    assert fleet.look().reason is None


def test_a_flood_of_output_costs_a_bounded_amount_of_disk(make_fleet: Callable[..., Fleet]) -> None:
    size = 200_000
    fleet = make_fleet(rotation=Rotation(size=size, keep=2), watch_every=0.05)
    watching(fleet)
    # 20 MB in chunks that a rotation can keep up with.
    code = (
        "import time\n"
        "for n in range(400):\n    print('x' * 50000, flush=True); time.sleep(0.002)\n"
        "print('end', flush=True); time.sleep(300)"
    )
    fleet.run(PYTHON, "-c", code)
    logs = fleet.folder() / "logs"
    until(lambda: (logs / "0.log.2").exists())

    def ends() -> bool:
        with suppress(FileNotFoundError):  # turned while we look
            return any(b"end" in path.read_bytes()[-10:] for path in logs.iterdir())
        return False

    until(ends)
    until(lambda: (logs / "0.log").stat().st_size <= size)
    kept = sorted(path.name for path in logs.iterdir())
    assert kept == ["0.log", "0.log.1", "0.log.2"]
    assert sum(path.stat().st_size for path in logs.iterdir()) <= 3 * size
    assert fleet.look().reason is None, "the agent never noticed"


def test_looking_rotates_nothing_and_applying_does(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet(rotation=Rotation(size=10, keep=1))
    fields = fleet.run("sh", "-c", "echo 0123456789abcdef; sleep 300")
    logs = fleet.folder() / "logs"
    until(lambda: (logs / "0.log").read_text() == "0123456789abcdef\n")
    before = _files(fleet)
    fleet.look()
    assert _files(fleet) == before
    fleet.apply(fields, Verb.UPDATE)
    assert (logs / "0.log.1").read_text() == "789abcdef\n"
    assert (logs / "0.log").read_text() == ""


def _files(fleet: Fleet) -> dict[Path, tuple[int, int, int]]:
    found = {path: path.lstat() for path in fleet.state.rglob("*")}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def test_a_start_rotates_what_an_earlier_life_wrote(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet(rotation=Rotation(size=10, keep=1))
    fields = fleet.run("sh", "-c", "echo 0123456789abcdef; sleep 300")
    logs = fleet.folder() / "logs"
    until(lambda: (logs / "0.log").read_text() == "0123456789abcdef\n")
    fleet.apply(fields, Verb.RESTART)
    assert (logs / "0.log.1").read_text() == "789abcdef\n"


def test_nothing_that_goes_wrong_ends_the_watcher(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    events: Events = queue.Queue()
    broken = threading.Event()

    def notify(agent: AgentKey, reason: str) -> None:
        if not broken.is_set():
            broken.set()
            raise RuntimeError("a bug in whoever is told")
        events.put((agent, reason))

    with structlog.testing.capture_logs() as logged:
        fleet.driver.start(notify)
        fleet.run(*SLEEP)
        kill(fleet.pids()[0])
        assert broken.wait(10)
        failed = threading.Event()

        def explode(*_: object) -> bool:
            failed.set()
            raise RuntimeError("a bug in the watcher")

        with monkeypatch.context() as patch:
            patch.setattr(LogFiles, "rotate", explode)
            other = BOT._replace(name="other")
            patch.setattr("gitops_agent.drivers.local.start.Launcher._prepare", _null)
            fleet.run(*SLEEP, agent=other)
            assert failed.wait(10)
        kill(fleet.pids(other)[0])
        assert events.get(timeout=10) == (other, "ProcessExited")
    assert {entry["error"] for entry in logged} == {"a bug in whoever is told", "a bug in the watcher"}
    assert all(entry["log_level"] == "error" for entry in logged)


def _null(*_: object) -> int:
    return os.open(os.devnull, os.O_WRONLY)


def test_an_exit_is_noticed_where_no_more_events_can_be_had(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    events = watching(fleet)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(selectors.DefaultSelector, "register", full)
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    kill(pid)
    assert events.get(timeout=10) == (BOT, "ProcessExited")


def test_whoever_learns_something_while_the_watcher_stops_writes_nowhere(fleet: Fleet) -> None:
    watcher = fleet.driver.watcher
    assert watcher is not None
    watcher.start(lambda *_: None)
    ring = watcher._wake  # type: ignore[attr-defined]
    watcher.stop()
    reader, writer = os.pipe()  # takes the numbers that the watcher gave back
    try:
        os.set_blocking(reader, False)
        ring()
        with pytest.raises(BlockingIOError):
            os.read(reader, 8)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.unit
def test_the_newest_output_is_kept_and_older_files_move_up(tmp_path: Path) -> None:
    dirs = AgentDir(str(tmp_path))
    logs = LogFiles(dirs, Rotation(size=4, keep=2))
    for text in (b"first", b"second", b"third"):
        handle = logs.open(BOT, 0)
        os.write(handle, text)
        os.close(handle)
        assert logs.rotate(BOT, 0)
        assert not logs.rotate(BOT, 0)
    folder = Path(dirs.log(BOT, 0)).parent
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "0.log": b"",
        "0.log.1": b"hird",
        "0.log.2": b"cond",
    }
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.unit
def test_a_log_that_became_a_link_is_left_alone(tmp_path: Path) -> None:
    dirs = AgentDir(str(tmp_path))
    logs = LogFiles(dirs, Rotation(size=4, keep=2))
    os.close(logs.open(BOT, 0))
    victim = tmp_path / "victim"
    victim.write_text("precious content")
    Path(dirs.log(BOT, 0)).unlink()
    Path(dirs.log(BOT, 0)).symlink_to(victim)
    assert not logs.rotate(BOT, 0)
    with pytest.raises(OSError, match="symbolic"):
        logs.open(BOT, 0)
    assert victim.read_text() == "precious content"


def test_exec_probes_run_as_the_agent(fleet: Fleet, tmp_path: Path) -> None:
    fleet.run(*SLEEP, workdir=str(tmp_path), env=[{"name": "LEVEL", "value": "info"}])
    run = fleet.driver.exec
    assert run(BOT, ["sh", "-c", 'echo "$LEVEL $PWD"'], 10).message == f"exit code 0: info {tmp_path}"
    assert run(BOT, ["sh", "-c", "exit 3"], 10) == type(run(BOT, ["true"], 10))(False, "exit code 3")
    assert not run(BOT, ["no-such-program"], 10).ok
    assert not run(BOT._replace(name="nobody"), ["true"], 10).ok
    assert "GITOPS" not in run(BOT, ["env"], 10).message
    assert len(fleet.look().live["replicas"]) == 1


def test_an_exec_probe_is_cut_off_in_time_and_size(fleet: Fleet) -> None:
    fleet.run(*SLEEP)
    run = fleet.driver.exec
    slow = run(BOT, ["sh", "-c", "sleep 300 & sleep 300"], 0.2)
    assert not slow.ok
    assert "no answer within 0.2 s" in slow.message
    until(lambda: len(fleet.marked()) == 1)
    assert not run(BOT, ["yes"], 0.3).ok
    assert len(run(BOT, ["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"], 20).message) < 5000
    # A helper left in the background keeps the pipe open, but not us.
    assert run(BOT, ["sh", "-c", "sleep 300 & echo fine"], 20).message == "exit code 0: fine"
    until(lambda: len(fleet.marked()) == 1)
    assert run(BOT, ["printf", "\\033[31mred\\000"], 10).message == "exit code 0: [31mred"
