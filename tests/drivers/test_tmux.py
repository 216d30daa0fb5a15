"""Agents in real tmux panes: started, found, replaced and ended like any process, and open to people."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from libtmux import Server

from gitops_agent.drivers.api import Context, ObserveRequest
from gitops_agent.drivers.local.context import Options
from gitops_agent.drivers.local.driver import LocalDriver
from gitops_agent.drivers.local.log_files import Rotation
from gitops_agent.drivers.local.procfs import ProcessTable
from gitops_agent.drivers.local.spec import runtime_key
from gitops_agent.drivers.tmux import server
from gitops_agent.drivers.tmux.launcher import TmuxLauncher
from gitops_agent.errors import ApplyError, ObserveError
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Verb
from tests.drivers.conftest import BOT, PYTHON, SLEEP, Fleet, action, alive, kill, until

SESSION = f"{BOT.tenant}/{BOT.name}"


class TmuxFleet(Fleet):
    """An instance with a tmux server of its own. ``tmux`` asks it as a person would."""

    name = "tmux"

    def build(self, context: Context, options: Options) -> LocalDriver:
        return LocalDriver("tmux", context, options, TmuxLauncher)

    @property
    def tmux(self) -> Server:
        return Server(socket_name=f"gitops-agent-{self.instance}")

    def ask(self, *command: str) -> list[str]:
        lines: list[str] = self.tmux.cmd(*command).stdout
        return lines

    def server_pid(self) -> int:
        return int(self.ask("display-message", "-p", "#{pid}")[0])

    def log(self, replica: int = 0) -> str:
        return (self.folder() / "logs" / f"{replica}.log").read_text()

    def close(self) -> None:
        super().close()
        self.tmux.cmd("kill-server")
        Path(f"/tmp/tmux-{os.geteuid()}/gitops-agent-{self.instance}").unlink(missing_ok=True)


def parent(pid: int) -> int:
    """The process of a pane: the runner of an agent."""
    found = ProcessTable().one(pid)
    assert found is not None
    return found.ppid


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[TmuxFleet]:
    fleet = TmuxFleet(tmp_path / "state")
    yield fleet
    fleet.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., TmuxFleet]]:
    made: list[TmuxFleet] = []

    def make(state: Path = tmp_path / "state", **options: Any) -> TmuxFleet:
        made.append(TmuxFleet(state, **options))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def test_an_agent_runs_in_a_pane_of_its_own_session(fleet: TmuxFleet) -> None:
    fleet.run(*SLEEP)
    (pid,) = fleet.pids()
    assert fleet.ask("list-panes", "-a", "-F", "#{session_name} #{window_name} #{pane_pid}") == [
        f"{SESSION} 0 {parent(pid)}"
    ]
    seen = fleet.look()
    assert (seen.reason, seen.state) == (None, "Running")
    attach = shlex.split(seen.live["attach"])
    assert attach[:2] == ["tmux", "-S"]
    assert attach[3:] == ["attach", "-t", SESSION]
    assert Path(attach[2]).is_socket()


# -- environment and secrets

STRANGE = "a'b\"c\\d$HOME #{pane_id} `x` ~ ; {y} %H \n\té\u202e"


def environ(pid: int) -> dict[str, str]:
    block = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "surrogateescape")
    return dict(line.split("=", 1) for line in block.split("\0") if "=" in line)


def test_the_environment_is_what_was_declared_and_a_terminal(
    make: Callable[..., TmuxFleet], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"\xff-not-utf8-" + b"x" * 40_000)
    fleet = make(environment={"PATH": os.environ["PATH"], "HOME": "/nowhere", "OURS": "private", "KEY": STRANGE})
    env: list[dict[str, Any]] = [
        {"name": "LEVEL", "value": STRANGE},
        {"name": "KEY", "valueFrom": {"secretRef": {"provider": "env", "name": "KEY"}}},
        {"name": "LARGE", "valueFrom": {"secretRef": {"provider": "file", "name": str(secret)}}},
    ]
    fleet.run(*SLEEP, env=env)
    (pid,) = fleet.pids()
    until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\0" + b"300\0")
    found = environ(pid)
    assert found.pop("LEVEL") == STRANGE
    assert found.pop("KEY") == STRANGE
    assert found.pop("LARGE") == os.fsdecode(secret.read_bytes())
    assert {name for name in found if name.startswith("MANAGED_AGENT_")} == {
        f"MANAGED_AGENT_{name}" for name in ("OWNER", "REPLICA", "SPEC", "CONFIG", "HEARTBEAT", "DRIVER")
    }
    rest = {name for name in found if not name.startswith("MANAGED_AGENT_")}
    assert rest <= {
        *("PATH", "HOME", "LANG", "TZ", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION"),
        *("TMUX", "TMUX_PANE", "TMUX_TMPDIR", "SHELL", "PWD"),
    }


def test_a_secret_is_in_no_argument_list_and_not_left_with_tmux(make: Callable[..., TmuxFleet]) -> None:
    token = "not-a-real-token-0123456789"
    fleet = make(environment={"PATH": os.environ["PATH"], "KEY": token})
    fleet.run(*SLEEP, env=[{"name": "KEY", "valueFrom": {"secretRef": {"provider": "env", "name": "KEY"}}}])
    (pid,) = fleet.pids()
    assert environ(pid)["KEY"] == token
    arguments = b"".join(path.read_bytes() for path in Path("/proc").glob(f"{fleet.server_pid()}/cmdline"))
    told = [
        *fleet.ask("show-environment", "-g"),
        *fleet.ask("show-environment", "-t", f"={SESSION}:"),
        *fleet.ask("list-panes", "-a", "-F", "#{pane_start_command}"),
    ]
    assert token not in "".join(told) + os.fsdecode(arguments)


def test_paths_may_hold_what_means_something_to_tmux(make: Callable[..., TmuxFleet], tmp_path: Path) -> None:
    folder = tmp_path / "a #{b} %H 'c'"
    folder.mkdir()
    fleet = make(state=folder / "state")
    fleet.run("sh", "-c", "pwd; sleep 300", workdir=str(folder))
    until(lambda: fleet.log().strip() == str(folder))


def test_a_program_without_arguments_is_the_process_of_its_pane(fleet: TmuxFleet, tmp_path: Path) -> None:
    program = tmp_path / "my bot"
    program.write_text("#!/bin/sh\nexec sleep 300\n")
    program.chmod(0o755)
    fleet.run(str(program))
    (pid,) = fleet.pids()
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")


# -- output


def test_no_output_is_lost_however_short_the_life(fleet: TmuxFleet) -> None:
    fleet.run("sh", "-c", "echo first; echo last; exit 3")
    seen = until(lambda: (found := fleet.look()).fields is None and found)
    assert seen.reason == "ProcessGone"
    until(lambda: fleet.log().splitlines() == ["first", "last"])
    assert seen.live["attach"], "what it printed last can still be read in its pane"


def test_the_exit_code_is_told_where_tmux_knows_it(fleet: TmuxFleet) -> None:
    fleet.run("sh", "-c", "exit 3")
    until(lambda: fleet.ask("list-panes", "-a", "-F", "#{pane_dead}") == ["1"])
    if fleet.ask("list-panes", "-a", "-F", "#{pane_dead_status}") != ["3"]:
        pytest.skip("this tmux has lost how its pane ended, as it does now and then")
    assert "exited with code 3" in fleet.look().message
    assert fleet.look().live["lastExit"]["code"] == 3


def test_a_log_that_was_rotated_goes_on(make: Callable[..., TmuxFleet]) -> None:
    fleet = make(rotation=Rotation(size=1000, keep=1))
    fields = fleet.run("sh", "-c", "head -c 2000 /dev/zero | tr '\\0' x; echo; read line; echo more; sleep 300")
    until(lambda: len(fleet.log()) > 2000)
    fleet.apply(fields, Verb.UPDATE)
    assert fleet.log() == ""
    fleet.ask("send-keys", "-t", f"={SESSION}:", "Enter")
    until(lambda: fleet.log().endswith("more\r\n") or fleet.log().endswith("more\n"))
    assert len(fleet.log()) < 100


def test_the_log_goes_on_after_what_wrote_it_was_killed(fleet: TmuxFleet) -> None:
    fleet.run("sh", "-c", "echo first; read line; echo more; sleep 300")
    until(lambda: fleet.log().startswith("first"))
    table = ProcessTable()
    writers = [proc.pid for proc in table.sweep().values() if table.command_line(proc.pid) == ("cat",)]
    (writer,) = [pid for pid in writers if os.path.realpath(f"/proc/{pid}/fd/1").startswith(str(fleet.state))]
    kill(writer)
    fleet.ask("send-keys", "-t", f"={SESSION}:", "Enter")
    until(lambda: "more" in fleet.log())


# -- replicas and change


def test_each_replica_has_a_window_and_a_lost_one_comes_back_into_it(fleet: TmuxFleet) -> None:
    fields = fleet.run(*SLEEP, replicas=3)
    before = fleet.pids()
    assert fleet.ask("list-windows", "-t", f"={SESSION}", "-F", "#{window_name}") == ["0", "1", "2"]
    pane = fleet.ask("list-panes", "-a", "-F", "#{pane_pid} #{pane_id}")[1].split()[1]
    kill(before[1])
    assert until(lambda: fleet.look().reason) == "ReplicaMissing"
    fleet.apply(fields, Verb.UPDATE)
    after = fleet.pids()
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] != before[1]
    assert f"{parent(after[1])} {pane}" in fleet.ask("list-panes", "-a", "-F", "#{pane_pid} #{pane_id}")
    assert len(fleet.marked()) == 3


def test_agents_that_start_at_once_share_one_server(fleet: TmuxFleet) -> None:
    agents = [AgentKey(BOT.tenant, f"bot-{number}") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda agent: fleet.run(*SLEEP, agent=agent), agents))
    assert len(fleet.ask("list-panes", "-a")) == len(fleet.marked()) == 6
    assert [fleet.look(agent).reason for agent in agents] == [None] * 6


def test_the_number_of_replicas_follows(fleet: TmuxFleet) -> None:
    fleet.run(*SLEEP)
    first = fleet.pids()
    fleet.apply(fleet.fields(*SLEEP, replicas=3), Verb.UPDATE)
    assert fleet.pids()[:1] == first
    assert len(fleet.pids()) == 3
    fleet.apply(fleet.fields(*SLEEP, replicas=1), Verb.UPDATE)
    assert fleet.pids() == first == fleet.marked()
    assert fleet.ask("list-windows", "-t", f"={SESSION}", "-F", "#{window_name}") == ["0"]


def test_a_changed_command_runs_in_the_same_pane(fleet: TmuxFleet) -> None:
    fleet.run(*SLEEP)
    (old,) = fleet.pids()
    panes = fleet.ask("list-panes", "-a", "-F", "#{pane_id}")
    fleet.apply(fleet.fields("sleep", "301"), Verb.RESTART)
    (new,) = fleet.pids()
    assert new != old
    assert not alive(old)
    assert fleet.ask("list-panes", "-a", "-F", "#{pane_id}") == panes
    assert fleet.look().reason is None


@pytest.mark.parametrize("spec", [{"command": ["no-such-program"]}, {"command": ["true"], "workdir": "/no/such"}])
def test_what_cannot_start_costs_nothing_that_runs(fleet: TmuxFleet, spec: dict[str, Any]) -> None:
    fleet.run(*SLEEP)
    before = fleet.pids()
    workdir = {"workdir": spec["workdir"]} if "workdir" in spec else {}
    with pytest.raises(ApplyError, match=r"runtime\.(command|workdir)"):
        fleet.apply(fleet.fields(*spec["command"], **workdir), Verb.RESTART)
    assert fleet.pids() == before


def test_a_first_start_that_cannot_be_is_said_and_leaves_no_pane(fleet: TmuxFleet) -> None:
    with pytest.raises(ApplyError, match="no-such-program") as refused:
        fleet.run("no-such-program")
    assert refused.value.permanent
    assert fleet.ask("list-panes", "-a") == []


# -- loss


@pytest.mark.parametrize(
    "command", [("kill-pane", "-t", f"={SESSION}:"), ("kill-session", "-t", f"={SESSION}"), ("kill-server",)]
)
def test_what_a_person_closed_comes_back_once(fleet: TmuxFleet, command: tuple[str, ...]) -> None:
    fields = fleet.run(*SLEEP)
    (old,) = fleet.pids()
    fleet.ask(*command)
    until(lambda: not alive(old))
    seen = fleet.look()
    assert seen.fields is None
    assert seen.reason in ("ProcessGone", "Zombie")  # what a server leaves that ends itself, until it is reaped
    fleet.apply(fields, Verb.CREATE)
    assert len(fleet.pids()) == len(fleet.marked()) == 1
    assert fleet.look().live["attach"]


def test_the_server_was_killed(fleet: TmuxFleet) -> None:
    fields = fleet.run(*SLEEP, replicas=2)
    old = fleet.pids()
    kill(fleet.server_pid())
    until(lambda: not any(map(alive, old)))
    assert fleet.look().reason == "ProcessGone"
    fleet.apply(fields, Verb.CREATE)
    assert len(fleet.pids()) == len(fleet.marked()) == 2


STUBBORN = ("sh", "-c", "trap '' HUP; while :; do sleep 300; done")


@pytest.mark.parametrize("loss", ["kill-server", "kill-pane", "SIGKILL"])
def test_an_agent_that_outlives_its_pane_is_replaced_and_never_runs_twice(fleet: TmuxFleet, loss: str) -> None:
    fields = fleet.run(*STUBBORN)
    (old,) = fleet.pids()
    until(lambda: int(Path(f"/proc/{old}/status").read_text().split("SigIgn:")[1].split()[0], 16) & 1)
    if loss == "SIGKILL":
        kill(fleet.server_pid())
    else:
        fleet.ask(loss, *(() if loss == "kill-server" else ("-t", f"={SESSION}:")))
    seen = until(lambda: (found := fleet.look()).reason == "SupervisorLost" and found)
    assert f"pid {old}" in seen.message
    assert seen.fields is not None
    assert seen.fields.value["state"] == "Unsupervised"
    fleet.apply(fields, Verb.RESTART)
    assert not alive(old)
    assert len(fleet.pids()) == 1
    assert fleet.look().reason is None


def test_a_socket_that_was_swept_away_costs_no_agent_and_comes_back(fleet: TmuxFleet) -> None:
    fields = fleet.run(*SLEEP)
    before, server = fleet.pids(), fleet.server_pid()
    socket = Path(shlex.split(fleet.look().live["attach"])[2])
    socket.unlink()
    assert fleet.look().reason is None
    until(socket.exists)
    fleet.apply(fields, Verb.UPDATE)
    assert fleet.pids() == before
    assert fleet.server_pid() == server


def test_found_again_after_the_loss_of_the_state_directory(fleet: TmuxFleet, tmp_path: Path) -> None:
    fields = fleet.run(*SLEEP, replicas=2)
    before = fleet.pids()
    shutil.rmtree(fleet.state)
    fleet.restart(state=tmp_path / "new", keep_bases=False)
    seen = fleet.look()
    assert seen.fields is not None
    assert seen.fields.value == {"spec": fields.value["spec"], "replicas": 2, "state": "Running"}
    assert seen.live["attach"]
    fleet.apply(fields, Verb.CREATE)
    assert fleet.pids() == before
    assert len(fleet.marked()) == 2
    fleet.apply(None, Verb.DELETE)
    assert fleet.marked() == []
    until(lambda: fleet.ask("list-panes", "-a") == [])


def test_a_start_that_was_never_recorded_is_not_repeated(fleet: TmuxFleet) -> None:
    step = action(runtime_key(BOT, "tmux"), Verb.CREATE, desired=fleet.fields(*SLEEP, replicas=2))
    fleet.driver.apply(step, "intent")
    before = fleet.pids()
    for _ in range(3):  # killed before the outcome was written, each time
        fleet.restart()
        fleet.driver.apply(step, "intent")
    assert fleet.pids() == before
    assert len(fleet.marked()) == 2


def test_a_kill_between_start_and_record_starts_nothing_twice(fleet: TmuxFleet, tmp_path: Path) -> None:
    fields = fleet.fields(*SLEEP)
    starter = tmp_path / "starter.py"
    starter.write_text(
        textwrap.dedent(
            f"""
            import os, signal
            from gitops_agent.drivers.local.context import Options
            from gitops_agent.drivers.local.spec import runtime_key
            from gitops_agent.drivers.tmux import server
            from gitops_agent.drivers.local.driver import LocalDriver
            from gitops_agent.drivers.tmux.launcher import TmuxLauncher
            from gitops_agent.model.fields import Fields
            from gitops_agent.drivers.api import Context
            from tests.drivers.conftest import BOT, RealClock, Verb, action
            real = server.TmuxServer.run
            def run(*arguments):
                real(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            server.TmuxServer.run = run
            context = Context({fleet.instance!r}, {str(fleet.state)!r}, RealClock())
            driver = LocalDriver("tmux", context, Options(groups=None), TmuxLauncher)
            key = runtime_key(type(BOT)({BOT.tenant!r}, {BOT.name!r}), "tmux")
            driver.apply(action(key, Verb.CREATE, desired=Fields({fields.raw!r})), "intent")
            """
        )
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, str(starter)], env={**os.environ, "PYTHONPATH": str(root)}, check=False)
    assert done.returncode == -9
    (pane,) = fleet.ask("list-panes", "-a", "-F", "#{pane_id} #{pane_pid}")
    fleet.apply(fields, Verb.CREATE)  # at once: what tmux has forked may not have become the program yet
    assert fleet.ask("list-panes", "-a", "-F", "#{pane_id} #{pane_pid}") == [pane]
    assert fleet.pids() == fleet.marked()
    assert [parent(pid) for pid in fleet.pids()] == [int(pane.split()[1])]


# -- end


def test_stop_and_delete_end_the_tree_and_close_the_session(fleet: TmuxFleet) -> None:
    fleet.run("sh", "-c", "setsid sleep 301 & sleep 302 & wait", replicas=2)
    until(lambda: len(fleet.marked()) == 6)
    fleet.apply(None, Verb.DELETE)
    assert fleet.marked() == []
    assert fleet.ask("list-panes", "-a") == []
    assert fleet.see() is None


def test_the_panes_of_an_agent_that_had_ended_are_closed_too(fleet: TmuxFleet) -> None:
    fleet.run("true")
    until(lambda: fleet.look().fields is None)
    assert len(fleet.ask("list-panes", "-a")) == 1
    fleet.apply(None, Verb.DELETE)
    assert fleet.ask("list-panes", "-a") == []


def test_what_a_person_runs_beside_an_agent_stays(fleet: TmuxFleet) -> None:
    fields = fleet.run(*SLEEP)
    fleet.ask("new-window", "-d", "-n", "mine", "-t", f"={SESSION}:", "exec sleep 303")
    assert fleet.look().reason is None, "a window of a person is no replica"
    fleet.apply(fleet.fields(*SLEEP, replicas=2), Verb.UPDATE)
    fleet.apply(fields, Verb.UPDATE)
    fleet.apply(None, Verb.DELETE)
    assert fleet.ask("list-windows", "-a", "-F", "#{window_name}") == ["mine"]
    assert fleet.marked() == []


# -- people


class Terminal:
    """A person's terminal that is attached to a session."""

    def __init__(self, attach: str) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (31, 101))
        self.client = subprocess.Popen(
            shlex.split(attach),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"},
        )
        os.close(slave)
        os.set_blocking(self.master, False)

    def read(self) -> bytes:
        """What was drawn since the last time."""
        drawn = b""
        while True:
            try:
                drawn += os.read(self.master, 65536)
            except BlockingIOError:
                return drawn

    def close(self) -> None:
        self.client.kill()
        self.client.wait()
        os.close(self.master)


def test_a_person_who_is_attached_is_not_disturbed(fleet: TmuxFleet) -> None:
    fields = fleet.run("sh", "-c", "echo ready for you; sleep 300")
    terminal = Terminal(fleet.look().live["attach"])
    try:
        drawn = bytearray()
        until(lambda: drawn.extend(terminal.read()) or b"ready for you" in drawn)
        # The clock in the status line would draw by itself.
        fleet.ask("set-option", "-g", "status", "off")
        fleet.ask("send-keys", "-t", f"={SESSION}:", "typed")
        until(lambda: drawn.extend(terminal.read()) or b"typed" in drawn)
        looks = (
            ("list-clients", "-F", "#{client_session} #{client_width}x#{client_height} #{client_key_table}"),
            (
                "display-message",
                "-p",
                "-t",
                f"={SESSION}:",
                "#{window_id} #{pane_id} #{pane_width}x#{pane_height}",
            ),
            ("capture-pane", "-p", "-t", f"={SESSION}:0"),
            ("show-options", "-g"),
        )
        before = [fleet.ask(*look) for look in looks]
        assert before[0] == [f"{SESSION} 101x31 root"]
        assert before[1][0].endswith(" 101x31")
        terminal.read()

        for _ in range(3):
            assert fleet.look().reason is None
            fleet.driver.observe(ObserveRequest(None, fleet.bases))
        fleet.apply(fields, Verb.UPDATE)
        assert [fleet.ask(*look) for look in looks] == before
        assert terminal.read() == b"", "a pass that changes nothing draws nothing"
        fleet.apply(fleet.fields("sh", "-c", "echo ready for you; sleep 300", replicas=2), Verb.UPDATE)
        other = AgentKey(BOT.tenant, "other")
        fleet.run(*SLEEP, agent=other)
        fleet.apply(None, Verb.DELETE, other)

        assert [fleet.ask(*look) for look in looks] == before, "a new window changes neither focus nor size"
        assert terminal.client.poll() is None
    finally:
        terminal.close()


def test_a_person_stays_attached_while_the_agent_restarts(fleet: TmuxFleet) -> None:
    fleet.run("sh", "-c", "echo old one; sleep 300")
    terminal = Terminal(fleet.look().live["attach"])
    try:
        drawn = bytearray()
        until(lambda: drawn.extend(terminal.read()) or b"old one" in drawn)
        fleet.apply(fleet.fields("sh", "-c", "echo new one; sleep 300"), Verb.RESTART)
        until(lambda: drawn.extend(terminal.read()) or b"new one" in drawn)
        assert fleet.ask("list-clients", "-F", "#{client_session}") == [SESSION]
    finally:
        terminal.close()


# -- beside others, and in trouble


def test_two_drivers_do_not_take_each_others_agents_for_their_own(fleet: TmuxFleet, tmp_path: Path) -> None:
    processes = Fleet(tmp_path / "processes")
    processes.instance = fleet.instance
    processes.restart()
    try:
        fleet.run(*SLEEP)
        assert processes.see() is None
        processes.run(*SLEEP)
        assert len(fleet.pids()) == len(processes.pids()) == 1
        assert fleet.pids() != processes.pids()
        processes.apply(None, Verb.DELETE)
        assert fleet.look().reason is None
        assert len(fleet.marked()) == 1
    finally:
        processes.restart()


def test_a_server_that_does_not_answer_is_unreachable_and_nothing_is_concluded(
    fleet: TmuxFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = fleet.run(*SLEEP)
    pid = fleet.server_pid()
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.2)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ObserveError, match="no answer within"):
            fleet.look()
        with pytest.raises(ApplyError, match="no answer within"):
            fleet.driver.apply(action(runtime_key(BOT, "tmux"), Verb.RESTART, desired=fields), "intent")
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    assert fleet.look().reason is None


def test_without_tmux_it_says_how_to_get_it_and_only_where_it_is_needed(
    fleet: TmuxFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = fleet.fields(*SLEEP)
    monkeypatch.setattr(server.shutil, "which", lambda *_, **__: None)
    assert fleet.driver.observe(ObserveRequest()) == []
    with pytest.raises(ApplyError, match="tmux is not installed") as refused:
        fleet.driver.apply(action(runtime_key(BOT, "tmux"), Verb.CREATE, desired=fields), "intent")
    assert "gitops-agent[tmux]" in refused.value.hint


def test_where_no_agent_uses_it_nothing_is_looked_for(fleet: TmuxFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessTable, "sweep", None)
    monkeypatch.setattr(server.TmuxServer, "panes", None)
    assert fleet.driver.observe(ObserveRequest()) == []
    assert fleet.driver.observe(ObserveRequest(frozenset({BOT}))) == []
    monkeypatch.undo()


def test_without_libtmux_it_says_how_to_get_it(fleet: TmuxFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = fleet.fields(*SLEEP)
    monkeypatch.setitem(sys.modules, "libtmux", None)
    with pytest.raises(ApplyError, match="libtmux is not installed"):
        fleet.driver.apply(action(runtime_key(BOT, "tmux"), Verb.CREATE, desired=fields), "intent")


# -- what drivers/local gives


def test_probes_heartbeats_and_memory_limits_work_as_for_any_process(fleet: TmuxFleet) -> None:
    beat = 'echo "{\\"at\\": 5, \\"turn\\": 7}" > $MANAGED_AGENT_HEARTBEAT; sleep 300'
    fleet.run("sh", "-c", beat, resources={"limits": {"memory": "64Mi"}})
    done = fleet.driver.exec(BOT, ["sh", "-c", 'echo "$MANAGED_AGENT_CONFIG"'], 20)
    assert done.message == f"exit code 0: {fleet.folder()}/config.json"
    assert fleet.look().reason is None, "a probe is no replica"
    until(lambda: [each.heartbeat.turn for each in fleet.look().instances if each.heartbeat] == [7])
    fleet.apply(fleet.fields(PYTHON, "-c", "x = 'x' * 2**27; input()", resources={"limits": {"memory": "64Mi"}}))
    assert until(lambda: fleet.look().reason) == "MemoryLimit"


def test_an_exit_is_noticed_at_once(fleet: TmuxFleet) -> None:
    events: SimpleQueue[tuple[AgentKey, str]] = SimpleQueue()
    fleet.driver.start(lambda agent, reason: events.put((agent, reason)))
    fleet.run(*SLEEP)
    kill(fleet.pids()[0])
    assert events.get(timeout=15) == (BOT, "ProcessExited")
