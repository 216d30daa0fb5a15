"""What this process remembers of the agents it looks after: shared by observe, apply, watch and exec.

It is a memory, not a record: everything in it can be found again by looking.
"""

import os
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gitops_agent.drivers.local.handle import Handle, ReplicaHandle
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.model.key import AgentKey


class ExitStatus(NamedTuple):
    """How a replica ended."""

    pid: int
    replica: int
    status: int  # as os.waitstatus_to_exitcode gives it: negative is a signal
    at: float


class _Child(NamedTuple):
    """A child of ours that only we may collect: the runner of a replica. ``main``: the agent's own process."""

    agent: AgentKey
    replica: int
    main: int


class WatchedAgent(NamedTuple):
    """One agent under watch: what it should be, and the replicas it has."""

    desired: Desired
    replicas: tuple[ReplicaHandle, ...]


class ReplicaRegistry:
    """Thread-safe memory of agents, of our children among their processes, and of how those ended."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.RLock()
        self._watched: dict[AgentKey, WatchedAgent] = {}
        self._children: dict[int, _Child] = {}
        self._exits: dict[AgentKey, ExitStatus] = {}
        self.changed: Callable[[], None] = lambda: None

    def watch(self, agent: AgentKey, desired: Desired, replicas: Iterable[ReplicaHandle]) -> None:
        """Remember what an agent should be and which replicas it has."""
        watched = WatchedAgent(desired, tuple(replicas))
        with self._lock:
            if self._watched.get(agent) == watched:
                return
            self._watched[agent] = watched
        self.changed()

    def forget(self, agent: AgentKey) -> None:
        """Stop looking after an agent."""
        with self._lock:
            gone = self._watched.pop(agent, None)
        if gone is not None:
            self.changed()

    def watched(self) -> dict[AgentKey, WatchedAgent]:
        """A copy of every agent under watch."""
        with self._lock:
            return dict(self._watched)

    def get(self, agent: AgentKey) -> WatchedAgent | None:
        """One agent under watch."""
        return self._watched.get(agent)

    def replicas(self, agent: AgentKey) -> tuple[ReplicaHandle, ...]:
        """The replicas that an agent under watch has."""
        watched = self.get(agent)
        return watched.replicas if watched is not None else ()

    def unwatch(self, agent: AgentKey, pid: int) -> None:
        """Forget one replica, so that an end we ask for is not reported."""
        watched = self.get(agent)
        if watched is not None:
            self.watch(agent, watched.desired, [known for known in watched.replicas if known.pid != pid])

    def merge(self, agent: AgentKey, handle: Handle) -> Handle:
        """Handle of the journal together with what we started since: both are on record."""
        started = self.replicas(agent)
        return handle._replace(replicas=tuple(dict.fromkeys((*handle.replicas, *started)))) if started else handle

    def adopt_child(self, pid: int, agent: AgentKey, replica: int, main: int) -> None:
        """A child of ours that only we may reap; it ends as the agent's own process ``main`` did."""
        with self._lock:
            self._children[pid] = _Child(agent, replica, main)

    def reap(self) -> None:
        """Collect children that ended, and remember how."""
        with self._lock:
            for pid in tuple(self._children):
                try:
                    done, status = os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    del self._children[pid]  # collected elsewhere: how it ended is lost
                    continue
                if done:
                    agent, replica, main = self._children.pop(pid)
                    code = os.waitstatus_to_exitcode(status)
                    self._note_exit(agent, ExitStatus(main, replica, code, self._now()))

    def record_exit(self, agent: AgentKey, status: ExitStatus) -> None:
        """Remember how a replica ended that was no child of ours. One that is known keeps its time."""
        with self._lock:
            self._note_exit(agent, status)

    def _note_exit(self, agent: AgentKey, status: ExitStatus) -> None:
        known = self._exits.get(agent)
        if known is None or (known.pid, known.replica) != (status.pid, status.replica):
            self._exits[agent] = status

    def last_exit(self, agent: AgentKey) -> ExitStatus | None:
        """How a replica of this agent last ended, as far as it could be seen."""
        return self._exits.get(agent)
