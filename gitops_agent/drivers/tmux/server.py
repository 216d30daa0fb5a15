"""The tmux server of one instance: its panes, and commands for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from gitops_agent.drivers.api import ApplyError, ObserveError
from gitops_agent.drivers.local.agent_dir import OUR_LIMITS

if TYPE_CHECKING:
    from libtmux import Server

ANSWER_SECONDS = 10.0
NOT_INSTALLED = "install tmux 3.2 or later, and libtmux: pip install 'gitops-agent[tmux]'"
OWNER_OPTION = "@managed_agent_owner"
REPLICA_OPTION = "@managed_agent_replica"

_FIELDS = (
    *("pane_id", "session_id", "pane_pid", "pane_dead", "pane_dead_status", "pane_dead_signal"),
    *(OWNER_OPTION, REPLICA_OPTION, "session_name"),
)
_FORMAT = "|".join(f"#{{{name}}}" for name in _FIELDS)
_PLAIN = re.compile(rb"[A-Za-z0-9_/.,:=@%+-]+")
_SPECIAL = re.compile(rb"[^A-Za-z0-9_/.,:=@%+ -]")


class Pane(NamedTuple):
    """One pane. ``owner`` is "" where it is nothing of ours; the status is known only sometimes."""

    id: str
    session: str
    pid: int
    dead: bool
    status: str
    signal: str
    owner: str
    replica: int
    session_name: str


class TmuxServer:
    """One tmux server on a socket of its own. ``environment`` is what its first client starts it with."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self._name = name
        # tmux looks for its socket there, and libtmux leaves that to the environment of this process.
        folder = os.environ.get("TMUX_TMPDIR", "")
        self._environment = {**environment, **({"TMUX_TMPDIR": folder} if folder else {})}
        self.socket = Path(folder or "/tmp", f"tmux-{os.geteuid()}", name)  # noqa: S108 - tmux checks whose it is

    def panes(self) -> tuple[Pane, ...] | None:
        """Every pane; None when no server listens on the socket. ObserveError when one does not answer."""
        answer = self._ask("list-panes", "-a", "-F", _FORMAT)
        return tuple(_pane(line) for line in answer.stdout) if answer.returncode == 0 else None

    def kill_pane(self, pane: Pane) -> None:
        """Close a pane; one that is gone already is as good."""
        self._ask("kill-pane", "-t", pane.id)

    def run(self, *commands: Sequence[str]) -> None:
        """Start the server if needed and run commands, one after the other until one fails; ApplyError then.
        They go through standard input: secrets in an argument list could be read by every user of the machine, and
        tmux takes no more than 16 KiB there. No other client gets a turn in between."""
        text = b" ; ".join(b" ".join(map(quoted, command)) for command in commands) + b"\n"
        client = [_tmux(), "-L", self._name, "-f", os.devnull, "start-server", ";", "source-file", "-"]
        failed = ""
        try:
            done = subprocess.run(
                client, input=text, env=self._environment, capture_output=True, timeout=ANSWER_SECONDS, check=False
            )
            if done.returncode != 0 or done.stderr:
                failed = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            failed = f"no answer within {ANSWER_SECONDS:g} s"
        # Raised out here, so that no exception that holds what was sent is chained to it.
        if failed:
            raise ApplyError(f"tmux: {failed}", hint=f"see what `tmux -L {self._name} list-panes -a` answers")

    @cached_property
    def _server(self) -> Server:
        # Imported when it is first used: most instances have no agent in tmux.
        try:
            from libtmux import Server
        except ImportError:
            raise ObserveError("libtmux is not installed", hint=NOT_INSTALLED) from None
        return Server(socket_name=self._name, tmux_bin=_tmux())

    def _ask(self, *command: str) -> Any:
        server = self._server
        try:
            return _within(ANSWER_SECONDS, lambda: server.cmd(*command))
        except TimeoutError:
            raise ObserveError(
                f"the tmux server {self._name} gives no answer within {ANSWER_SECONDS:g} s",
                hint="if it is suspended, continue it: kill -CONT its pid",
            ) from None
        except OSError as problem:
            raise ObserveError(f"tmux cannot be started: {problem.strerror}", hint=OUR_LIMITS) from None


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """The result of a call, or TimeoutError. libtmux waits for ever, and a pass must not."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as problem:
            future.set_exception(problem)

    Thread(target=work, name="tmux", daemon=True).start()
    return future.result(seconds)


def _tmux() -> str:
    found = shutil.which("tmux")
    if found is None:
        raise ObserveError("tmux is not installed", hint=NOT_INSTALLED)
    return found


def _pane(line: str) -> Pane:
    pane, session, pid, dead, status, number, owner, replica, name = line.split("|", len(_FIELDS) - 1)
    # Any client may set options: what we could not have written is no mark.
    ours = owner.count("/") == 2 and replica.isdigit()
    mark = (owner, int(replica)) if ours else ("", 0)
    return Pane(pane, session, int(pid), dead == "1", status, number, *mark, name)


def quoted(argument: str) -> bytes:
    """One argument in the grammar of tmux commands, with all but plain characters as octal numbers."""
    raw = os.fsencode(argument)
    if _PLAIN.fullmatch(raw):
        return raw
    return b'"' + _SPECIAL.sub(lambda found: b"\\%03o" % found[0][0], raw) + b'"'
