"""A sweep sorted: replicas of ours, their trees, and what carries the mark of another instance. Pure.

A replica is, the first that holds: the agent of a marked runner, as the runner's name tells; a process that our
handle names by pid and start time; a marked session leader without an ancestor of the same mark (what an earlier
version started, or lost its runner and our record). Everything else that is below a runner or marked is the tree
of a replica (tools, MCP servers) and never drift. What is left of a replica whose own process has ended is a
replica too, one that is to be ended before the next start; so is what only its control group knows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

from gitops_agent.drivers.local.handle import Handle, ReplicaHandle
from gitops_agent.drivers.local.marks import UNNAMED_DRIVER
from gitops_agent.drivers.local.procfs import ProcessInfo, Table
from gitops_agent.drivers.local.runner import NAME
from gitops_agent.model.key import AgentKey

Grouped = Callable[[AgentKey, int], Iterable[int]]
"""The pids in the control group of a replica."""


class Ended(NamedTuple):
    """How the agent of a runner ended while something is left of it. ``status``: None when that is not known."""

    pid: int
    status: int | None


class Replica(NamedTuple):
    """One live replica. ``proc``: the agent's own process. ``known``: we have it on record; otherwise it was found
    by its marks alone. ``runner``: its parent of ours, while that lives; ``run_by``: the pid of it even then.
    ``ended``: the agent's own process is gone; ``proc`` is then its runner, or the first of what is left."""

    agent: AgentKey
    number: int
    spec: str
    proc: ProcessInfo
    known: bool
    runner: ProcessInfo | None = None
    run_by: int = 0
    ended: Ended | None = None

    @property
    def record(self) -> ReplicaHandle:
        """How the handle keeps it."""
        return ReplicaHandle(self.number, self.proc.pid, self.proc.start, self.spec, self.run_by)

    @property
    def top(self) -> ProcessInfo:
        """The process that all others of the replica are below."""
        return self.runner or self.proc


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
    table: Table,
    instance: str,
    handle: Mapping[AgentKey, Handle],
    driver: str = UNNAMED_DRIVER,
    grouped: Grouped = lambda _agent, _number: (),
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
            others[proc.marks.agent].append(agent_of(proc, table) or proc if proc.marks.runner else proc)
    agents = marked.keys() | handle.keys()
    ours = {
        agent: _replicas(agent, table, marked.get(agent, ()), handle.get(agent), partial(grouped, agent))
        for agent in agents
    }
    return ProcessTree(table, {agent: replicas for agent, replicas in ours.items() if replicas}, others, marked)


def spoken(runner: ProcessInfo) -> Ended | None:
    """What a runner says by its name: its agent, and how that ended. None before it started one."""
    return _said(runner.name)


@lru_cache(65_536)  # of every runner with every observation, and it rarely changes
def _said(name: bytes) -> Ended | None:
    word, _, rest = name.partition(b":")
    pid, _, status = rest.partition(b":")
    if word != NAME.encode() or not pid.isdigit():
        return None
    return Ended(int(pid), int(status) if status.removeprefix(b"-").isdigit() else None)


def agent_of(runner: ProcessInfo, table: Table) -> ProcessInfo | None:
    """The agent that a runner runs; None before it was started and after it ended."""
    said = spoken(runner)
    found = table.get(said.pid) if said is not None else None
    return found if found is not None and found.ppid == runner.pid and found.alive else None


def is_collecting(runner: ProcessInfo, table: Table) -> bool:
    """Whether the agent of a runner has just ended, and the runner has not noticed yet."""
    said = spoken(runner)
    return said is not None and said.status is None and agent_of(runner, table) is None


def is_leader(proc: ProcessInfo, table: Table) -> bool:
    """Whether a marked process leads a session and no process above it carries the same owner."""
    if proc.session != proc.pid or proc.marks is None:
        return False
    owner = proc.marks[:2]
    parent = table.get(proc.ppid)
    if parent is not None and parent.marks is not None and parent.marks[:2] == owner:
        return False  # as every agent below its runner
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
    agent: AgentKey,
    table: Table,
    marked: Iterable[ProcessInfo],
    handle: Handle | None,
    grouped: Callable[[int], Iterable[int]],
) -> tuple[Replica, ...]:
    found: dict[int, Replica] = {}
    recorded = {known.identity: known for known in (handle.replicas if handle else ())}
    leaders = [proc for proc in marked if is_leader(proc, table)]
    for runner in (proc for proc in leaders if proc.marks is not None and proc.marks.runner):
        replica = _run(agent, runner, table)
        found[replica.proc.pid] = replica._replace(known=replica.proc.identity in recorded)
    for known in recorded.values():
        proc = table.get(known.pid)
        same = proc is not None and proc.start == known.start and proc.alive
        if proc is not None and same and not (proc.marks is not None and proc.marks.runner):
            found.setdefault(
                proc.pid, Replica(agent, known.number, known.spec, proc, known=True, run_by=known.runner)
            )
    there = {replica.number for replica in found.values()}
    # Of a replica that had a runner and lost it, the session may hold more than a leader.
    lost = {known.number: known for known in recorded.values() if known.runner and known.number not in there}
    for proc in marked:
        if proc.pid in found or proc.marks is None or proc.marks.runner:
            continue
        past = lost.get(proc.marks.replica)
        run_by = past.runner if past is not None else 0
        if proc in leaders:
            found[proc.pid] = Replica(agent, proc.marks.replica, proc.marks.spec, proc, known=False, run_by=run_by)
        elif past is not None and proc.session in (past.pid, past.runner):
            ended = Ended(past.pid, None)
            found[proc.pid] = Replica(agent, past.number, past.spec, proc, False, None, run_by, ended)
    there = {replica.number for replica in found.values()}
    for past in recorded.values():
        # Neither runner nor marks are left, and the kernel still knows to what it belongs.
        left = [table[pid] for pid in (grouped(past.number) if past.number not in there else ()) if pid in table]
        if proc := min((each for each in left if each.alive), default=None):
            ended = Ended(past.pid, None)
            found[proc.pid] = Replica(agent, past.number, past.spec, proc, False, None, past.runner, ended)
    return tuple(sorted(found.values(), key=_seniority))


def _run(agent: AgentKey, runner: ProcessInfo, table: Table) -> Replica:
    """The replica of a runner: its agent, or what is left of it, or the runner itself until it started one."""
    assert runner.marks is not None
    proc, said = agent_of(runner, table), spoken(runner)
    ended = said if proc is None else None
    number, spec = runner.marks.replica, runner.marks.spec
    return Replica(agent, number, spec, proc or runner, False, runner, runner.pid, ended)


def _seniority(replica: Replica) -> tuple[int, bool, bool, bool, int, int]:
    """Of several with one number the first counts: one that runs, on record, with a runner, the older."""
    over, unknown, alone = replica.ended is not None, not replica.known, replica.runner is None
    return (replica.number, over, unknown, alone, replica.proc.start, replica.proc.pid)


def split_extras(
    replicas: Iterable[Replica], command_line: Callable[[int], tuple[str, ...]]
) -> tuple[tuple[Replica, ...], tuple[Replica, ...]]:
    """The one replica of each index, and the extra ones.
    Of two with one index the recorded one counts, else the older. Another is extra only if it has a runner, or
    runs the same command: a tool that made itself a daemon leads a session too, and belongs to the tree."""
    first: dict[int, Replica] = {}
    extra = []
    for replica in replicas:
        senior = first.setdefault(replica.number, replica)
        if senior is replica:
            continue
        if replica.runner is not None or command_line(senior.proc.pid) == command_line(replica.proc.pid):
            extra.append(replica)
    return tuple(first.values()), tuple(extra)


def tree_of(replica: Replica, peers: Iterable[Replica], tree: ProcessTree) -> tuple[ProcessInfo, ...]:
    """A replica and everything that belongs to it: its session, its descendants, and marked ones that escaped.
    ``peers`` are the real replicas of the same agent: what is theirs is left alone."""
    peers = [peer for peer in peers if peer.proc.pid != replica.proc.pid]
    members = tree.below(replica.top.pid)
    if all(peer.number != replica.number for peer in peers):
        taken = {pid for peer in peers for pid in tree.below(peer.top.pid)}
        for proc in tree.marked.get(replica.agent, ()):
            if proc.marks and proc.marks.replica == replica.number and proc.pid not in taken:
                members |= tree.below(proc.pid)
    found = (tree.table.get(pid) for pid in sorted(members))
    return tuple(proc for proc in found if proc is not None and proc.alive)
