"""Signs of change between two observations: an agent was suspended or resumed, its bundle was edited, or its
heartbeat moves on after it was stuck.

Each is an event in the folder of the agent: the bundle and the heartbeats are there, and the runner touches it
when the agent is suspended or resumed. An event only says where to look. An agent is looked at once a second at
most, so that one that writes without a pause costs little. Those whose folder cannot be watched, or whose
runner is gone or of an earlier version, are looked at with every poll.
"""

import errno
import os
import selectors
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

import structlog

from gitops_agent.drivers.local.agent_dir import (
    BUNDLE,
    BUNDLE_CAP_BYTES,
    AgentDir,
    is_bundle_or_heartbeat,
    read_regular,
)
from gitops_agent.drivers.local.folder_events import FolderEvents
from gitops_agent.drivers.local.handle import ReplicaHandle
from gitops_agent.drivers.local.heartbeat_file import read_heartbeat
from gitops_agent.drivers.local.marks import RUNNER_VERSION, variables
from gitops_agent.drivers.local.procfs import Identity, ProcessTable
from gitops_agent.drivers.local.registry import WatchedAgent
from gitops_agent.drivers.local.runner import RUNNER
from gitops_agent.drivers.local.spec import HeartbeatLimits
from gitops_agent.errors import ObserveError
from gitops_agent.model.key import AgentKey

log = structlog.get_logger(__name__)

REST_SECONDS = 1.0
"""Between two looks at one agent because of events."""
SETTLED_SECONDS = 5.0
"""After which what a bundle says is taken for what it should say: an edit is put right, or held, before."""
_NO_MORE_EVENTS = {errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSYS}
HINT = "raise fs.inotify.max_user_watches and max_user_instances"

Sign = tuple[AgentKey, str]
_Stamp = tuple[int, int, int, int] | None


class _Bundle(NamedTuple):
    """What was last seen of a bundle, and since when. ``settled``: the checksum of what it held before, for long
    enough to be what it should hold: it is no news when it holds that again."""

    stamp: _Stamp
    checksum: int
    since: float = float("-inf")
    settled: int = 0

    @classmethod
    def at(cls, dirs: AgentDir, agent: AgentKey) -> "_Bundle":
        """The bundle as it is. The agent may have put anything in its place: that is never waited for."""
        stamp = _stamp(dirs.config(agent))
        try:
            with dirs.opened(agent) as folder:
                return cls(stamp, crc32(read_regular(BUNDLE, BUNDLE_CAP_BYTES, folder)[0]))
        except OSError:
            return cls(stamp, 0)


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
        self._events: FolderEvents | None = None
        self._is_short = False
        self._watched: Mapping[AgentKey, WatchedAgent] = {}
        self._touched: set[AgentKey] = set()
        self._announced: set[AgentKey] = set()
        self._looked_at: dict[AgentKey, float] = {}
        self._suspended: set[Identity] = set()
        self._told: dict[ReplicaHandle, bool] = {}
        self._untold: set[AgentKey] = set()
        self._bundles: dict[AgentKey, _Bundle] = {}
        self._beats: dict[Identity, _Beat] = {}

    def open(self, selector: selectors.BaseSelector) -> None:
        """Begin to watch. What happens makes ``selector`` ready, with this object as its data."""
        try:
            self._events = FolderEvents(self._dirs)
        except OSError as problem:
            self._report_shortage(problem)
        self.listen(selector)

    def listen(self, selector: selectors.BaseSelector) -> None:
        """Have the next event make the selector ready."""
        if self._events is None or self._events.descriptor in selector.get_map():
            return
        try:
            selector.register(self._events.descriptor, selectors.EVENT_READ, self)
        except OSError as problem:  # without events: all agents are looked at with every poll
            self._report_shortage(problem)
            self.close()

    def close(self) -> None:
        """End all watches."""
        if self._events is not None:
            self._events.close()
            self._events = None
        self._touched.clear()

    def follow(self, watched: Mapping[AgentKey, WatchedAgent]) -> None:
        """Watch exactly these agents from now on. The bundle of a new one is taken as it is: it was observed just
        now."""
        for agent in self._watched.keys() - watched.keys():
            self._forget(agent)
        # What happened to a replica before it was known as one is seen by a look.
        self._touched |= {agent for agent, each in watched.items() if self._watched.get(agent) != each}
        self._watched = watched
        self._find_untold()
        there = {known.identity for each in watched.values() for known in each.replicas}
        self._suspended &= there
        self._beats = {identity: beat for identity, beat in self._beats.items() if identity in there}
        for agent in watched:
            if agent not in self._bundles:
                self._bundles[agent] = _Bundle.at(self._dirs, agent)
            if self._events is not None and agent not in self._events:
                self._watch(agent, self._events)

    def gather(self) -> None:
        """Remember which agents have events."""
        for agent, name in self._events.read() if self._events is not None else ():
            if agent is None:
                self._touched.update(self._watched)
            elif not name or is_bundle_or_heartbeat(name):
                self._touched.add(agent)
                if not name:
                    self._announced.add(agent)

    @property
    def due(self) -> float:
        """When an agent that has events may be looked at, by the monotonic clock; infinite when none has."""
        rested = (self._looked_at.get(agent, 0.0) + REST_SECONDS for agent in self._touched)
        return min(rested, default=float("inf"))

    def look_at_touched(self, now: float) -> Iterator[Sign]:
        """What changed about the agents that have events and were not looked at within the last second."""
        for agent in [each for each in self._touched if self._looked_at.get(each, 0.0) + REST_SECONDS <= now]:
            self._touched.remove(agent)
            self._looked_at[agent] = now
            yield from self._look(agent, now)

    def look_at_unwatched(self, now: float) -> Iterator[Sign]:
        """What changed about the agents that give no events."""
        for agent in self._watched:
            if self._events is None or agent not in self._events or agent in self._untold:
                yield from self._look(agent, now)

    def _look(self, agent: AgentKey, now: float) -> Iterator[Sign]:
        """What changed since the last look; ``now`` is by the monotonic clock. The first look at a heartbeat is no
        news: what was there before is for the observations."""
        if (watched := self._watched.get(agent)) is None:
            return
        is_announced = agent in self._announced
        self._announced.discard(agent)
        if self._is_edited(agent, now):
            yield agent, "BundleChanged"
        for known in watched.replicas:
            if (word := self._suspension(known, is_announced)) is not None:
                yield agent, word
            limits = watched.desired.heartbeat
            if limits is not None and self._moves_on(agent, known, limits, now):
                yield agent, "HeartbeatWritten"

    def _find_untold(self) -> None:
        """Find the agents whose suspension no runner tells of: it is gone, or of an earlier version."""
        replicas = [(agent, known) for agent, each in self._watched.items() for known in each.replicas]
        told = self._told
        self._told = {known: told[known] if known in told else self._tells(known.runner) for _, known in replicas}
        self._untold = {
            agent for agent, known in replicas if not (self._told[known] and self._table.exists(known.runner))
        }

    def _tells(self, runner: int) -> bool:
        given = variables(self._table.environ(runner) or b"") if runner else {}
        return given.get(RUNNER) == RUNNER_VERSION

    def _watch(self, agent: AgentKey, events: FolderEvents) -> None:
        try:
            events.add(agent)
        except OSError as problem:
            if problem.errno in _NO_MORE_EVENTS:
                self._report_shortage(problem)
            return  # it has no folder yet: the next poll looks for it
        self._touched.add(agent)  # for what happened before

    def _forget(self, agent: AgentKey) -> None:
        if self._events is not None:
            self._events.remove(agent)
        self._touched.discard(agent)
        self._announced.discard(agent)
        self._bundles.pop(agent, None)
        self._looked_at.pop(agent, None)

    def _report_shortage(self, problem: OSError) -> None:
        if not self._is_short:
            self._is_short = True
            log.warning(
                "no more file events: agents are looked at every few seconds", error=problem.strerror, hint=HINT
            )

    def _is_edited(self, agent: AgentKey, now: float) -> bool:
        """Whether the bundle was written anew, and not put right."""
        known = self._bundles[agent]
        if known.stamp == _stamp(self._dirs.config(agent)):
            return False
        settled = known.checksum if now - known.since >= SETTLED_SECONDS else known.settled
        found = self._bundles[agent] = _Bundle.at(self._dirs, agent)._replace(since=now, settled=settled)
        return found.checksum != settled

    def _suspension(self, known: ReplicaHandle, is_announced: bool) -> str | None:
        """What became of a replica. ``is_announced``: its runner says that something did, so one that is
        still suspended was resumed in between."""
        suspended = self._table.is_suspended(known.pid)
        if suspended == (known.identity in self._suspended):
            return "Suspended" if suspended and is_announced else None
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


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - thousands of these
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
