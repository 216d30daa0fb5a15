"""Sources that lie about agents that are alive: the process table, the heartbeats, the probes.

What an observer says is changed by one of the lies below (``LyingObserver`` takes them); what a probe says is
changed by a ``LyingRunner``. Each lies about its own subject and leaves the others as they are::

    LyingObserver(observer, says_suspended)
    LyingObserver(observer, hears_until(clock.now()))     # as if nothing had been written since
    LyingRunner(runner, {"alive": False})                 # the command "alive" fails, whatever it would say
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Heartbeat, Observation
from gitops_agent.ports import AS_IT_RUNS, Clock, ExecResult, RunAs, Runner
from gitops_agent.testing.faults import Lie

SUSPENDED = "Suspended"


def says_suspended(seen: Sequence[Observation]) -> Sequence[Observation]:
    """A lie of the process table: every runtime is held by a signal."""
    said = "pid 7 is suspended (SIGSTOP)"
    return [
        replace(each, state=SUSPENDED, reason=SUSPENDED, message=said) if _runs(each) else each for each in seen
    ]


def says_running(seen: Sequence[Observation]) -> Sequence[Observation]:
    """A lie of the process table: no runtime is held by a signal."""
    return [
        replace(each, state="Running", reason=None, message="") if each.state == SUSPENDED else each
        for each in seen
    ]


def hears_until(moment: float) -> Lie:
    """A lie about heartbeats: nothing was written since a moment."""

    def lie(seen: Sequence[Observation]) -> Sequence[Observation]:
        return [_with_beats(each, moment) if _runs(each) else each for each in seen]

    return lie


def hears_always(clock: Clock) -> Lie:
    """A lie about heartbeats: one was written just now."""

    def lie(seen: Sequence[Observation]) -> Sequence[Observation]:
        return [_with_beats(each, clock.now()) if _runs(each) else each for each in seen]

    return lie


class LyingRunner:
    """A runner that answers some commands, named by their first word, without running them."""

    def __init__(self, runner: Runner, lies: Mapping[str, bool]) -> None:
        self._runner = runner
        self._lies = dict(lies)

    def run(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """The lie, or else the truth."""
        if command[0] in self._lies:
            ok = self._lies[command[0]]
            return ExecResult(ok, "fine" if ok else "exit code 1")
        return self._runner.run(agent, command, timeout, how)


def _runs(seen: Observation) -> bool:
    return seen.key.kind == Kind.RUNTIME and seen.fields is not None


def _with_beats(seen: Observation, at: float) -> Observation:
    replicas = max(1, len(seen.heartbeats))
    return replace(seen, heartbeats=(Heartbeat(at),) * replicas)
