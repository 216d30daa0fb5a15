"""A sweep sorted: replicas of ours, their trees, and what carries the mark of another instance. Pure.

A replica is a marked session leader without an ancestor of the same mark, or a process that our handle names by
pid and start time. Everything else that is marked is the tree of a replica (tools, MCP servers) and never drift.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gitops_agent.drivers.local.handle import Handle, ReplicaHandle
from gitops_agent.drivers.local.marks import UNNAMED_DRIVER
from gitops_agent.drivers.local.procfs import ProcessInfo, Table
from gitops_agent.model.key import AgentKey


class Replica(NamedTuple):
    """One live replica. ``known``: we have it on record; otherwise it was found by its marks alone."""

    agent: AgentKey
    number: int
    spec: str
    proc: ProcessInfo
    known: bool

    @property
    def record(self) -> ReplicaHandle:
        """How the handle keeps it."""
        return ReplicaHandle(self.number, self.proc.pid, self.proc.start, self.spec)


@dataclass(frozen=True)
class ProcessTree:
    """The marked part of the process table, by agent.
    ``unsupervised``: pids of replicas that run outside of what they were started in (``Launcher``)."""

    table: Table
    ours: Mapping[AgentKey, tuple[Replica, ...]]
    others: Mapping[AgentKey, Sequence[ProcessInfo]]
    marked: Mapping[AgentKey, Sequence[ProcessInfo]]
    unsupervised: frozenset[int] = frozenset()

    @cached_property
    def kin(self) -> Mapping[int, Sequence[int]]:
        """For each pid the processes it leads as a session, and its children."""
        found: dict[int, list[int]] = defaultdict(list)
        for proc in self.table.values():
            for above in {proc.ppid, proc.session} - {proc.pid}:
                found[above].append(proc.pid)
        return found

    def below(self, top: int) -> set[int]:
        """A process, its session and all descendants of those."""
        members: set[int] = set()
        waiting = [top]
        while waiting:
            pid = waiting.pop()
            if pid not in members:
                members.add(pid)
                waiting.extend(self.kin.get(pid, ()))
        return members


def build_tree(
    table: Table, instance: str, handle: Mapping[AgentKey, Handle], driver: str = UNNAMED_DRIVER
) -> ProcessTree:
    """Sort a sweep by the marks of one driver; the handles must be of this boot of this machine."""
    marked: dict[AgentKey, list[ProcessInfo]] = defaultdict(list)
    others: dict[AgentKey, list[ProcessInfo]] = defaultdict(list)
    for proc in table.values():
        if proc.marks is None or not proc.alive or proc.marks.driver != driver:
            continue
        if proc.marks.instance == instance:
            marked[proc.marks.agent].append(proc)
        elif is_leader(proc, table):
            others[proc.marks.agent].append(proc)
    agents = marked.keys() | handle.keys()
    ours = {agent: _replicas(agent, table, marked.get(agent, ()), handle.get(agent)) for agent in agents}
    return ProcessTree(table, {agent: replicas for agent, replicas in ours.items() if replicas}, others, marked)


def is_leader(proc: ProcessInfo, table: Table) -> bool:
    """Whether a marked process leads a session and no process above it carries the same owner."""
    if proc.session != proc.pid or proc.marks is None:
        return False
    owner = proc.marks[:2]
    return not any(above.marks and above.marks[:2] == owner for above in ancestors(proc, table))


def ancestors(proc: ProcessInfo, table: Table) -> Iterable[ProcessInfo]:
    """The processes above one, nearest first."""
    seen = {proc.pid}
    above = table.get(proc.ppid)
    while above is not None and above.pid not in seen:
        yield above
        seen.add(above.pid)
        above = table.get(above.ppid)


def _replicas(
    agent: AgentKey, table: Table, marked: Iterable[ProcessInfo], handle: Handle | None
) -> tuple[Replica, ...]:
    found: dict[int, Replica] = {}
    for known in handle.replicas if handle else ():
        proc = table.get(known.pid)
        if proc is not None and proc.start == known.start and proc.alive:
            found[proc.pid] = Replica(agent, known.number, known.spec, proc, known=True)
    for proc in marked:
        if proc.pid not in found and proc.marks is not None and is_leader(proc, table):
            found[proc.pid] = Replica(agent, proc.marks.replica, proc.marks.spec, proc, known=False)
    return tuple(sorted(found.values(), key=lambda r: (r.number, not r.known, r.proc.start, r.proc.pid)))


def split_extras(
    replicas: Iterable[Replica], command_line: Callable[[int], tuple[str, ...]]
) -> tuple[tuple[Replica, ...], tuple[Replica, ...]]:
    """The one replica of each index, and the extra ones.
    Of two with one index the recorded one counts, else the older. Another is extra only if it runs the same
    command: a tool that made itself a daemon leads a session too, and belongs to the tree."""
    first: dict[int, Replica] = {}
    extra = []
    for replica in replicas:
        senior = first.setdefault(replica.number, replica)
        if senior is not replica and command_line(senior.proc.pid) == command_line(replica.proc.pid):
            extra.append(replica)
    return tuple(first.values()), tuple(extra)


def tree_of(replica: Replica, peers: Iterable[Replica], tree: ProcessTree) -> tuple[ProcessInfo, ...]:
    """A replica and everything that belongs to it: its session, its descendants, and marked ones that escaped.
    ``peers`` are the real replicas of the same agent: what is theirs is left alone."""
    peers = [peer for peer in peers if peer.proc.pid != replica.proc.pid]
    members = tree.below(replica.proc.pid)
    if all(peer.number != replica.number for peer in peers):
        taken = {pid for peer in peers for pid in tree.below(peer.proc.pid)}
        for proc in tree.marked.get(replica.agent, ()):
            if proc.marks and proc.marks.replica == replica.number and proc.pid not in taken:
                members |= tree.below(proc.pid)
    found = (tree.table.get(pid) for pid in sorted(members))
    return tuple(proc for proc in found if proc is not None and proc.alive)
