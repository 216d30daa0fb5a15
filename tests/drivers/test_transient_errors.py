"""Out of descriptors or memory we know nothing: that is an error, never an absence, an edit or silence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import Context, ObserveRequest
from gitops_agent.drivers.config import ConfigDriver, config_key
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.local.stop import open_pidfd, wait_gone
from gitops_agent.errors import ApplyError, ObserveError
from gitops_agent.model.fields import Fields
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, SLEEP, Fleet, RealClock, action, process_key, until

OURS = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO]


class Broken:
    """``os.open`` (or another call) that fails for paths with a certain end, while it is on."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, call: str = "open") -> None:
        self.ends: str | None = None
        self.number = number
        self._real: Callable[..., Any] = getattr(os, call)
        patch.setattr(os, call, self._call)

    def _call(self, path: Any, *args: Any, **options: Any) -> Any:
        if self.ends is not None and isinstance(path, str) and path.endswith(self.ends):
            raise OSError(self.number, os.strerror(self.number))
        return self._real(path, *args, **options)


@pytest.mark.parametrize("number", OURS)
@pytest.mark.parametrize("file", ["stat", "environ"])
def test_a_process_that_cannot_be_read_now_is_not_a_process_that_is_gone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, number: int, file: str
) -> None:
    fields = fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    fleet.restart(keep_bases=False)  # found by its marks alone
    broken = Broken(monkeypatch, number)
    # Its runner carries the marks; what a runner is the parent of needs none.
    (runner,) = set(fleet.marked(runners=True)) - {pid}
    broken.ends = f"/{pid if file == 'stat' else runner}/{file}"
    with pytest.raises(ObserveError, match=os.strerror(number)):
        fleet.see()
    step = action(process_key(BOT), Verb.CREATE, desired=fields)
    with pytest.raises(ApplyError, match=os.strerror(number)):
        fleet.driver.apply(step, "intent")
    broken.ends = None
    assert fleet.pids() == [pid], "the failed look left no trace"
    fleet.driver.apply(step, "intent")
    assert fleet.marked() == [pid]


def test_a_hidden_environment_is_looked_at_again(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    table = ProcessTable()
    broken = Broken(monkeypatch, errno.EACCES)
    broken.ends = f"/{pid}/environ"
    hidden = table.one(pid)
    assert hidden is not None
    assert hidden.marks is None
    broken.ends = None
    seen = table.one(pid)
    assert seen is not None
    assert seen.marks is not None


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM])
def test_gone_and_hidden_processes_are_simply_not_there(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    broken = Broken(monkeypatch, number)
    broken.ends = f"/{os.getpid()}/stat"
    table = ProcessTable()
    assert table.one(os.getpid()) is None
    assert os.getpid() not in table.sweep()


def test_a_start_whose_record_fails_is_found_by_its_marks(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = fleet.fields(*SLEEP)
    step = action(process_key(BOT), Verb.CREATE, desired=fields)

    def unreachable(*_: object) -> None:
        raise ObserveError("no descriptors left", hint="")

    with monkeypatch.context() as patch:
        patch.setattr("gitops_agent.drivers.local.start.Launcher._settled", unreachable)
        with pytest.raises(ApplyError, match="no descriptors left"):
            fleet.driver.apply(step, "intent")
    (pid,) = fleet.pids()
    fleet.apply(fields)
    assert fleet.marked() == [pid]
    os.kill(pid, 9)
    until(lambda: fleet.look().fields is None and not Path(f"/proc/{pid}").exists())  # only we can reap it


def test_no_descriptor_is_lost_on_the_way(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.run(*SLEEP, replicas=2)
    table = ProcessTable()
    first, second = [proc for pid in fleet.pids() if (proc := table.one(pid)) is not None]
    before = len(list(Path("/proc/self/fd").iterdir()))
    broken = Broken(monkeypatch, errno.EMFILE)
    broken.ends = f"/{second.pid}/stat"
    with pytest.raises(ObserveError):
        open_pidfd(second.identity, table)
    with pytest.raises(ObserveError):
        wait_gone([first, second], 1.0, table, lambda: None)
    broken.ends = None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("number", OURS)
def test_a_heartbeat_that_cannot_be_read_now_is_not_silence(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fleet.run(*SLEEP)
    path = fleet.folder() / "heartbeat-0.json"
    path.write_text('{"at": 1, "turn": 5}')
    broken = Broken(monkeypatch, number)
    broken.ends = path.name
    with pytest.raises(ObserveError, match=os.strerror(number)):
        fleet.see()
    broken.ends = None
    assert fleet.look().instances[0].heartbeat is not None


@pytest.mark.parametrize("number", OURS)
def test_a_bundle_that_cannot_be_read_now_was_not_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    driver = ConfigDriver(Context("test", str(tmp_path), RealClock()))
    wanted = Fields.of({"name": "bot"})
    driver.apply(action(config_key(BOT), Verb.CREATE, desired=wanted), "intent")
    broken = Broken(monkeypatch, number)
    broken.ends = "config.json"
    with pytest.raises(ObserveError, match=os.strerror(number)):
        driver.observe(ObserveRequest())
    broken.ends = None
    (seen,) = driver.observe(ObserveRequest())
    assert seen.fields is not None
    assert seen.fields.value["name"] == "bot"


def test_a_folder_that_an_agent_closed_blinds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = ConfigDriver(Context("test", str(tmp_path), RealClock()))
    other = BOT._replace(name="other")
    for agent in (BOT, other):
        wanted = Fields.of({"name": agent.name})
        driver.apply(action(config_key(agent), Verb.CREATE, desired=wanted), "intent")
    for call in ("lstat", "open"):
        Broken(monkeypatch, errno.EACCES, call).ends = f"{BOT.name}/config.json" if call == "lstat" else "bot"
    seen = {one.key.agent: one.fields for one in driver.observe(ObserveRequest())}
    closed, fine = seen[BOT], seen[other]
    assert closed is not None
    assert "unreadable" in closed.value
    assert fine is not None
    assert fine.value["name"] == "other"
