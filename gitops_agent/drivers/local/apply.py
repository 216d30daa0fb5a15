"""Converges the replicas of an agent: ends what is wrong and starts what is missing, one by one."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from functools import partial

from gitops_agent.drivers.local.assess import ReplicaSet
from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.handle import Handle, ReplicaHandle, decode, encode
from gitops_agent.drivers.local.launcher import Launcher
from gitops_agent.drivers.local.observe import IN_THE_WAY, ProcessObserver
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica, tree_of
from gitops_agent.drivers.local.procfs import ProcessInfo, this_host
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.drivers.local.start import Starter
from gitops_agent.drivers.local.stop import end_tree, send_group
from gitops_agent.errors import ApplyError, ObserveError
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action, Verb
from gitops_agent.support.atomic_file import remove_at

FALLBACK = (signal.SIGTERM, 10.0)  # signal and grace in seconds


class ProcessApplier:
    """The writing part of a driver for local processes."""

    def __init__(
        self, context: ProcessContext, observer: ProcessObserver, starter: Starter, launcher: Launcher
    ) -> None:
        self._dirs = context.dirs
        self._table = context.table
        self._registry = context.registry
        self._memory = context.memory
        self._logs = context.logs
        self._observer = observer
        self._starter = starter
        self._launcher = launcher

    def unchanged(self, action: Action) -> bool:
        """Whether the replicas are still as planned."""
        handle = decode(action.handle)
        # Without a base it is the desired command that something foreign may already run.
        return self._observer.fields(action.key.agent, action.base, handle, action.desired) == action.live

    def apply(self, action: Action) -> Applied:
        """Converge one agent; what was started and stopped.

        One writer at a time per agent is the caller's promise: a lane per agent, one process per state directory
        (StateLock), one reconciler per agent and host (leases).
        """
        try:
            return self._apply(action, _Task(action.key.agent, action, decode(action.handle).here(this_host())))
        except ObserveError as problem:
            raise ApplyError(problem.message, hint=problem.hint) from None

    def _apply(self, action: Action, task: _Task) -> Applied:
        wanted = Desired.of(action.desired) if action.desired is not None else None
        self._end_foreign(task)
        if action.verb in (Verb.STOP, Verb.DELETE) or wanted is None or wanted.replicas == 0:
            return self._end_all(task)
        started, stopped = self._converge(task, wanted)
        replicas = self._current(task, wanted)
        self._registry.watch(task.agent, wanted, replicas)
        return Applied(_summary(started, stopped), encode(this_host(), replicas))

    def _converge(self, task: _Task, wanted: Desired) -> tuple[list[ReplicaHandle], list[Replica]]:
        """Rolling: one replica is down at a time. What was started, what was stopped."""
        tree = self._observer.supervised_tree({task.agent: task.handle})
        replica_set = self._observer.replica_set(task.agent, wanted, tree)
        replaced = task.to_replace(replica_set, wanted)
        stopped = [*replica_set.extra, *(r for r in replica_set.replicas if r.number >= wanted.replicas)]
        for replica in stopped:
            self._end(task, replica)
        self._launcher.release(task.agent, wanted.replicas)
        started: list[ReplicaHandle] = []
        present = {replica.number: replica for replica in replica_set.replicas}
        for number in range(wanted.replicas):
            old = present.get(number)
            if old is not None and old.proc.pid not in replaced:
                self._keep(task.agent, old, wanted)
                continue
            if old is not None:
                # A spec that cannot start must not cost us one that runs.
                self._starter.check(task.agent, wanted, number)
                self._end(task, old)
                stopped.append(old)
            started.extend(self._start(task, wanted, number))
        return started, stopped

    def _start(self, task: _Task, wanted: Desired, number: int) -> list[ReplicaHandle]:
        # One more sweep: a kill between a fork and its record left a marked process.
        twins = [r for r in self._process_tree(task).ours.get(task.agent, ()) if r.number == number]
        if twins:
            return []
        known = self._starter.start(task.agent, wanted, number)
        self._memory.limit(task.agent, known, wanted.memory_limit)
        watched = self._registry.get(task.agent)
        others = [other for other in (watched.replicas if watched else ()) if other.number != number]
        self._registry.watch(task.agent, wanted, sorted([*others, known]))
        return [known]

    def _keep(self, agent: AgentKey, replica: Replica, wanted: Desired) -> None:
        self._logs.rotate(agent, replica.number)
        self._memory.limit(agent, replica.record, wanted.memory_limit)
        if replica.proc.suspended:
            send_group(replica.proc, signal.SIGCONT, self._table)

    def _current(self, task: _Task, wanted: Desired) -> list[ReplicaHandle]:
        replica_set = self._observer.replica_set(task.agent, wanted, self._process_tree(task))
        alive = {r.number: r.record for r in replica_set.replicas if r.number < wanted.replicas}
        # One that ended at once stays on record: how it ended is part of the next observation.
        watched = self._registry.get(task.agent)
        for known in watched.replicas if watched else ():
            if known.number < wanted.replicas:
                alive.setdefault(known.number, known)
        return sorted(alive.values())

    def _end_all(self, task: _Task) -> Applied:
        replica_set = self._observer.replica_set(task.agent, None, self._process_tree(task))
        self._registry.forget(task.agent)
        for replica in replica_set.all:
            self._end(task, replica)
        self._launcher.release(task.agent, 0)
        self._forget_heartbeats(task.agent, (replica.number for replica in replica_set.all))
        return Applied(_summary([], replica_set.all), encode(this_host(), ()))

    def _end(self, task: _Task, replica: Replica) -> None:
        self._unwatch(replica)
        replica_set = self._observer.replica_set(task.agent, None, self._process_tree(task))
        peers = {peer.proc.pid for peer in replica_set.all} - {replica.proc.pid}
        members = partial(self._tree, task, replica, peers)
        left = end_tree(replica.proc, members, task.how, self._table, self._registry.reap)
        self._memory.release(task.agent, replica.number)
        _refuse(task.action, left)

    def _tree(self, task: _Task, replica: Replica, peers: set[int]) -> Iterable[ProcessInfo]:
        tree = self._process_tree(task)
        others = [other for other in tree.ours.get(task.agent, ()) if other.proc.pid in peers]
        return tree_of(replica, others, tree)

    def _end_foreign(self, task: _Task) -> None:
        """Only an action that Git allowed by ``adopt`` gets here with something foreign in its way."""
        if task.action.live != IN_THE_WAY:
            return
        for known in task.handle.foreign:
            proc = self._table.one(known.pid)
            if proc is None or proc.start != known.start:
                continue
            replica = Replica(task.agent, known.number, known.spec, proc, known=False)
            members = partial(self._unmarked_tree, replica)
            _refuse(task.action, end_tree(proc, members, task.how, self._table, self._registry.reap))

    def _unmarked_tree(self, replica: Replica) -> Iterable[ProcessInfo]:
        return tree_of(replica, (), ProcessTree(self._table.sweep(), {}, {}, {}))

    def _process_tree(self, task: _Task) -> ProcessTree:
        return self._observer.process_tree({task.agent: task.handle})

    def _unwatch(self, replica: Replica) -> None:
        """So that the watcher does not report an exit we asked for."""
        watched = self._registry.get(replica.agent)
        if watched is not None:
            rest = [known for known in watched.replicas if known.pid != replica.proc.pid]
            self._registry.watch(replica.agent, watched.desired, rest)

    def _forget_heartbeats(self, agent: AgentKey, replicas: Iterable[int]) -> None:
        """A courtesy, as every start does it again: what an agent put in place of a file keeps nothing alive."""
        try:
            with self._dirs.opened(agent) as folder:
                for replica in replicas:
                    remove_at(folder, self._dirs.heartbeat(agent, replica).name)
        except OSError:
            pass


class _Task:
    """One action on one agent, while it is being done."""

    def __init__(self, agent: AgentKey, action: Action, handle: Handle) -> None:
        self.agent = agent
        self.action = action
        self.handle = handle
        self.how = _manner(action.base) or _manner(action.desired) or FALLBACK

    def to_replace(self, replica_set: ReplicaSet, wanted: Desired) -> set[int]:
        """The replicas to be replaced; a restart with none at fault means those that ran when it was planned."""
        wrong = {replica.proc.pid for replica in replica_set.replicas if replica.spec != wanted.spec}
        wrong |= replica_set.faults.keys()
        if self.action.verb is Verb.RESTART and not wrong:
            planned = {(known.pid, known.start) for known in self.handle.replicas}
            wrong = {r.proc.pid for r in replica_set.replicas if (r.proc.pid, r.proc.start) in planned}
        return wrong


def _manner(fields: Fields | None) -> tuple[int, float] | None:
    """How to stop what runs: by the spec it was started with, not by the one to come."""
    if fields is None:
        return None
    known = Desired.of(fields)
    return (signal.Signals[known.signal], known.grace)


def _refuse(action: Action, left: Iterable[ProcessInfo]) -> None:
    pids = ", ".join(str(proc.pid) for proc in left)
    if pids:
        raise ApplyError(
            f"{action.key}: pid {pids} survived SIGKILL",
            hint="see it with ps: it belongs to another user, or hangs in the kernel (a dead network file system)",
        )


def _summary(started: Iterable[ReplicaHandle], stopped: Iterable[Replica]) -> str:
    begun = ", ".join(f"{known.number} (pid {known.pid})" for known in started)
    ended = ", ".join(f"{replica.number} (pid {replica.proc.pid})" for replica in stopped)
    parts = [f"stopped replica {ended}" if ended else "", f"started replica {begun}" if begun else ""]
    return ", ".join(part for part in parts if part) or "nothing to do"
