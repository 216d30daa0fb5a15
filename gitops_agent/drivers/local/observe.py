"""Observes the process table: what of it is ours, and what is in our way."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gitops_agent.drivers.api import AgentKey, Fields, Health, HealthState, ObserveRequest, iso
from gitops_agent.drivers.local.assess import ReplicaSet, assess_replicas, fault_of, how_it_ended, surplus
from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.handle import Handle, ReplicaHandle, decode, encode
from gitops_agent.drivers.local.heartbeat_file import read_heartbeat
from gitops_agent.drivers.local.lookalikes import Sweep, has_environment, runs_command
from gitops_agent.drivers.local.marks import OWNER, as_agent, variables
from gitops_agent.drivers.local.process_tree import (
    ProcessTree,
    Replica,
    build_tree,
    is_collecting,
    split_extras,
    tree_of,
)
from gitops_agent.drivers.local.procfs import ProcessInfo, Table, booted_at, this_host
from gitops_agent.drivers.local.registry import ExitStatus
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.drivers.local.start import Launcher
from gitops_agent.drivers.local.stop import is_runner
from gitops_agent.model.observation import AgentInstance, Evidence, Observation, Owner

INIT_PID = 1
LOOPBACK = "127.0.0.1"
"""Local agents answer HTTP probes here."""
COLLECT_SECONDS = 0.2  # for runners that have not collected yet what has ended
COLLECT_PAUSE_SECONDS = 0.002
NO_RUNNER = "runs without a runner: what it leaves behind when it ends may not be found until its next restart"
IN_THE_WAY = Fields.of({"state": "Foreign"})


class ProcessObserver:
    """The reading part of a driver for local processes."""

    def __init__(self, context: ProcessContext, launcher: Launcher) -> None:
        self._context = context
        self._dirs = context.dirs
        self._table = context.table
        self._registry = context.registry
        self._launcher = launcher
        self._learned: dict[tuple[AgentKey, int], tuple[int, int]] = {}

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Our replicas in the scope, the absence of those on record, and what stands in the way of claims."""
        applied = {key.agent: base.fields for key, base in request.bases.items()}
        claims = {key.agent: claim.fields for key, claim in request.claims.items() if key.agent not in applied}
        if not applied and not claims and not self._launcher.may_run_agents():
            return []
        handles = {key.agent: decode(base.handle) for key, base in request.bases.items()}
        sweep = self._sweep(handles)
        # What another instance runs concerns us only where it is in the way, or asked for by name.
        named = sweep.tree.others.keys() & (request.scope or frozenset())
        agents = applied.keys() | claims.keys() | sweep.tree.ours.keys() | named
        found = (
            self._observation(agent, applied.get(agent), claims.get(agent), handles.get(agent, Handle()), sweep)
            for agent in sorted(agents if request.scope is None else agents & request.scope)
        )
        return [observation for observation in found if observation is not None]

    def process_tree(self, handles: Mapping[AgentKey, Handle]) -> ProcessTree:
        """Sweep, reap and sort; what this process started counts as recorded."""
        merged = {agent: self._registry.merge(agent, one) for agent, one in handles.items()}
        table = self._settled_table()
        # After the sweep, so that how a child ended is known whenever the sweep shows that it did.
        self._registry.reap()
        self._context.rotated_secrets.forget_gone(table)
        context = self._context
        tree = build_tree(table, context.instance, merged, context.driver, context.memory.members)
        for replica in (each for replicas in tree.ours.values() for each in replicas if each.ended is not None):
            pid, status = replica.ended or (0, None)
            if status is not None:
                ended = ExitStatus(pid, replica.number, status, self._context.clock.now())
                self._registry.record_exit(replica.agent, ended)
        return tree

    def _settled_table(self) -> Table:
        """A sweep in which no runner is about to find that its agent has ended: that takes it a moment, and only
        then is it known how. A runner that does not answer (suspended by hand) is not waited for any longer."""
        deadline = time.monotonic() + COLLECT_SECONDS
        while True:
            table = self._table.sweep()
            busy = any(proc.alive and is_runner(proc) and is_collecting(proc, table) for proc in table.values())
            if not busy or time.monotonic() >= deadline:
                return table
            time.sleep(COLLECT_PAUSE_SECONDS)

    def supervised_tree(self, handles: Mapping[AgentKey, Handle]) -> ProcessTree:
        """The same, and which replicas run outside of what they were started in."""
        tree = self.process_tree(handles)
        if not handles and not tree.ours:
            return tree  # where no agent uses this driver, its launcher need not even be installed
        lost = self._launcher.unsupervised(tree)
        return replace(tree, unsupervised=frozenset(lost)) if lost else tree

    def replica_set(self, agent: AgentKey, base: Desired | None, tree: ProcessTree) -> ReplicaSet:
        """The live replicas of one agent and what is wrong with them."""
        replicas, extra = split_extras(tree.ours.get(agent, ()), self._table.command_line)
        faults: dict[int, str] = {}
        left: dict[int, tuple[int, ...]] = {}
        for replica in (*replicas, *extra):
            if replica.ended is not None:
                rest = tree_of(replica, replicas, tree)
                left[replica.proc.pid] = tuple(proc.pid for proc in rest if not is_runner(proc))
                faults[replica.proc.pid] = fault_of(replica.ended, left[replica.proc.pid])
        if base is not None:
            for replica in (each for each in (*replicas, *extra) if each.ended is None):
                fault = None if replica.known else self._strange(replica, base)
                if fault is not None:
                    faults[replica.proc.pid] = fault
                elif replica.proc.pid in tree.unsupervised:
                    faults[replica.proc.pid] = "SupervisorLost"
            running = [replica for replica in replicas if replica.ended is None]
            for replica in self._context.memory.over(running, base.memory_limit, tree):
                faults.setdefault(replica.proc.pid, "MemoryLimit")
        rotated = self._context.rotated_secrets.find(agent, replicas, base) if base is not None else {}
        return ReplicaSet(replicas, extra, faults, rotated, left)

    def _sweep(self, handles: Mapping[AgentKey, Handle]) -> Sweep:
        host = this_host()
        tree = self.supervised_tree({agent: handle.here(host) for agent, handle in handles.items()})
        now = self._context.clock.now
        return Sweep(tree, host, now(), booted_at(now), self._table)

    def _strange(self, replica: Replica, base: Desired) -> str | None:
        if replica.spec != base.spec:
            return None  # it is replaced anyway
        # Its runner, which never becomes another program, says what it was started as. Of one that lost its runner
        # and is not the process on record, a title is no proof: its helpers have titles too.
        top, strict = replica.top.pid, replica.run_by != 0
        if not runs_command(self._table.command_line(top), base.command, strict=strict):
            return "CommandDiffers"
        environment = as_agent(variables(self._table.environ(top) or b""))
        # Without our marks it is no longer the environment it was started with: the program wrote over it.
        if OWNER in environment and not has_environment(environment, base.env):
            return "EnvironmentDiffers"
        return None

    def _observation(
        self, agent: AgentKey, applied: Fields | None, claim: Fields | None, handle: Handle, sweep: Sweep
    ) -> Observation | None:
        """What is there of an agent. ``claim``: what is wanted of it; it counts where nothing was applied yet."""
        base = Desired.of(applied) if applied is not None else None
        wanted = Desired.of(claim) if base is None and claim is not None else base
        if sweep.tree.ours.get(agent):
            return self._live(agent, base or wanted, base is not None, handle, sweep)
        if others := sweep.tree.others.get(agent):
            return self._in_the_way(agent, others, Owner.OTHER, sweep)
        if wanted is not None and wanted.replicas:
            workdir = wanted.workdir if wanted.workdir is not None else self._dirs.work(agent)
            if strangers := sweep.lookalikes(wanted, workdir):
                return self._in_the_way(agent, strangers, Owner.NONE, sweep)
        # What is only claimed was never there: its absence is no observation.
        return self._absent(agent, base, handle, sweep) if base is not None else None

    def _live(
        self, agent: AgentKey, wanted: Desired | None, applied: bool, handle: Handle, sweep: Sweep
    ) -> Observation:
        base = wanted if applied else None
        replica_set = self.replica_set(agent, base, sweep.tree)
        fields, state, reason, message = assess_replicas(replica_set, base)
        sound = [replica.record for replica in replica_set.replicas if replica.proc.pid not in replica_set.faults]
        if base is not None:
            self._registry.watch(agent, base, sound)
        running = replica_set.running
        past: list[ReplicaHandle] = []
        if replica_set.left:
            # What is left of one is known as such by the record of the one that ended.
            over = {replica.number for replica in replica_set.all} - {replica.number for replica in running}
            past = [known for known in handle.here(sweep.host).replicas if known.number in over]
        started = {r.proc.pid: r.proc.started_at(sweep.booted) for r in running}
        health = None
        if wanted is not None and len(running) < wanted.replicas:
            short = f"{len(running)} of {wanted.replicas} replicas are running"
            health = Health(HealthState.UNHEALTHY, "ReplicaMissing", short)
            if replica_set.left:
                health = Health(HealthState.UNHEALTHY, reason or "", message)
        return self._seen(
            agent,
            sweep.now,
            fields=fields,
            state=state,
            reason=reason,
            message=message,
            live=self._shown(agent, running, started),
            handle=encode(sweep.host, [*sound, *past]),
            health=health,
            instances=tuple(
                AgentInstance(
                    str(each.proc.pid),
                    started[each.proc.pid],
                    heartbeat=read_heartbeat(
                        self._dirs, agent, each.number, sweep.now, partial(self._masked, agent, wanted, each)
                    ),
                    address=LOOPBACK,
                    behind=replica_set.is_behind(each, base),
                    reason="Suspended" if each.proc.status == "Suspended" else None,
                )
                for each in replica_set.replicas
                if each.ended is None
            ),
            extra=tuple(
                AgentInstance(str(each.proc.pid), started[each.proc.pid])
                for each in surplus(replica_set, base)
                if each.ended is None
            ),
        )

    def _masked(self, agent: AgentKey, wanted: Desired | None, replica: Replica, text: str) -> str:
        """A text that a replica wrote, without secrets: it knows those that it was started with, also when another
        process of ours started it."""
        place, process = (agent, replica.number), (replica.proc.pid, replica.proc.start)
        if wanted is not None and self._learned.get(place) != process:
            # Of its runner, which is given the same: a program with a title of its own has written over it.
            running = as_agent(variables(self._table.environ(replica.top.pid) or b""))
            self._context.environment.learn(agent, wanted, running)
            self._learned[place] = process
        return self._context.redactor(text)

    def _absent(self, agent: AgentKey, base: Desired, handle: Handle, sweep: Sweep) -> Observation:
        self._registry.watch(agent, base, ())
        reason, message = self._why_gone(agent, handle, sweep) if base.replicas else (None, "")
        return self._seen(
            agent,
            sweep.now,
            fields=None,
            state="Missing" if base.replicas else "Stopped",
            reason=reason,
            message=message,
            live=self._shown(agent, (), {}),
            handle=encode(handle.host or sweep.host, handle.replicas),
        )

    def _why_gone(self, agent: AgentKey, handle: Handle, sweep: Sweep) -> tuple[str, str]:
        if handle.host is not None and handle.host != sweep.host:
            return "HostRestarted", "this machine (or container) was restarted since it ran"
        last = self._registry.last_exit(agent)
        if last is not None and last.status == -9 and self._context.memory.killed(agent, last.replica):
            return "MemoryLimit", f"pid {last.pid} was killed by the kernel: it reached its memory limit"
        recorded = {pid: known for known in handle.replicas for pid in (known.runner, known.pid)}
        if last is not None and (not recorded or last.pid in recorded):
            pid = recorded[last.pid].pid if recorded else last.pid
            return "ProcessGone", f"pid {pid} {how_it_ended(last.status)}"
        for known in handle.replicas:
            proc = sweep.tree.table.get(known.pid)
            # What init has not collected yet is gone like any other: that takes moments.
            if proc is not None and proc.start == known.start and proc.ppid != INIT_PID:
                return "Zombie", f"pid {proc.pid} has ended, but its parent {proc.ppid} has not collected it"
        pids = ", ".join(str(known.pid) for known in handle.replicas)
        return "ProcessGone", f"pid {pids} no longer runs" if pids else "no process of it runs"

    def _in_the_way(
        self, agent: AgentKey, procs: Iterable[ProcessInfo], owner: Owner, sweep: Sweep
    ) -> Observation:
        procs = sorted(procs)
        pids = ", ".join(str(proc.pid) for proc in procs)
        instance = procs[0].marks.instance if procs[0].marks else ""
        reason, message = "NotMarked", f"pid {pids} runs the same command in the same folder, but is not ours"
        foreign = [ReplicaHandle(0, proc.pid, proc.start, "") for proc in procs]
        if owner is Owner.OTHER:
            reason, message = "MarkedByOther", f"pid {pids} is managed by the instance {instance}"
            foreign = []  # what another instance manages is never handed to the applier, not even to adopt it
        return self._seen(
            agent,
            sweep.now,
            owner,
            fields=IN_THE_WAY,
            state="Foreign",
            reason=reason,
            message=message,
            live={"replicas": [], "foreign": [proc.pid for proc in procs]},
            handle=encode(sweep.host, (), foreign),
        )

    def _seen(self, agent: AgentKey, now: float, owner: Owner = Owner.OURS, **found: Any) -> Observation:
        said = found["message"] or ("no process of it runs" if found["fields"] is None else "all replicas run")
        return Observation(
            key=self._context.key(agent),
            driver=self._context.driver,
            owner=owner,
            observed_at=now,
            evidence=(Evidence("kernel", said, now),),
            authoritative=True,
            **found,
        )

    def _shown(self, agent: AgentKey, replicas: Sequence[Replica], started: Mapping[int, float]) -> dict[str, Any]:
        live: dict[str, Any] = {
            "replicas": [
                {
                    "index": replica.number,
                    "pid": replica.proc.pid,
                    "startedAt": iso(started[replica.proc.pid]),
                    "status": replica.proc.status,
                }
                for replica in replicas
            ],
            "log": self._dirs.log(agent, 0),
            **self._launcher.shown(agent),
        }
        if alone := [str(replica.proc.pid) for replica in replicas if replica.runner is None]:
            live["note"] = f"pid {', '.join(alone)} {NO_RUNNER}"
        last = self._registry.last_exit(agent)
        if last is not None:
            how = {"code": last.status} if last.status >= 0 else {"signal": -last.status}
            live["lastExit"] = {"pid": last.pid, "replica": last.replica, "at": iso(last.at), **how}
        return live
