"""Runs a command as an agent: exec probes and hooks. Its environment and workdir, a time limit, an output cap.

Its output is shown to people and pushed to Git, and the command holds the agent's secrets: they are hidden here,
where they are known.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from gitops_agent.drivers.api import AS_IT_RUNS, ExecResult, RunAs
from gitops_agent.drivers.local.environment import Environment
from gitops_agent.drivers.local.registry import ReplicaRegistry
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.errors import ApplyError
from gitops_agent.model.key import AgentKey
from gitops_agent.support.secrets import OutputMask

OUTPUT_CAP_BYTES = 4096
MAX_POLL_SECONDS = 60.0  # more milliseconds than poll() takes could come of a long timeout
NO_PIDFD_POLL_SECONDS = 0.05  # without a pidfd


class ProcessRunner:
    """Runs commands in an agent's environment."""

    def __init__(self, environment: Environment, registry: ReplicaRegistry) -> None:
        self._environment = environment
        self._registry = registry

    def run(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """Run a command as the agent; how it ended."""
        desired = self._desired(agent, how)
        if desired is None:
            return ExecResult(False, f"{agent} has no process here to run it as", started=False)
        try:
            workdir = self._environment.workdir(agent, desired)
            environment = {**self._environment.build(agent, desired, 0), **how.env}
        except ApplyError as problem:
            return ExecResult(False, problem.message, started=False)
        try:
            child = _spawn(command, workdir, environment)
        except (OSError, ValueError) as problem:
            return ExecResult(False, f"{command[0]!r} did not start: {_why(problem, workdir)}", started=False)
        return _attend(child, timeout, self._environment.mask(desired, environment))

    def _desired(self, agent: AgentKey, how: RunAs) -> Desired | None:
        if how.runtime is not None:
            return Desired.of_runtime(how.runtime)
        watched = self._registry.get(agent)
        return watched.desired if watched is not None else None


def _spawn(command: Sequence[str], workdir: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A group of its own, not a session: a marked session leader would look like one more replica.
    return subprocess.Popen(
        command,
        cwd=workdir,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )


def _why(problem: OSError | ValueError, workdir: str) -> str:
    """What kept a command from starting. The kernel reports "No such file" for a missing folder as well."""
    if not isinstance(problem, OSError):
        return "not a valid command"
    if not os.path.isdir(workdir):  # noqa: PTH112 - the path comes from a document
        return f"runtime.workdir {workdir} is not a folder; create it, or correct runtime.workdir"
    return problem.strerror or str(problem)


def _attend(child: subprocess.Popen[bytes], timeout: float, mask: OutputMask) -> ExecResult:
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    try:
        # A secret across the cut is read to its end, or it would not be recognised.
        deadline, cap = time.monotonic() + timeout, OUTPUT_CAP_BYTES + mask.longest
        output, ended = _listen(child, child.stdout.fileno(), deadline, cap)
    finally:
        # Before the wait: until then the number of the group cannot be reused.
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        code = child.wait()
        child.stdout.close()
    shown = mask.hide(output, OUTPUT_CAP_BYTES).decode("utf-8", "replace")
    text = "".join(c if c.isprintable() else " " for c in shown).strip()
    tail = f": {text}" if text else ""
    if not ended:
        return ExecResult(False, f"no answer within {timeout:g} s{tail}", ended=False)
    return ExecResult(code == 0, f"exit code {code}{tail}")


def _listen(child: subprocess.Popen[bytes], pipe: int, deadline: float, cap: int) -> tuple[bytes, bool]:
    """Its output up to the cap, and whether it ended in time; the rest of the output is dropped."""
    output = b""
    handle = _pidfd(child.pid)
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    if handle is not None:
        poller.register(handle, select.POLLIN)
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready = [
                found
                for found, _ in poller.poll(
                    min(left, MAX_POLL_SECONDS if handle is not None else NO_PIDFD_POLL_SECONDS) * 1000
                )
            ]
            chunk = _read(pipe) if pipe in ready else None
            output = (output + (chunk or b""))[:cap]
            if chunk == b"":
                poller.unregister(pipe)
            if handle in ready or (handle is None and _has_ended(child.pid)):
                return (output + (_read(pipe) or b""))[:cap], True
        return output, False
    finally:
        if handle is not None:
            os.close(handle)


def _read(pipe: int) -> bytes | None:
    try:
        return os.read(pipe, 65536)
    except BlockingIOError:
        return None


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
