"""Agents outlive us: after a crash or the loss of the state directory they are found, never started twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, SLEEP, Fleet, action, alive, kill, process_key, until


def test_found_again_after_a_restart(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP, replicas=2)
    before = fleet.pids()
    fleet.restart()
    assert fleet.pids() == before
    assert fleet.look().reason is None
    fleet.apply(fields, Verb.CREATE)
    assert fleet.pids() == before


def test_found_again_after_the_loss_of_the_state_directory(fleet: Fleet, tmp_path: Path) -> None:
    fields = fleet.run(*SLEEP, replicas=2)
    before = fleet.pids()
    shutil.rmtree(fleet.state)
    fleet.restart(state=tmp_path / "new", keep_bases=False)
    seen = fleet.look()
    assert seen.fields is not None
    assert seen.fields.value == {"spec": fields.value["spec"], "replicas": 2, "state": "Running"}
    fleet.apply(fields, Verb.CREATE)
    assert fleet.pids() == before
    assert len(fleet.marked()) == 2
    fleet.apply(None, Verb.DELETE)
    assert fleet.marked() == []


def test_probes_of_an_agent_found_after_the_loss_of_the_state_directory_run(fleet: Fleet, tmp_path: Path) -> None:
    fields = fleet.run(*SLEEP)
    shutil.rmtree(fleet.state)
    fleet.restart(state=tmp_path / "new", keep_bases=False)
    fleet.apply(fields, Verb.CREATE)  # found, so nothing is started
    done = fleet.driver.exec(BOT, ["pwd"], 10.0)
    assert done.ok, done.message
    assert done.message.endswith(f"{tmp_path}/new/agents/{BOT.tenant}/{BOT.name}/work")


def test_a_workdir_that_is_gone_is_named_when_a_probe_cannot_start(fleet: Fleet, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    fleet.run(*SLEEP, workdir=str(here))
    here.rmdir()
    done = fleet.driver.exec(BOT, ["true"], 10.0)
    assert not done.started
    assert f"runtime.workdir {here} is not a folder" in done.message


def test_a_start_that_was_never_recorded_is_not_repeated(fleet: Fleet) -> None:
    fields = fleet.fields(*SLEEP)
    step = action(process_key(BOT), Verb.CREATE, desired=fields)
    fleet.driver.apply(step, "intent")
    for _ in range(3):  # killed before the outcome was written, each time
        fleet.restart()
        fleet.driver.apply(step, "intent")
    assert len(fleet.marked()) == 1


def test_an_agent_survives_a_kill_of_its_starter_and_nothing_runs_twice(fleet: Fleet, tmp_path: Path) -> None:
    fields = fleet.fields(*SLEEP)
    starter = tmp_path / "starter.py"
    starter.write_text(
        textwrap.dedent(
            f"""
            import os, signal
            from gitops_agent.drivers.local.context import Options
            from gitops_agent.drivers.local.driver import LocalDriver
            from gitops_agent.model.fields import Fields
            from gitops_agent.drivers.api import Context
            from tests.drivers.conftest import RealClock, action, Verb, process_key, BOT
            driver = LocalDriver(
                "process",
                Context({fleet.instance!r}, {str(fleet.state)!r}, RealClock()), Options(groups=None))
            key = process_key(type(BOT)({BOT.tenant!r}, {BOT.name!r}))
            driver.apply(action(key, Verb.CREATE, desired=Fields({fields.raw!r})), "intent")
            os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, str(starter)], env={**os.environ, "PYTHONPATH": str(root)}, check=False)
    assert done.returncode == -9
    assert len(fleet.pids()) == 1
    fleet.apply(fields, Verb.CREATE)
    assert len(fleet.marked()) == 1


def test_a_daemonised_tool_of_a_dead_agent_does_not_pass_for_it(fleet: Fleet) -> None:
    fields = fleet.run("sh", "-c", "(setsid sleep 301 &); echo up; sleep 300; exit 0")
    (pid,) = fleet.pids()
    until(lambda: len(fleet.marked()) == 3)
    for group_member in [p for p in fleet.marked() if os.getsid(p) == pid]:
        kill(group_member)
    (tool,) = until(lambda: len(left := fleet.marked()) == 1 and left)
    seen = until(lambda: (found := fleet.look()).reason == "ProcessGone" and found)
    assert f"pid {pid} was killed by signal 9; pid {tool} of it still runs" in seen.message
    assert (seen.state, seen.live["replicas"], seen.instances) == ("Missing", [], ())
    fleet.apply(fields, Verb.RESTART)
    assert not alive(tool)
    assert fleet.look().reason is None
