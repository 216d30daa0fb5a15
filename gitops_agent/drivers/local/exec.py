"""Runs a command as an agent: exec probes and hooks. Its environment and workdir, a time limit, an output cap.

Its output is shown to people and pushed to Git, and the command holds the agent's secrets: they are hidden here,
where they are known.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gitops_agent.drivers.api import ExecResult
from gitops_agent.support.secrets import OutputMask

OUTPUT_CAP_BYTES = 4096
MIN_POLL_SECONDS = 0.001
MAX_POLL_SECONDS = 0.05


class RunningCommands:
    """The commands under way, by their process groups, so that none outlives us: nothing would end it in time,
    and nothing would record how it ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._closed = False

    def add(self, group: int) -> None:
        """Note that a command began; at once at its end if all were ended meanwhile."""
        with self._lock:
            self._groups.add(group)
        if self._closed:
            self.end_all()

    def end(self, group: int) -> None:
        """Kill what is left of a command. To be called before it is waited for: until then the number of its
        group cannot be reused."""
        with self._lock, suppress(ProcessLookupError):
            self._groups.discard(group)
            os.killpg(group, signal.SIGKILL)

    def end_all(self) -> None:
        """Kill every command that is under way."""
        self._closed = True
        for group in tuple(self._groups):
            with self._lock, suppress(ProcessLookupError):
                if group in self._groups:
                    os.killpg(group, signal.SIGKILL)


def run(
    command: Sequence[str],
    workdir: str,
    environment: Mapping[str, str],
    timeout: float,
    mask: OutputMask,
    running: RunningCommands,
) -> ExecResult:
    """Run a command; how it ended, its output masked."""
    try:
        # A group of its own, not a session: a marked session leader would look like one more replica.
        child = subprocess.Popen(
            command,
            cwd=workdir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    except (OSError, ValueError) as problem:
        return ExecResult(False, f"{command[0]!r} did not start: {_why(problem, workdir)}", started=False)
    running.add(child.pid)
    return _attend(child, timeout, mask, running)


def _why(problem: OSError | ValueError, workdir: str) -> str:
    """What kept a command from starting. The kernel reports "No such file" for a missing folder as well."""
    if not isinstance(problem, OSError):
        return "not a valid command"
    if not os.path.isdir(workdir):  # noqa: PTH112 - the path comes from a document
        return f"runtime.workdir {workdir} is not a folder; create it, or correct runtime.workdir"
    return problem.strerror or str(problem)


def _attend(
    child: subprocess.Popen[bytes], timeout: float, mask: OutputMask, running: RunningCommands
) -> ExecResult:
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    try:
        # A secret across the cut is read to its end, or it would not be recognised.
        deadline, cap = time.monotonic() + timeout, OUTPUT_CAP_BYTES + mask.longest
        output, ended = _listen(child, child.stdout.fileno(), deadline, cap)
    finally:
        running.end(child.pid)
        code = child.wait()
        child.stdout.close()
    shown = mask.hide(output, OUTPUT_CAP_BYTES).decode("utf-8", "replace")
    text = "".join(c if c.isprintable() else " " for c in shown).strip()
    tail = f": {text}" if text else ""
    if not ended:
        return ExecResult(False, f"no answer within {timeout:g} s{tail}", ended=False)
    return ExecResult(code == 0, f"exit code {code}{tail}")


def _listen(child: subprocess.Popen[bytes], pipe: int, deadline: float, cap: int) -> tuple[bytes, bool]:
    """Its output up to the cap, and whether it ended in time; the rest of the output is dropped.
    What ends closes its pipe, which wakes us; a descendant that keeps the pipe is not waited for."""
    output, pause = b"", MIN_POLL_SECONDS
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        ready = poller.poll(min(left, pause) * 1000)
        chunk = _read(pipe) if ready else None
        output = (output + (chunk or b""))[:cap]
        if chunk == b"":
            poller.unregister(pipe)
        # Not collected: until then the number of its group cannot be reused.
        if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return (output + (_read(pipe) or b""))[:cap], True
        pause = MIN_POLL_SECONDS if ready else min(2 * pause, MAX_POLL_SECONDS)
    return output, False


def _read(pipe: int) -> bytes | None:
    try:
        return os.read(pipe, 65536)
    except BlockingIOError:
        return None
