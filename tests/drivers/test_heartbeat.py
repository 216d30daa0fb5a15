"""The heartbeat file: what the helper writes is what the driver reads, and nothing an agent writes breaks us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.heartbeat_file import read_heartbeat
from gitops_agent.heartbeat import Heartbeat
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, PYTHON, Fleet, kill, until

AGENT = AgentKey("acme", "bot")


@pytest.fixture
def place(tmp_path: Path) -> AgentDir:
    place = AgentDir(str(tmp_path))
    place.folder(AGENT).mkdir(parents=True)
    return place


def test_what_the_helper_writes_is_what_the_driver_reads(place: AgentDir) -> None:
    path = place.heartbeat(AGENT, 0)
    heartbeat = Heartbeat(str(path))
    assert read_heartbeat(place, AGENT, 0, time.time()) is None
    heartbeat.beat(turn=3)
    with heartbeat.tool_call("crm.lookup"), heartbeat.tool_call("crm.lookup"):
        seen = read_heartbeat(place, AGENT, 0, time.time())
        assert seen is not None
        assert (seen.turn, seen.pending) == (3, ("crm.lookup", "crm.lookup"))
    heartbeat.beat()
    seen = read_heartbeat(place, AGENT, 0, time.time())
    assert seen is not None
    assert (seen.turn, seen.pending) == (3, ())
    assert [file.name for file in path.parent.iterdir()] == ["heartbeat-0.json"]
    assert set(json.loads(path.read_text())) == {"version", "at", "turn", "pending"}


def test_a_tool_call_that_fails_is_no_longer_pending(place: AgentDir) -> None:
    heartbeat = Heartbeat(str(place.heartbeat(AGENT, 0)))
    with pytest.raises(RuntimeError), heartbeat.tool_call("crm"):
        raise RuntimeError
    seen = read_heartbeat(place, AGENT, 0, time.time())
    assert seen is not None
    assert seen.pending == ()


def test_without_the_variable_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MANAGED_AGENT_HEARTBEAT", raising=False)
    monkeypatch.chdir(tmp_path)
    heartbeat = Heartbeat()
    assert not heartbeat.enabled
    heartbeat.beat(turn=1)
    with heartbeat.tool_call("x"), heartbeat.background(every=0.01):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_heartbeat_that_cannot_be_written_never_harms_the_agent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Heartbeat(str(tmp_path / "file" / "below")).beat(turn=1)


def test_the_folder_may_be_lost_in_between(tmp_path: Path) -> None:
    path = tmp_path / "lost" / "heartbeat-0.json"
    Heartbeat(str(path)).beat(turn=1)
    assert path.exists()


def test_the_background_beats_by_itself(place: AgentDir) -> None:
    path = place.heartbeat(AGENT, 0)
    with Heartbeat(str(path)).background(every=0.01):
        first = until(lambda: path.exists() and path.read_text())
        until(lambda: path.read_text() != first)
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_readers_never_see_half_a_file(place: AgentDir) -> None:
    heartbeat = Heartbeat(str(place.heartbeat(AGENT, 0)))
    heartbeat.beat(turn=0)
    writer = threading.Thread(target=lambda: [heartbeat.beat(turn=n) for n in range(300)])
    writer.start()
    while writer.is_alive():
        assert read_heartbeat(place, AGENT, 0, time.time()) is not None
    writer.join()


def test_importing_the_helper_needs_only_the_standard_library() -> None:
    code = (
        "import sys; import gitops_agent.heartbeat; "
        "print(sorted(n for n in sys.modules if n.startswith(('gitops_agent', 'pydantic', 'orjson', 'psutil'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gitops_agent', 'gitops_agent.heartbeat']"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"turn": 1}',
        '{"at": "now"}',
        '{"at": true}',
        '{"at": NaN}',
        '{"at": 1' + "0" * 400 + "}",
        '{"at": 1, "pad": "' + "x" * 70000 + '"}',
    ],
)
def test_what_is_not_a_heartbeat_is_none(place: AgentDir, content: str) -> None:
    place.heartbeat(AGENT, 0).write_text(content)
    assert read_heartbeat(place, AGENT, 0, time.time()) is None


def test_strange_parts_are_dropped_and_the_future_is_not_believed(place: AgentDir) -> None:
    path = place.heartbeat(AGENT, 0)
    names = ["a\x1b[31mb", 7, None, "y" * 900, *["n"] * 500]
    path.write_text(json.dumps({"at": 9e12, "turn": True, "pending": names}))
    os.utime(path, (1000, 1000))
    seen = read_heartbeat(place, AGENT, 0, 5000.0)
    assert seen is not None
    assert (seen.at, seen.turn) == (1000.0, None)
    assert seen.pending[0] == "a[31mb"
    assert len(seen.pending[1]) == 200
    assert len(seen.pending) <= 100


def test_a_link_a_pipe_or_a_folder_is_no_heartbeat(place: AgentDir, tmp_path: Path) -> None:
    path = place.heartbeat(AGENT, 0)
    target = tmp_path / "target"
    target.write_text('{"at": 1}')
    path.symlink_to(target)
    assert read_heartbeat(place, AGENT, 0, 5.0) is None
    path.unlink()
    os.mkfifo(path)
    assert read_heartbeat(place, AGENT, 0, 5.0) is None
    path.unlink()
    path.mkdir()
    assert read_heartbeat(place, AGENT, 0, 5.0) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(place: AgentDir, noise: bytes) -> None:
    place.heartbeat(AGENT, 0).write_bytes(noise)
    read_heartbeat(place, AGENT, 0, 5.0)


def test_a_running_agent_is_heard_and_a_restart_forgets_what_it_said(fleet: Fleet) -> None:
    code = (
        "import sys, time; from gitops_agent.heartbeat import Heartbeat\n"
        "Heartbeat().beat(turn=7) if sys.argv[1] == 'beat' else None\n"
        "time.sleep(300)"
    )
    root = str(Path(__file__).parents[2])
    env = [{"name": "PYTHONPATH", "value": root}]
    fleet.run(PYTHON, "-c", code, "beat", env=env)
    seen = until(lambda: fleet.look().instances[0].heartbeat)
    assert seen.turn == 7
    assert fleet.look().key.agent == BOT
    fleet.apply(fleet.fields(PYTHON, "-c", code, "silent", env=env), Verb.RESTART)
    assert [each.heartbeat for each in fleet.look().instances] == [None]


def turns(fleet: Fleet) -> dict[str, int | None]:
    return {each.id: each.heartbeat and each.heartbeat.turn for each in fleet.look().instances}


def test_each_instance_has_the_heartbeat_of_its_own_replica(fleet: Fleet) -> None:
    fleet.run("sleep", "300", replicas=3)
    for number in range(3):
        (fleet.folder() / f"heartbeat-{number}.json").write_text(json.dumps({"at": 1, "turn": 10 + number}))
    first, second, third = fleet.pids()
    kill(second)
    until(lambda: fleet.pids() == [first, third])
    assert turns(fleet) == {str(first): 10, str(third): 12}
    kill(third)
    until(lambda: fleet.pids() == [first])
    assert turns(fleet) == {str(first): 10}
