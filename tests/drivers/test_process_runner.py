"""Real programs: they go into the background, have workers that outlive them, and write over what names them.

Whatever they do, an agent runs once, and nothing of it runs on.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.model.observation import Observation
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, PYTHON, SLEEP, Fleet, action, alive, kill, process_key, until
from tests.support.programs import AGENTS, Program

SHORT = {"signal": "SIGTERM", "grace": "2s"}


@pytest.fixture(params=[kind for kind in AGENTS if AGENTS[kind].is_here])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Program:
    return AGENTS[request.param].made(tmp_path / "program")


def runner_of(fleet: Fleet) -> int:
    marked = [proc for proc in ProcessTable().sweep().values() if proc.alive and proc.marks]
    ours = [
        proc.pid for proc in marked if proc.marks and proc.marks.runner and proc.marks.instance == fleet.instance
    ]
    (runner,) = ours
    return runner


def gone(fleet: Fleet) -> Observation:
    found = until(lambda: (seen := fleet.look()).reason in ("ProcessGone", "Daemonized") and seen)
    assert isinstance(found, Observation)
    return found


def test_it_runs_once_and_nothing_is_left_of_it(fleet: Fleet, program: Program, tmp_path: Path) -> None:
    """Kills between start and record, the loss of our state, the death of its master, the end of its document."""
    step = action(process_key(BOT), Verb.CREATE, desired=fleet.fields(*program.command, stop=SHORT))
    for _ in range(2):
        fleet.driver.apply(step, "intent")
        program.await_up()
        fleet.restart()
    starts = 1 if program.stays else 2
    assert (program.starts, len(program.processes)) == (starts, program.size)
    fields = fleet.fields(*program.command, stop=SHORT)
    if program.stays:
        before = fleet.pids()
        shutil.rmtree(fleet.state)
        fleet.restart(state=tmp_path / "new", keep_bases=False)
        fleet.apply(fields, Verb.CREATE)
        assert (fleet.pids(), program.starts, fleet.look().reason) == (before, 1, None)

    # The workers keep the port: the next start fails unless they are ended first.
    first = program.processes
    for pid in fleet.pids():
        kill(pid)
    seen = gone(fleet)
    assert (seen.state, seen.instances) == ("Missing", ())
    fleet.apply(fields, Verb.RESTART if seen.fields is not None else Verb.CREATE)
    program.await_up(starts + 1)
    assert not [pid for pid in first if alive(pid)]
    assert (program.starts, len(program.processes)) == (starts + 1, program.size)
    fleet.apply(None, Verb.DELETE)
    assert (program.processes, fleet.marked(runners=True)) == ([], [])


def test_going_into_the_background_is_named_and_leaves_no_daemon(fleet: Fleet, tmp_path: Path) -> None:
    program = AGENTS["daemonizing"].made(tmp_path / "program")
    fields = fleet.run(*program.command, stop=SHORT)
    program.await_up()
    seen = gone(fleet)
    (daemon,) = program.processes
    assert seen.reason == "Daemonized"
    assert f"exited with code 0 and left pid {daemon} running: run it in the foreground" in seen.message
    assert seen.health is not None
    assert seen.live["lastExit"]["code"] == 0
    for tries in (2, 3):
        fleet.apply(fields, Verb.RESTART)
        program.await_up(starts=tries)
        assert len(program.processes) == 1
    gone(fleet)
    fleet.apply(None, Verb.DELETE)
    assert program.processes == []
    assert fleet.see() is None


def test_a_helper_with_a_title_does_not_pass_for_the_agent(fleet: Fleet, tmp_path: Path) -> None:
    """Even when the runner is gone as well, and so is the agent."""
    program = AGENTS["setproctitle"].made(tmp_path / "program")
    fields = fleet.run(*program.command, stop=SHORT)
    program.await_up()
    environment = _environment(runner_of(fleet))
    environment.pop("MANAGED_AGENT_RUNNER")
    code = (
        "import sys, time; from setproctitle import setproctitle; setproctitle('helper: at work'); time.sleep(300)"
    )
    with subprocess.Popen([PYTHON, "-c", code], env=environment, start_new_session=True) as child:
        try:
            until(lambda: ProcessTable().command_line(child.pid)[:1] == ("helper: at work",))
            (pid,) = fleet.pids()
            os.kill(runner_of(fleet), signal.SIGKILL)
            kill(pid)
            fleet.restart()
            seen = until(lambda: (found := fleet.look()).reason and found)
            assert seen.reason in ("CommandDiffers", "ProcessGone")
            fleet.apply(fields, Verb.RESTART)
            program.await_up(starts=2)
            assert fleet.look().reason is None
            assert child.pid not in fleet.pids()
        finally:
            kill(child.pid)


def _environment(runner: int) -> dict[str, str]:
    raw = Path(f"/proc/{runner}/environ").read_text().split("\0")
    return {n.removeprefix("MANAGED_AGENT_ENV_"): v for n, e, v in (item.partition("=") for item in raw) if e}


# -- the runner itself


def _programs(fleet: Fleet) -> list[str]:
    # One that ends between the two looks has no command line any more.
    lines = (ProcessTable().command_line(pid) for pid in fleet.marked())
    return [line[0] for line in lines if line]


def test_a_killed_runner_costs_no_restart_and_its_tree_still_ends(fleet: Fleet) -> None:
    fields = fleet.run("sh", "-c", "(setsid sleep 301 &); exec sleep 300", stop=SHORT)
    until(lambda: _programs(fleet) == ["sleep", "sleep"])
    tree, before, runner = fleet.marked(), fleet.pids(), runner_of(fleet)
    kill(runner)
    until(lambda: not alive(runner))
    assert (fleet.look().reason, fleet.pids()) == (None, before)
    fleet.restart()
    fleet.apply(fields, Verb.UPDATE)
    assert fleet.pids() == before
    fleet.apply(None, Verb.DELETE)
    assert not [pid for pid in tree if alive(pid)]


def test_what_is_left_after_runner_and_agent_were_killed_is_ended(fleet: Fleet) -> None:
    """A worker in the session of its master: it leads none, and only the record tells whose it is."""
    fields = fleet.run("sh", "-c", "sleep 301 & wait; true", stop=SHORT)
    until(lambda: len(fleet.marked()) == 2)
    (pid,) = fleet.pids()
    (worker,) = set(fleet.marked()) - {pid}
    kill(runner_of(fleet))
    kill(pid)
    seen = gone(fleet)
    assert f"pid {worker} of it still runs" in seen.message
    fleet.apply(fields, Verb.RESTART)
    assert not alive(worker)
    assert fleet.look().reason is None


def test_an_agent_of_an_earlier_version_is_adopted_and_not_restarted(fleet: Fleet) -> None:
    """It has marks, leads its session, and no runner is above it."""
    fields = fleet.fields(*SLEEP)
    fleet.apply(fields, Verb.CREATE)
    environment = _environment(runner_of(fleet))
    environment.pop("MANAGED_AGENT_RUNNER")
    fleet.apply(None, Verb.DELETE)
    with subprocess.Popen(SLEEP, env=environment, start_new_session=True) as old:
        until(lambda: fleet.pids() == [old.pid])
        fleet.apply(fields, Verb.CREATE)
        assert (fleet.pids(), fleet.look().reason) == ([old.pid], None)
        fleet.apply(None, Verb.DELETE)
        assert old.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("ending", "said"), [("exit 3", "exited with code 3"), ("kill -9 $$", "killed by signal 9")]
)
def test_how_an_agent_ended_is_known_after_our_restart_while_something_is_left(
    fleet: Fleet, tmp_path: Path, ending: str, said: str
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f"(setsid sleep 301 &); read line < go; {ending}"
    fleet.run("sh", "-c", script, workdir=str(tmp_path), stop=SHORT)
    until(lambda: len(fleet.marked()) == 2)
    fleet.restart()
    go.write_text("\n")
    assert said in gone(fleet).message


def test_a_signal_to_the_runner_reaches_the_agent(fleet: Fleet) -> None:
    fleet.run("sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    log = fleet.folder() / "logs" / "0.log"
    until(lambda: "up" in log.read_text())
    os.kill(runner_of(fleet), signal.SIGTERM)
    assert "exited with code 7" in gone(fleet).message
    assert "bye" in log.read_text()


def test_a_suspended_runner_neither_hides_a_dead_agent_nor_outlives_it(fleet: Fleet) -> None:
    fields = fleet.run(*SLEEP)
    (pid,), runner = fleet.pids(), runner_of(fleet)
    os.kill(runner, signal.SIGSTOP)
    kill(pid)
    assert gone(fleet).live["replicas"] == []
    fleet.apply(fields, Verb.RESTART)
    assert fleet.look().reason is None
    assert not alive(runner)


def test_variables_for_the_agent_are_not_for_its_runner(make_fleet: Callable[..., Fleet]) -> None:
    """A library path that breaks Python must not keep an agent from starting that can live with it."""
    fleet = make_fleet()
    env = [{"name": "LD_PRELOAD", "value": "/nowhere.so"}, {"name": "PYTHONHOME", "value": "/nowhere"}]
    fleet.run("sh", "-c", 'echo "$PYTHONHOME"; exec sleep 300', env=env)
    log = fleet.folder() / "logs" / "0.log"
    until(lambda: "/nowhere\n" in log.read_text() and log.read_text().count("/nowhere.so") == 2)
    assert fleet.look().reason is None, "the loader warned once for sh and once for sleep"


def test_a_port_is_free_again_once_an_agent_was_ended(fleet: Fleet, tmp_path: Path) -> None:
    program = AGENTS["cluster"].made(tmp_path / "program")
    fleet.run(*program.command, stop=SHORT)
    program.await_up()
    fleet.apply(None, Verb.DELETE)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", program.port))


def test_where_groups_are_delegated_an_agent_is_born_into_its_own_and_ended_by_it(
    fleet: Fleet, tmp_path: Path
) -> None:
    """A folder stands for the control group; what the kernel would list in it is written by hand."""
    groups = tmp_path / "groups"
    procs = groups / f"replica.{fleet.instance}.{BOT.tenant}.{BOT.name}.0" / "cgroup.procs"
    procs.parent.mkdir(parents=True)
    procs.touch()
    fleet.driver = fleet.fresh(groups=groups)
    fields = fleet.run("sh", "-c", f"cat {procs} > {tmp_path}/first; exec sleep 300", stop=SHORT)
    until(lambda: (tmp_path / "first").exists() and (tmp_path / "first").read_text() == "0")
    (pid,) = fleet.pids()
    kill(runner_of(fleet))
    kill(pid)
    # Without marks and without an ancestor of ours: only the group knows it.
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as lost:
        procs.write_text(f"{lost.pid}\n")
        gone(fleet)
        fleet.apply(fields)
        assert lost.wait(10) == -signal.SIGTERM
        assert len(fleet.pids()) == 1
