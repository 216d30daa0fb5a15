"""Signs of change between two observations that give no event: an agent was suspended or resumed, its bundle was
edited, or its heartbeat moves on after it was stuck.

They are looked at every few seconds instead: one ``stat`` or one small read each. No event tells of a suspension
where we are not the parent, and an event for every heartbeat of a fleet would cost more than these looks.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.local.handle import ReplicaHandle
from gitops_agent.drivers.local.heartbeat_file import read_heartbeat
from gitops_agent.drivers.local.procfs import Identity, ProcessTable
from gitops_agent.drivers.local.registry import WatchedAgent
from gitops_agent.drivers.local.spec import HeartbeatLimits
from gitops_agent.errors import ObserveError
from gitops_agent.model.key import AgentKey

Sign = tuple[AgentKey, str]
_Stamp = tuple[int, int, int] | None


class _Beat(NamedTuple):
    """The last heartbeat that was seen: which file, and since when turn and calls are as in it."""

    stamp: _Stamp
    seen_at: float
    turn: int | None = None
    turn_since: float = 0.0
    calls: tuple[str, ...] = ()
    calls_since: float = 0.0

    def is_over_limit(self, limits: HeartbeatLimits, now: float) -> bool:
        """Whether the agent was stuck until now by what it wrote, or did not write."""
        calls = bool(self.calls) and now - self.calls_since > limits.max_tool_call
        turn = self.turn is not None and now - self.turn_since > limits.max_turn
        return calls or turn or now - self.seen_at > limits.stale_after


class Signs:
    """Remembers what was seen of each agent under watch, and says what is different."""

    def __init__(self, dirs: AgentDir, table: ProcessTable) -> None:
        self._dirs = dirs
        self._table = table
        self._suspended: set[Identity] = set()
        self._bundles: dict[AgentKey, tuple[_Stamp, int]] = {}
        self._beats: dict[Identity, _Beat] = {}

    def begin(self, agents: Iterable[AgentKey]) -> None:
        """Take the bundles of new agents as they are: they were observed just now."""
        for agent in agents:
            if agent not in self._bundles:
                self._bundles[agent] = _bundle(self._dirs.config(agent))

    def look(self, watched: Mapping[AgentKey, WatchedAgent], now: float) -> Iterator[Sign]:
        """What changed since the last look; ``now`` is by the monotonic clock. The first look at a heartbeat is no
        news: what was there before is for the observations."""
        there = {known.identity for each in watched.values() for known in each.replicas}
        self._suspended &= there
        self._beats = {identity: beat for identity, beat in self._beats.items() if identity in there}
        self._bundles = {agent: known for agent, known in self._bundles.items() if agent in watched}
        for agent, each in watched.items():
            if self._is_edited(agent):
                yield agent, "BundleChanged"
            for known in each.replicas:
                if (word := self._suspension(known)) is not None:
                    yield agent, word
                limits = each.desired.heartbeat
                if limits is not None and self._moves_on(agent, known, limits, now):
                    yield agent, "HeartbeatWritten"

    def _is_edited(self, agent: AgentKey) -> bool:
        """Whether the bundle says something else. Written anew with what it said before (a repair) is no news."""
        path, known = self._dirs.config(agent), self._bundles.get(agent)
        if known is not None and _stamp(path) == known[0]:
            return False
        self._bundles[agent] = _bundle(path)
        return known is not None and self._bundles[agent][1] != known[1]

    def _suspension(self, known: ReplicaHandle) -> str | None:
        suspended = self._table.is_suspended(known.pid)
        if suspended == (known.identity in self._suspended):
            return None
        self._suspended ^= {known.identity}
        return "Suspended" if suspended else "Resumed"

    def _moves_on(self, agent: AgentKey, known: ReplicaHandle, limits: HeartbeatLimits, now: float) -> bool:
        """Whether a heartbeat ends what may have been reported as stuck, or begins what soon will be."""
        stamp = _stamp(self._dirs.heartbeat_file(agent, known.number))
        last = self._beats.get(known.identity)
        if last is not None and last.stamp == stamp:
            return False
        try:
            beat = read_heartbeat(self._dirs, agent, known.number, float("inf"))
        except ObserveError:
            return False  # the next observation reports it
        turn, calls = (beat.turn, beat.pending) if beat is not None else (None, ())
        kept = last or _Beat(None, now)
        self._beats[known.identity] = _Beat(
            stamp,
            now,
            turn,
            kept.turn_since if last is not None and kept.turn == turn else now,
            calls,
            kept.calls_since if last is not None and kept.calls == calls else now,
        )
        opened = bool(calls) and not kept.calls and limits.max_tool_call < limits.stale_after
        return last is not None and (last.is_over_limit(limits, now) or opened)


def _bundle(path: str) -> tuple[_Stamp, int]:
    """The stamp of a bundle, and a checksum of what it says."""
    stamp = _stamp(path)
    try:
        return stamp, crc32(Path(path).read_bytes())
    except OSError:
        return stamp, 0


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - thousands of these
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
