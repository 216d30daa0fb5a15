"""Sources that are wrong about agents that are alive: the driver, the heartbeats, the probes.

What a driver observes is changed by one of the lies below (``LyingDriver`` takes them); what a probe answers is
changed by a ``LyingExecutor``. Each is wrong about its own subject and leaves the others as they are::

    LyingDriver(driver, says_suspended)
    LyingDriver(driver, hears_until(clock.now()))         # as if nothing had been written since
    LyingExecutor(driver, {"alive": False})               # the command "alive" fails, whatever it would answer
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gitops_agent.drivers.api import (
    AS_IT_RUNS,
    AgentKey,
    Clock,
    ExecResult,
    Executing,
    Heartbeat,
    Kind,
    Observation,
    RunAs,
)
from gitops_agent.testing.faults import Lie

SUSPENDED = "Suspended"


def says_suspended(seen: Sequence[Observation]) -> Sequence[Observation]:
    """A lie of the process table: every runtime is held by a signal."""
    message = "pid 7 is suspended (SIGSTOP)"
    return [
        replace(each, state=SUSPENDED, reason=SUSPENDED, message=message) if _runs(each) else each for each in seen
    ]


def says_running(seen: Sequence[Observation]) -> Sequence[Observation]:
    """A lie of the process table: no runtime is held by a signal."""
    return [
        replace(each, state="Running", reason=None, message="") if each.state == SUSPENDED else each
        for each in seen
    ]


def hears_until(moment: float) -> Lie:
    """A lie about heartbeats: nothing was written since a moment."""
    return lambda seen: [_with_beats(each, moment) for each in seen]


def hears_always(clock: Clock) -> Lie:
    """A lie about heartbeats: one was written just now."""
    return lambda seen: [_with_beats(each, clock.now()) for each in seen]


class LyingExecutor:
    """Answers some commands, named by their first word, without running them."""

    def __init__(self, executing: Executing, lies: Mapping[str, bool]) -> None:
        self._executing = executing
        self._lies = dict(lies)

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """The lie, or else the truth."""
        if command[0] in self._lies:
            ok = self._lies[command[0]]
            return ExecResult(ok, "fine" if ok else "exit code 1")
        return self._executing.exec(agent, command, timeout, how)


def _runs(seen: Observation) -> bool:
    return seen.key.kind == Kind.RUNTIME and seen.fields is not None


def _with_beats(seen: Observation, at: float) -> Observation:
    if not _runs(seen):
        return seen
    return replace(seen, instances=tuple(replace(each, heartbeat=Heartbeat(at)) for each in seen.instances))
