"""Makes the process table as an action desires: stops what is wrong and starts what is missing, one by one."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from functools import partial

from gitops_agent.drivers.local.agent_dir import remove
from gitops_agent.drivers.local.handle import Handle, Known, decode, encode
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica, tree
from gitops_agent.drivers.local.procfs import ProcessInfo, this_host
from gitops_agent.drivers.process.assess import Sight
from gitops_agent.drivers.process.context import ProcessContext
from gitops_agent.drivers.process.observe import IN_THE_WAY, ProcessObserver
from gitops_agent.drivers.process.spec import Desired
from gitops_agent.drivers.process.start import Starter
from gitops_agent.drivers.process.stop import end_tree, send_group
from gitops_agent.errors import ApplyError, ObserveError
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action, Verb

FALLBACK = (signal.SIGTERM, 10.0)


class ProcessApplier:
    """The writing part of the process driver."""

    def __init__(self, kit: ProcessContext, observer: ProcessObserver, starter: Starter) -> None:
        self._place = kit.place
        self._table = kit.table
        self._roster = kit.roster
        self._memory = kit.memory
        self._logs = kit.logs
        self._observer = observer
        self._starter = starter

    def unchanged(self, action: Action) -> bool:
        """Whether the replicas are still as planned."""
        handle = decode(action.handle)
        # Without a base it is the desired command that something foreign may already run.
        return self._observer.fields(action.key.agent, action.base, handle, action.desired) == action.live

    def apply(self, action: Action, intent: str) -> Applied:  # noqa: ARG002 - the marks make it idempotent
        """Converge one agent under its lock."""
        agent = action.key.agent
        try:
            with self._place.locked(agent):
                return self._apply(action, _Job(agent, action, decode(action.handle).here(this_host())))
        except ObserveError as problem:
            raise ApplyError(problem.message, hint=problem.hint) from None
        except OSError as problem:
            raise ApplyError(
                f"{action.key}: cannot use {self._place.folder(agent)}: {problem.strerror or problem}",
                hint="make room and make sure that the state directory is a folder only we write to",
            ) from None

    def _apply(self, action: Action, job: _Job) -> Applied:
        wanted = Desired.of(action.desired) if action.desired is not None else None
        self._end_foreign(job)
        if action.verb in (Verb.STOP, Verb.DELETE) or wanted is None or wanted.replicas == 0:
            return self._end_all(job)
        started, stopped = self._converge(job, wanted)
        replicas = self._current(job, wanted)
        self._roster.watch(job.agent, wanted, replicas)
        return Applied(_summary(started, stopped), encode(this_host(), replicas))

    def _converge(self, job: _Job, wanted: Desired) -> tuple[list[Known], list[Replica]]:
        """Rolling: one replica is down at a time. What was started, what was stopped."""
        sight = self._observer.sight(job.agent, wanted, self._census(job))
        doomed = job.doomed(sight, wanted)
        stopped = [*sight.extra, *(r for r in sight.replicas if r.number >= wanted.replicas)]
        for replica in stopped:
            self._end(job, replica)
        started: list[Known] = []
        present = {replica.number: replica for replica in sight.replicas}
        for number in range(wanted.replicas):
            old = present.get(number)
            if old is not None and old.proc.pid not in doomed:
                self._keep(job.agent, old, wanted)
                continue
            if old is not None:
                # A spec that cannot start must not cost us one that runs.
                self._starter.check(job.agent, wanted, number)
                self._end(job, old)
                stopped.append(old)
            started.extend(self._start(job, wanted, number))
        return started, stopped

    def _start(self, job: _Job, wanted: Desired, number: int) -> list[Known]:
        # One more sweep under the lock: whatever died between a fork and its record left a marked process.
        twins = [r for r in self._census(job).ours.get(job.agent, ()) if r.number == number]
        if twins:
            return []
        known = self._starter.start(job.agent, wanted, number)
        self._memory.limit(job.agent, known, wanted.memory_limit)
        watched = self._roster.get(job.agent)
        others = [other for other in (watched.replicas if watched else ()) if other.number != number]
        self._roster.watch(job.agent, wanted, sorted([*others, known]))
        return [known]

    def _keep(self, agent: AgentKey, replica: Replica, wanted: Desired) -> None:
        self._logs.rotate(agent, replica.number)
        self._memory.limit(agent, replica.record, wanted.memory_limit)
        if replica.proc.suspended:
            send_group(replica.proc, signal.SIGCONT, self._table)

    def _current(self, job: _Job, wanted: Desired) -> list[Known]:
        sight = self._observer.sight(job.agent, wanted, self._census(job))
        alive = {r.number: r.record for r in sight.replicas if r.number < wanted.replicas}
        # One that ended at once stays on record: how it ended is the next observation's to tell.
        watched = self._roster.get(job.agent)
        for known in watched.replicas if watched else ():
            if known.number < wanted.replicas:
                alive.setdefault(known.number, known)
        return sorted(alive.values())

    def _end_all(self, job: _Job) -> Applied:
        sight = self._observer.sight(job.agent, None, self._census(job))
        self._roster.forget(job.agent)
        for replica in sight.all:
            self._end(job, replica)
        self._forget_heartbeats(job.agent, (replica.number for replica in sight.all))
        return Applied(_summary([], sight.all), encode(this_host(), ()))

    def _end(self, job: _Job, replica: Replica) -> None:
        self._unwatch(replica)
        sight = self._observer.sight(job.agent, None, self._census(job))
        peers = {peer.proc.pid for peer in sight.all} - {replica.proc.pid}
        members = partial(self._tree, job, replica, peers)
        left = end_tree(replica.proc, members, job.how, self._table, self._roster.reap)
        self._memory.release(job.agent, replica.number)
        _refuse(job.action, left)

    def _tree(self, job: _Job, replica: Replica, peers: set[int]) -> Iterable[ProcessInfo]:
        census = self._census(job)
        others = [other for other in census.ours.get(job.agent, ()) if other.proc.pid in peers]
        return tree(replica, others, census)

    def _end_foreign(self, job: _Job) -> None:
        """Only an action that Git allowed by ``adopt`` gets here with something foreign in its way."""
        if job.action.live != IN_THE_WAY:
            return
        for known in job.handle.foreign:
            proc = self._table.one(known.pid)
            if proc is None or proc.start != known.start:
                continue
            replica = Replica(job.agent, known.number, known.spec, proc, known=False)
            members = partial(self._unmarked_tree, replica)
            _refuse(job.action, end_tree(proc, members, job.how, self._table, self._roster.reap))

    def _unmarked_tree(self, replica: Replica) -> Iterable[ProcessInfo]:
        return tree(replica, (), ProcessTree(self._table.sweep(), {}, {}, {}))

    def _census(self, job: _Job) -> ProcessTree:
        return self._observer.census({job.agent: job.handle})

    def _unwatch(self, replica: Replica) -> None:
        """So that the watcher does not report an exit we asked for."""
        watched = self._roster.get(replica.agent)
        if watched is not None:
            rest = [known for known in watched.replicas if known.pid != replica.proc.pid]
            self._roster.watch(replica.agent, watched.desired, rest)

    def _forget_heartbeats(self, agent: AgentKey, replicas: Iterable[int]) -> None:
        """A courtesy, as every start does it again: what an agent put in place of a file keeps nothing alive."""
        try:
            with self._place.opened(agent) as folder:
                for replica in replicas:
                    remove(folder, self._place.heartbeat(agent, replica).name)
        except OSError:
            pass


class _Job:
    """One action on one agent, while it is being done."""

    def __init__(self, agent: AgentKey, action: Action, handle: Handle) -> None:
        self.agent = agent
        self.action = action
        self.handle = handle
        self.how = _manner(action.base) or _manner(action.desired) or FALLBACK

    def doomed(self, sight: Sight, wanted: Desired) -> set[int]:
        """The replicas to be replaced; a restart with none at fault means those that ran when it was planned."""
        wrong = {replica.proc.pid for replica in sight.replicas if replica.spec != wanted.spec}
        wrong |= sight.faults.keys()
        if self.action.verb is Verb.RESTART and not wrong:
            planned = {(known.pid, known.start) for known in self.handle.replicas}
            wrong = {r.proc.pid for r in sight.replicas if (r.proc.pid, r.proc.start) in planned}
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


def _summary(started: Iterable[Known], stopped: Iterable[Replica]) -> str:
    begun = ", ".join(f"{known.number} (pid {known.pid})" for known in started)
    ended = ", ".join(f"{replica.number} (pid {replica.proc.pid})" for replica in stopped)
    parts = [f"stopped replica {ended}" if ended else "", f"started replica {begun}" if begun else ""]
    return ", ".join(part for part in parts if part) or "nothing to do"
