"""Starts agents in panes, and knows which of them lost theirs."""

import os
import shlex
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePath
from posixpath import dirname
from typing import Any

from gitops_agent.drivers.api import AgentKey, ApplyError
from gitops_agent.drivers.local import marks
from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica
from gitops_agent.drivers.local.registry import ExitStatus
from gitops_agent.drivers.local.start import Launched, Launcher, Program, obstacle
from gitops_agent.drivers.tmux.server import OWNER_OPTION, REPLICA_OPTION, Pane, TmuxServer

SIZE = ("-x", "200", "-y", "50")  # columns and lines until a person attaches
EXEC_SECONDS = 5.0
EXEC_PAUSE_SECONDS = 0.005
PLACEHOLDER = ("--", "true")
# tmux gives one argument to a shell and several to the kernel; exec makes the program the pane's own process.
EXEC = ("sh", "-c", 'exec "$@"', "sh")


class TmuxLauncher(Launcher):
    """One session per agent, one window per replica. A pane outlives its program, and is used again."""

    def __init__(self, context: ProcessContext) -> None:
        super().__init__(context)
        self._server = TmuxServer(f"gitops-agent-{context.instance}", context.environment.passed_on())
        self._seen: Mapping[str, Pane] = {}  # by owner: what the last observation found, for people

    def launch(self, program: Program) -> Launched:
        """Start the runner of a program in its own pane again, or in a new one.
        Marks and options of the pane, the program and its log begin in one turn of the server, so nothing that it
        prints is lost, and a kill of ours leaves all of it or nothing."""
        problem = obstacle(program.command[0], program.workdir, program.environment["PATH"])
        if problem is not None:
            raise problem  # tmux would start it in another folder, or not at all, and report neither
        owner = marks.owner(self.context.instance, program.agent)
        panes = self._server.panes() or ()
        mine = [pane for pane in panes if (pane.owner, pane.replica) == (owner, program.replica)]
        busy = {pane.id: pane for pane in mine if self._runs(pane)}
        for pane in busy.values():
            if self._spec_of(pane) == program.environment[marks.SPEC]:
                return Launched(pane.pid)  # we were killed when tmux had forked it, before its marks could be seen
        free = next((pane.id for pane in mine if pane.id not in busy), None)
        make, target = ((), free) if free is not None else _new_pane(program, owner, panes)
        self._server.run(*make, *_start(program, owner, target, self.context.dirs.log))
        for pane in self._server.panes() or ():
            if (pane.owner, pane.replica) == (owner, program.replica) and pane.id not in busy:
                return Launched(pane.pid)
        raise ApplyError(f"{self.context.key(program.agent)}: its pane was closed while it was started")

    def may_run_agents(self) -> bool:
        """Whether there is a socket: without one and without a record there is nothing to look for."""
        return self._server.socket.exists()

    def unsupervised(self, tree: ProcessTree) -> Collection[int]:
        """The replicas that have no pane any more. Without an answer, those below no tmux server."""
        panes = self._server.panes()
        self._seen = {pane.owner: pane for pane in reversed(panes or ()) if pane.owner}
        self._record_exits(panes or ())
        in_panes = {pane.pid for pane in panes or ()}
        outside = [r for replicas in tree.ours.values() for r in replicas if r.top.pid not in in_panes]
        return [r.proc.pid for r in outside if panes is not None or not self._restore_socket(r)]

    def release(self, agent: AgentKey, first: int) -> None:
        """Close the panes of ended replicas; a pane in which a person started something else stays."""
        owner = marks.owner(self.context.instance, agent)
        for pane in self._server.panes() or ():
            if pane.owner == owner and pane.replica >= first and not self._runs(pane):
                self._server.kill_pane(pane)

    def shown(self, agent: AgentKey) -> Mapping[str, Any]:
        """How a person attaches to the agent."""
        pane = self._seen.get(marks.owner(self.context.instance, agent))
        if pane is None:
            return {}
        return {"attach": shlex.join(["tmux", "-S", str(self._server.socket), "attach", "-t", pane.session_name])}

    def _runs(self, pane: Pane) -> bool:
        found = self.context.table.one(pane.pid)
        return found is not None and found.alive

    def _spec_of(self, pane: Pane) -> str | None:
        """The spec that the program of a pane is marked with. Between fork and exec it is a copy of the server."""
        table, deadline = self.context.table, time.monotonic() + EXEC_SECONDS
        while (found := table.one(pane.pid)) is not None and found.marks is None and time.monotonic() < deadline:
            if table.command_line(found.pid) != table.command_line(found.ppid):
                break  # a program that a person started
            time.sleep(EXEC_PAUSE_SECONDS)
        return found.marks.spec if found is not None and found.marks is not None else None

    def _record_exits(self, panes: Sequence[Pane]) -> None:
        for pane in panes:
            status = pane.status or (f"-{pane.signal}" if pane.signal else "")
            if not pane.dead or not pane.owner or not status:
                continue  # tmux may never learn how a program ended; the process table shows that it did
            instance, *agent = pane.owner.split("/")
            if instance == self.context.instance:
                ended = ExitStatus(pane.pid, pane.replica, int(status), self.context.clock.now())
                self.context.registry.record_exit(AgentKey(*agent), ended)

    def _restore_socket(self, replica: Replica) -> bool:
        """Whether the replica is still below a tmux server, which is then asked to make its socket again."""
        server = replica.top.ppid
        program = self.context.table.command_line(server)[:1]
        if not program or PurePath(program[0]).name != "tmux":
            return False
        os.kill(server, signal.SIGUSR1)
        return True


def _new_pane(program: Program, owner: str, panes: Sequence[Pane]) -> tuple[tuple[Sequence[str], ...], str]:
    """The commands that make a pane for the replica, and how it is then addressed."""
    name = str(program.agent)
    session = next((pane.session for pane in panes if pane.owner == owner or pane.session_name == name), None)
    if session is None:
        make = ("new-session", "-d", "-s", name, "-n", str(program.replica), *SIZE, *PLACEHOLDER)
        # The environment of people that attach is not for agents that are started later.
        return (make, ("set-option", "-t", f"={name}:", "update-environment", "")), f"={name}:"
    last = f"{session}:{{end}}"
    return (("new-window", "-a", "-d", "-n", str(program.replica), "-t", last, *PLACEHOLDER),), last


def _start(
    program: Program, owner: str, target: str, log: Callable[[AgentKey, int], str]
) -> tuple[Sequence[str], ...]:
    """The commands that mark a pane and start the program in it, its output copied to its log."""
    variables = [part for item in program.runner_environment.items() for part in ("-e", "=".join(item))]
    folder = program.workdir.replace("#", "##")
    path = log(program.agent, program.replica)
    file, parent = (shlex.quote(each).replace("#", "##").replace("%", "%%") for each in (path, dirname(path)))
    return (
        ("set-option", "-p", "-t", target, "remain-on-exit", "on"),
        ("set-option", "-p", "-t", target, OWNER_OPTION, owner),
        ("set-option", "-p", "-t", target, REPLICA_OPTION, str(program.replica)),
        ("respawn-pane", "-k", "-t", target, "-c", folder, *variables, "--", *EXEC, *program.runner()),
        # Again after a full disk; without its folder it would never end.
        ("pipe-pane", "-t", target, f"until cat >> {file} || ! test -d {parent}; do sleep 1; done"),
    )
