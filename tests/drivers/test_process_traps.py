"""What an agent leaves in its own folder is its own trouble: it neither keeps us waiting nor itself alive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitops_agent.drivers.local import stop
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.errors import ApplyError
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, SLEEP, Fleet, alive, until


@pytest.mark.parametrize("reader", [True, False])
def test_a_pipe_in_place_of_a_log_is_refused(fleet: Fleet, reader: bool) -> None:
    fields = fleet.fields(*SLEEP)
    logs = fleet.folder() / "logs"
    logs.mkdir(parents=True)
    os.mkfifo(logs / "0.log")
    handle = os.open(logs / "0.log", os.O_RDONLY | os.O_NONBLOCK) if reader else None
    try:
        with pytest.raises(ApplyError, match="cannot write below"):
            fleet.apply(fields)
    finally:
        if handle is not None:
            os.close(handle)
    assert fleet.marked() == []
    (logs / "0.log").unlink()
    fleet.apply(fields)
    assert len(fleet.pids()) == 1


def test_a_folder_in_place_of_a_heartbeat_does_not_keep_an_agent_alive(fleet: Fleet) -> None:
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    (fleet.folder() / "heartbeat-0.json").mkdir()
    fleet.apply(None, Verb.DELETE)
    assert not alive(pid)


def test_a_process_that_is_not_ours_to_signal_is_named_and_the_rest_still_ends(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a setuid tool of an agent is, for a gitops-agent without privileges."""
    monkeypatch.setattr(stop, "KILL_WAIT_SECONDS", 0.05)
    fleet.run(
        "sh", "-c", "setsid sleep 301 & echo $! > child; wait", workdir=str(tmp_path), stop={"grace": "100ms"}
    )
    (pid,) = fleet.pids()
    note = tmp_path / "child"
    child = int(until(lambda: note.exists() and note.read_text().endswith("\n") and note.read_text()))
    until(lambda: os.getsid(child) == child)
    real = stop.send

    def send(proc: stop.ProcessInfo, number: int, table: ProcessTable) -> None:
        if proc.pid != child:
            real(proc, number, table)

    with monkeypatch.context() as patch:
        patch.setattr(stop, "send", send)
        with pytest.raises(ApplyError, match=f"pid {child} survived") as refused:
            fleet.apply(None, Verb.DELETE)
    assert "another user" in refused.value.hint
    assert not alive(pid)
    assert alive(child)
    fleet.apply(None, Verb.DELETE)
    assert not alive(child), f"{BOT}: found by its marks"
