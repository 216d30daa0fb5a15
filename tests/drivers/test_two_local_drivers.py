"""What an agent has of one local driver is not that of another: while it moves, both run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.heartbeat_file import read_heartbeat
from gitops_agent.drivers.local.memory_limit import MemoryLimits
from gitops_agent.model.key import AgentKey

pytestmark = pytest.mark.unit
ME = AgentKey("acme", "bot")


def test_each_has_control_groups_of_its_own(tmp_path: Path) -> None:
    own, other = MemoryLimits("prod", tmp_path), MemoryLimits("prod", tmp_path, "tmux")
    places = [each.birthplace(ME, 0) for each in (own, other)]
    for pid, place in enumerate(places, 100):
        Path(str(place)).write_text(f"{pid}\n", encoding="utf-8")
    assert [each.members(ME, 0) for each in (own, other)] == [{100}, {101}]
    assert str(places[0]).endswith("replica.prod.acme.bot.0/cgroup.procs"), "as it was: what runs is found"


def test_each_has_heartbeats_of_its_own(tmp_path: Path) -> None:
    own, other = AgentDir(str(tmp_path)), AgentDir(str(tmp_path), "tmux")
    with own.opened(ME, create=True):
        own.heartbeat(ME, 0).write_text('{"at": 5}', encoding="utf-8")
    other.heartbeat(ME, 0).write_text("", encoding="utf-8")  # as every start leaves it
    assert read_heartbeat(other, ME, 0, 9.0) is None
    other.heartbeat(ME, 0).write_text('{"at": 7}', encoding="utf-8")
    assert [beat.at for each in (own, other) if (beat := read_heartbeat(each, ME, 0, 9.0))] == [5.0, 7.0]


def test_what_an_earlier_version_started_in_tmux_is_still_heard(tmp_path: Path) -> None:
    dirs = AgentDir(str(tmp_path), "tmux")
    with dirs.opened(ME, create=True):
        (dirs.folder(ME) / "heartbeat-0.json").write_text('{"at": 5}', encoding="utf-8")
    beat = read_heartbeat(dirs, ME, 0, 9.0)
    assert beat is not None
    assert beat.at == 5.0
