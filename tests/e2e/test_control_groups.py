"""A control group that is delegated to us, for real: it holds what neither a runner nor marks hold any more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.delegated_group import REASON, delegated_group, members, unified_mount
from tests.support.fleet import Fleet, alive, signal_pid, until
from tests.support.launcher import Step
from tests.support.programs import AGENTS, Program

pytestmark = pytest.mark.skipif(unified_mount() is None, reason=REASON)


@pytest.fixture
def group() -> Iterator[Path]:
    with delegated_group() as group:
        yield group


def inside(group: Path) -> list[Step]:
    return [("tests.support.delegated_group", "run_in", str(group))]


def replica_group(fleet: Fleet, group: Path) -> Path:
    return group / f"replica.{fleet.instance}.{fleet.tenant}.a.0"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Workers with titles of their own, which outlive their master and keep its port."""
    return AGENTS["cluster"].made(tmp_path / "program")


def orphan_workers(fleet: Fleet, program: Program, group: Path) -> set[int]:
    """Kill what is above the workers: the runner, and their master."""
    (runner,), master = fleet.runners("a"), fleet.main("a")
    assert members(replica_group(fleet, group)) == {runner, *program.processes}
    workers = set(program.processes) - {master}
    for pid in (runner, master):
        signal_pid(pid)
        until(lambda pid=pid: not alive(pid), "its end")
    assert workers <= members(replica_group(fleet, group)), "they keep the port"
    return workers


@pytest.mark.parametrize("part", ["", "main"], ids=["Delegate", "DelegateSubgroup"])
def test_what_lost_its_runner_and_its_marks_is_ended_before_the_next_start(
    fleet: Fleet, program: Program, group: Path, part: str
) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", *program.command)})
    assert fleet.call_after(inside(group / part), "once").code == 0
    program.await_up()
    workers = orphan_workers(fleet, program, group)
    # Another process of ours, which finds the group again.
    assert fleet.call_after(inside(group / part), "once").code == 0
    program.await_up(2)
    assert not workers & set(program.processes)
    assert program.starts == 2


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "Stopped"])
def test_what_lost_its_runner_and_its_marks_is_ended_with_its_agent(
    fleet: Fleet, program: Program, group: Path, deleted: bool
) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", *program.command), "b.yaml": fleet.agent("b")})
    assert fleet.call_after(inside(group), "once").code == 0
    program.await_up()
    orphan_workers(fleet, program, group)
    stopped = fleet.agent("a", *program.command, lifecycle="Stopped")
    fleet.commit({"a.yaml": None if deleted else stopped})
    assert fleet.call_after(inside(group), "once").code == 0
    assert not program.processes
    assert not replica_group(fleet, group).exists()


def test_without_runner_marks_and_record_an_agent_is_still_not_started_beside_itself(
    fleet: Fleet, tmp_path: Path, group: Path
) -> None:
    program = AGENTS["setproctitle"].made(tmp_path / "titled")
    fleet.commit({"a.yaml": fleet.agent("a", *program.command)})
    assert fleet.call_after(inside(group), "once").code == 0
    program.await_up()
    (runner,), old = fleet.runners("a"), program.processes
    signal_pid(runner)
    until(lambda: not alive(runner), "its end")
    shutil.rmtree(fleet.state)
    assert fleet.call_after(inside(group), "once").code == 0
    program.await_up(2)
    assert program.processes != old


def test_an_agent_of_before_groups_were_used_gets_one_with_its_next_restart(
    fleet: Fleet, program: Program, group: Path
) -> None:
    fleet.commit({"a.yaml": fleet.agent("a", *program.command)})
    fleet.once()
    program.await_up()
    before = program.processes
    for pid in before:  # as all that an earlier version started in our unit
        (group / "cgroup.procs").write_text(str(pid))
    assert fleet.call_after(inside(group), "once").code == 0
    assert (program.processes, program.starts) == (before, 1)

    env = {"env": [{"name": "VERSION", "value": "2"}]}
    fleet.commit({"a.yaml": fleet.agent("a", *program.command, runtime=env)})
    assert fleet.call_after(inside(group), "once").code == 0
    program.await_up(2)
    assert set(program.processes) < members(replica_group(fleet, group))
    assert not set(program.processes) & set(before)


AS_OTHER_USER = """
import os, pathlib, sys
from gitops_agent.drivers.local.memory_limit import MemoryLimits, delegated_parent
from gitops_agent.model.key import AgentKey
pathlib.Path(sys.argv[1], "cgroup.procs").write_text("0")  # as systemd, before it gives up its rights
os.setgid(65534); os.setuid(65534)
parent, agent = delegated_parent(), AgentKey("acme", "bot")
born = MemoryLimits("me", parent).birthplace(agent, 0)
pathlib.Path(born).write_text("0")
print(parent, MemoryLimits("me", parent).members(agent, 0) == {os.getpid()})
"""


def test_a_group_that_belongs_to_our_user_is_ours_without_a_mark(group: Path) -> None:
    """As ``Delegate=`` with ``User=`` makes it; the mark of systemd is not for every user to see."""
    unit = group / "bot.service"
    unit.mkdir()
    for path in (unit, unit / "cgroup.procs", unit / "cgroup.subtree_control", unit / "cgroup.threads"):
        os.chown(path, 65534, 65534)
    done = subprocess.run(
        [sys.executable, "-c", AS_OTHER_USER, str(unit)], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{unit} True\n", done.stderr


def test_memory_is_watched_in_a_group_without_a_memory_controller(fleet: Fleet, group: Path) -> None:
    eats = "import time; held = bytearray(96 * 2**20); time.sleep(600)"
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    fleet.commit({"a.yaml": fleet.agent("a", "python3", "-c", eats, runtime=limits)})
    with fleet.running(first=inside(group)):
        (pid,) = until(lambda: fleet.pids("a"), "the agent")
        assert pid in members(replica_group(fleet, group))
        until(lambda: not alive(pid), "its restart")
        until(lambda: "MemoryLimit" in fleet.daemon_log(), "the reason")
