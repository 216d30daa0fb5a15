"""Converges the replicas of an agent in steps: ends what is wrong and starts what is missing, a few at a time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from gitops_agent.drivers.api import Action, AgentKey, Applied, ApplyError, Class, NotYet, ObserveError, Verb
from gitops_agent.drivers.local.assess import FAULTS, ReplicaSet
from gitops_agent.drivers.local.handle import ReplicaHandle, decode, encode
from gitops_agent.drivers.local.observe import IN_THE_WAY, ProcessObserver
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica, tree_of
from gitops_agent.drivers.local.procfs import ProcessInfo, Table, age_of, this_host
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.drivers.local.stop import end_tree, send, send_group
from gitops_agent.support.atomic_file import remove_at

FALLBACK = (int(signal.SIGTERM), 10.0)  # signal and grace in seconds


class ProcessApplier(ProcessObserver):
    """The writing part of a driver for local processes."""

    def unchanged(self, action: Action) -> bool:
        """Whether the replicas are still as planned."""
        agent, handle = action.key.agent, decode(action.handle)
        # Without a base it is the desired command that something foreign may already run.
        found = self._observation(agent, action.base, action.desired, handle, self._sweep({agent: handle}))
        return (found.fields if found is not None else None) == action.live

    def apply(self, action: Action, key: str) -> Applied:  # noqa: ARG002 - the marks make it idempotent
        """Converge one agent; what was started and stopped.
        One writer at a time per agent is the caller's promise: a lane per agent, one process per state directory
        (state_lock), one reconciler per agent and host (leases)."""
        try:
            return self._apply(_Task(action))
        except ObserveError as problem:
            raise ApplyError(problem.message, hint=problem.hint) from None

    def _apply(self, task: _Task) -> Applied:
        desired = task.action.desired
        wanted = Desired.of(desired) if desired is not None else None
        self._end_foreign(task)
        if task.action.verb in (Verb.STOP, Verb.DELETE) or wanted is None or wanted.replicas == 0:
            return self._end_all(task)
        done = self._converge(task, wanted)
        if done.is_idle and done.left and task.records_nothing:
            raise NotYet(f"{task.action.key}: {done.left} to be replaced once its other replicas are Ready")
        replicas = self._current(task, wanted)
        self._registry.watch(task.agent, wanted, replicas)
        return Applied(done.summary, encode(this_host(), replicas))

    def _converge(self, task: _Task, wanted: Desired) -> _Done:
        """One step: what is too many ends, what is missing starts, and of those to be replaced as many as may be
        down at a time. The others follow when core has seen these Ready; what is left can be seen by its marks."""
        tree = self.supervised_tree({task.agent: task.handle})
        replica_set = self.replica_set(task.agent, wanted, tree)
        done = _Done()
        for replica in (*replica_set.extra, *(r for r in replica_set.replicas if r.number >= wanted.replicas)):
            self._end(task, replica)
            done.stopped.append(replica)
        self._launcher.release(task.agent, wanted.replicas)
        present = {replica.number: replica for replica in replica_set.replicas}
        replaced, done.left = task.next_to_replace(replica_set, wanted)
        for number in range(wanted.replicas):
            old = present.get(number)
            if old is not None and old.proc.pid not in replaced:
                if self._keep(old, wanted):
                    done.resumed.append(old)
                continue
            if old is not None:
                # A spec that cannot start must not cost us one that runs.
                self._launcher.check(task.agent, wanted, number)
                self._end(task, old)
                done.stopped.append(old)
            # One more sweep: a kill between a fork and its record left a marked process.
            if all(twin.number != number for twin in self._tree(task).ours.get(task.agent, ())):
                self._end_remains(task, number)
                done.started.append(self._start(task.agent, wanted, number))
        return done

    def _start(self, agent: AgentKey, wanted: Desired, number: int) -> ReplicaHandle:
        known = self._launcher.start(agent, wanted, number)
        self._context.memory.confine(agent, known, wanted.memory_limit)
        others = [other for other in self._registry.replicas(agent) if other.number != number]
        self._registry.watch(agent, wanted, sorted([*others, known]))
        return known

    def _keep(self, replica: Replica, wanted: Desired) -> bool:
        """Look after a replica that stays; whether it was suspended and is resumed."""
        self._context.logs.rotate(replica.agent, replica.number)
        self._context.memory.confine(replica.agent, replica.record, wanted.memory_limit)
        if replica.proc.status != "Suspended":
            return False
        if not send_group(replica.proc, signal.SIGCONT, self._table):
            send(replica.proc, signal.SIGCONT, self._table)
        return True

    def _current(self, task: _Task, wanted: Desired) -> list[ReplicaHandle]:
        live = self.replica_set(task.agent, wanted, self._tree(task)).replicas
        # One that ended at once stays on record: how it ended is part of the next observation.
        running = (replica.record for replica in live if replica.ended is None)
        known = (*self._registry.replicas(task.agent), *running)
        return sorted({each.number: each for each in known if each.number < wanted.replicas}.values())

    def _end_all(self, task: _Task) -> Applied:
        replicas = self.replica_set(task.agent, None, self._tree(task)).all
        self._registry.forget(task.agent)
        for replica in replicas:
            self._end(task, replica)
        self._launcher.release(task.agent, 0)
        # A courtesy, as every start does it again: what an agent put in place of a file keeps nothing alive.
        with suppress(OSError), self._dirs.opened(task.agent) as folder:
            for replica in replicas:
                remove_at(folder, self._dirs.heartbeat(task.agent, replica.number).name)
        return Applied(_Done(stopped=list(replicas)).summary, encode(this_host(), ()))

    def _end(self, task: _Task, replica: Replica) -> None:
        self._registry.unwatch(task.agent, replica.proc.pid)
        replicas = self.replica_set(task.agent, None, self._tree(task)).all
        peers = {peer.proc.pid for peer in replicas} - {replica.proc.pid}

        def members() -> Iterable[ProcessInfo]:
            tree = self._tree(task)
            others = [other for other in tree.ours.get(task.agent, ()) if other.proc.pid in peers]
            group = self._grouped(replica.agent, replica.number, tree.table)
            return {proc.pid: proc for proc in (*tree_of(replica, others, tree), *group)}.values()

        try:
            self._end_tree(task, replica.proc, members)
        finally:
            self._context.memory.release(replica)

    def _grouped(self, agent: AgentKey, number: int, table: Table) -> list[ProcessInfo]:
        """What runs in the control group of a replica: its own, although its runner and its marks may be gone."""
        found = (table.get(pid) for pid in self._context.memory.members(agent, number))
        return [proc for proc in found if proc is not None and proc.alive]

    def _end_remains(self, task: _Task, number: int) -> None:
        """End what only the control group of a replica remembers."""
        if found := self._grouped(task.agent, number, self._table.sweep()):
            self._end_tree(task, found[0], lambda: self._grouped(task.agent, number, self._table.sweep()))

    def _end_foreign(self, task: _Task) -> None:
        """Only an action that Git allowed by ``adopt`` gets here with something foreign in its way."""
        for known in task.handle.foreign if task.action.live == IN_THE_WAY else ():
            proc = self._table.find(known.identity)
            if proc is not None:
                replica = Replica(task.agent, known.number, known.spec, proc, known=False)
                self._end_tree(task, proc, partial(self._unmarked_tree, replica))

    def _unmarked_tree(self, replica: Replica) -> Iterable[ProcessInfo]:
        return tree_of(replica, (), ProcessTree(self._table.sweep(), {}, {}, {}))

    def _end_tree(self, task: _Task, top: ProcessInfo, members: Callable[[], Iterable[ProcessInfo]]) -> None:
        def ours_to_end() -> Iterable[ProcessInfo]:
            self._context.check_leading()
            return members()

        left = end_tree(top, ours_to_end, task.how, self._table, self._registry.reap)
        if left:
            pids = ", ".join(str(proc.pid) for proc in left)
            hint = (
                "see it with ps: it belongs to another user, or hangs in the kernel (a dead network file system)"
            )
            raise ApplyError(f"{task.action.key}: pid {pids} survived SIGKILL", hint=hint)

    def _tree(self, task: _Task) -> ProcessTree:
        return self.process_tree({task.agent: task.handle})


class _Task:
    """One action on one agent, while it is being done."""

    def __init__(self, action: Action) -> None:
        self.agent = action.key.agent
        self.action = action
        self.handle = decode(action.handle).here(this_host())
        # By the spec that it was started with, not by the one to come.
        known = action.base or action.desired
        self.how = Desired.of(known).stop if known is not None else FALLBACK

    @property
    def records_nothing(self) -> bool:
        """Whether what is wanted is on record already."""
        return self.action.base is not None and self.action.base == self.action.desired

    def next_to_replace(self, replica_set: ReplicaSet, wanted: Desired) -> tuple[set[int], int]:
        """The pids of the replicas to be replaced now, and how many are left for later.
        Those that are not well go at once: that costs nothing. Of the others as many as ``maxUnavailable`` leaves
        room for, what is down already and what is not well counted. For one that is at fault itself, what is not
        well counts only while it may still be about to become Ready: one that never will must not keep it."""
        replicas, restarts = replica_set.replicas, self.action.verb is Verb.RESTART
        over = {r.proc.pid for r in replicas if r.ended is not None}
        unwell = over | {r.proc.pid for r in replicas if str(r.proc.pid) in self.action.instances}
        wrong = {r.proc.pid for r in replicas if replica_set.is_behind(r, wanted)}
        # Of what is at fault the driver knows itself; what core names then is only not Ready yet.
        if restarts and self.action.drift_class is Class.STUCK_PROGRESS and self.action.reason not in FAULTS:
            wrong |= unwell | self._only(replicas)  # it is they that the restart is for
        missing = wanted.replicas - sum(replica.number < wanted.replicas for replica in replicas)
        starting = {r.proc.pid for r in replicas if age_of(r.proc) < wanted.settles_within} & unwell
        sound = [r.proc.pid for r in replicas if r.proc.pid in wrong - unwell]
        at_fault = [pid for pid in sound if pid in replica_set.faults]
        chosen = at_fault[: max(0, wanted.max_unavailable - missing - len(starting))]
        room = max(0, wanted.max_unavailable - missing - len(unwell) - len(chosen))
        chosen += [pid for pid in sound if pid not in chosen][:room]
        return (wrong & unwell) | {*chosen}, len(sound) - len(chosen)

    def _only(self, replicas: Iterable[Replica]) -> set[int]:
        """The pid of the one replica that ran when the action was planned, which core need not name; none where
        it names some, whatever became of them: the others are well."""
        planned = {known.identity for known in self.handle.replicas}
        return {r.proc.pid for r in replicas if r.proc.identity in planned and not self.action.instances}


@dataclass(slots=True)
class _Done:
    """What one step did. ``left``: how many replicas are to be replaced later."""

    started: list[ReplicaHandle] = field(default_factory=list)
    stopped: list[Replica] = field(default_factory=list)
    resumed: list[Replica] = field(default_factory=list)
    left: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it did nothing at all."""
        return not (self.started or self.stopped or self.resumed)

    @property
    def summary(self) -> str:
        """In one sentence."""
        named = {
            "stopped": [(each.number, each.ended.pid if each.ended else each.proc.pid) for each in self.stopped],
            "started": [(known.number, known.pid) for known in self.started],
            "resumed (SIGCONT)": [(replica.number, replica.proc.pid) for replica in self.resumed],
        }
        parts = [
            f"{verb} replica " + ", ".join(f"{number} (pid {pid})" for number, pid in found)
            for verb, found in named.items()
            if found
        ]
        if self.left:
            parts.append(f"{self.left} to follow")
        return ", ".join(parts) or "nothing to do"
