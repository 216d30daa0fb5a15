"""Observes the process table: what of it is ours, and what is in our way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gitops_agent.drivers.api import ObserveRequest
from gitops_agent.drivers.local.assess import Faults, ReplicaSet, assess_replicas
from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.handle import Handle, ReplicaHandle, decode, encode
from gitops_agent.drivers.local.heartbeat_file import read_heartbeat
from gitops_agent.drivers.local.launcher import Launcher
from gitops_agent.drivers.local.lookalikes import Sweep, has_environment, runs_command
from gitops_agent.drivers.local.marks import OWNER, variables
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica, build_tree, split_extras
from gitops_agent.drivers.local.procfs import ProcessInfo, this_host
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import AgentInstance, Evidence, Observation, Owner
from gitops_agent.model.quantity import iso

INIT_PID = 1
LOOPBACK = "127.0.0.1"
"""Local agents answer HTTP probes here."""
IN_THE_WAY = Fields.of({"state": "Foreign"})


class ProcessObserver:
    """The reading part of a driver for local processes."""

    def __init__(self, context: ProcessContext, launcher: Launcher) -> None:
        self._driver = context.driver
        self._key = context.key
        self._instance = context.instance
        self._clock = context.clock
        self._dirs = context.dirs
        self._table = context.table
        self._registry = context.registry
        self._memory = context.memory
        self._launcher = launcher

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Our replicas in the scope, the absence of those on record, and what stands in the way of claims."""
        recorded = {key.agent: base for key, base in request.bases.items()}
        claimed = {key.agent: claim.fields for key, claim in request.claims.items() if key.agent not in recorded}
        if not recorded and not claimed and not self._launcher.may_run_agents():
            return []
        scope = request.scope
        host = this_host()
        handle = {agent: decode(base.handle) for agent, base in recorded.items()}
        tree = self.supervised_tree({agent: one.here(host) for agent, one in handle.items()})
        agents = recorded.keys() | claimed.keys() | tree.ours.keys() | tree.others.keys()
        sweep = Sweep(tree, host, self._clock.now(), self._table)
        found = []
        for agent in sorted(agents if scope is None else agents & scope):
            base = recorded.get(agent)
            expected = _expected(base.fields if base is not None else None, claimed.get(agent))
            found.append(self._observation(agent, expected, handle.get(agent, Handle()), sweep))
        return [observation for observation in found if observation is not None]

    def process_tree(self, handle: Mapping[AgentKey, Handle]) -> ProcessTree:
        """Sweep, reap and sort; what this process started counts as recorded."""
        merged = {agent: self._registry.merge(agent, one) for agent, one in handle.items()}
        table = self._table.sweep()
        # After the sweep, so that how a child ended is known whenever the sweep shows that it did.
        self._registry.reap()
        return build_tree(table, self._instance, merged, self._driver)

    def supervised_tree(self, handle: Mapping[AgentKey, Handle]) -> ProcessTree:
        """The same, and which replicas run outside of what they were started in."""
        tree = self.process_tree(handle)
        if not handle and not tree.ours:
            return tree  # where no agent uses this driver, its launcher need not even be installed
        lost = self._launcher.unsupervised(tree)
        return replace(tree, unsupervised=frozenset(lost)) if lost else tree

    def replica_set(self, agent: AgentKey, base: Desired | None, tree: ProcessTree) -> ReplicaSet:
        """The live replicas of one agent and what is wrong with them."""
        replicas, extra = split_extras(tree.ours.get(agent, ()), self._table.command_line)
        faults: Faults = {}
        if base is not None:
            for replica in (*replicas, *extra):
                fault = None if replica.known else self._strange(replica, base)
                if fault is not None:
                    faults[replica.proc.pid] = fault
                elif replica.proc.pid in tree.unsupervised:
                    faults[replica.proc.pid] = "SupervisorLost"
            for replica in self._memory.over(replicas, base.memory_limit, tree):
                faults.setdefault(replica.proc.pid, "MemoryLimit")
        return ReplicaSet(replicas, extra, faults)

    def fields(
        self, agent: AgentKey, base: Fields | None, handle: Handle, claim: Fields | None = None
    ) -> Fields | None:
        """The comparable fields of one agent now: what the precheck compares."""
        host = this_host()
        tree = self.supervised_tree({agent: handle.here(host)})
        sweep = Sweep(tree, host, self._clock.now(), self._table)
        found = self._observation(agent, _expected(base, claim), handle, sweep)
        return found.fields if found is not None else None

    def _strange(self, replica: Replica, base: Desired) -> str | None:
        if replica.spec != base.spec:
            return None  # it is replaced anyway
        if not runs_command(self._table.command_line(replica.proc.pid), base.command):
            return "CommandDiffers"
        environment = variables(self._table.environ(replica.proc.pid) or b"")
        # Without our marks it is no longer the environment it was started with: the program wrote over it.
        if OWNER in environment and not has_environment(environment, base.env):
            return "EnvironmentDiffers"
        return None

    def _observation(
        self, agent: AgentKey, expected: _Expected, handle: Handle, sweep: Sweep
    ) -> Observation | None:
        if sweep.tree.ours.get(agent):
            return self._live(agent, expected.base, sweep)
        if others := sweep.tree.others.get(agent):
            return self._in_the_way(agent, others, Owner.OTHER, sweep)
        wanted = expected.base or expected.claim
        if wanted and wanted.replicas and (strangers := sweep.lookalikes(wanted, self._workdir(agent, wanted))):
            return self._in_the_way(agent, strangers, Owner.NONE, sweep)
        # What is only claimed was never there: its absence is no observation.
        return self._absent(agent, expected.base, handle, sweep) if expected.base is not None else None

    def _workdir(self, agent: AgentKey, base: Desired) -> str:
        return base.workdir if base.workdir is not None else self._dirs.work(agent)

    def _live(self, agent: AgentKey, base: Desired | None, sweep: Sweep) -> Observation:
        replica_set = self.replica_set(agent, base, sweep.tree)
        verdict = assess_replicas(replica_set, base)
        sound = [replica.record for replica in replica_set.replicas if replica.proc.pid not in replica_set.faults]
        if base is not None:
            self._registry.watch(agent, base, sound)
        started = {r.proc.pid: self._table.started_at(r.proc, sweep.now) for r in replica_set.all}
        return Observation(
            key=self._key(agent),
            driver=self._driver,
            owner=Owner.OURS,
            fields=verdict.fields,
            state=verdict.state,
            observed_at=sweep.now,
            reason=verdict.reason,
            message=verdict.message,
            live=self._shown(agent, replica_set.all, started),
            handle=encode(sweep.host, sound),
            evidence=(Evidence("kernel", verdict.message or "all replicas run", sweep.now),),
            authoritative=True,
            instances=self._instances(agent, replica_set.replicas, started, sweep.now),
        )

    def _instances(
        self, agent: AgentKey, replicas: Sequence[Replica], started: Mapping[int, float], now: float
    ) -> tuple[AgentInstance, ...]:
        return tuple(
            AgentInstance(
                str(each.proc.pid),
                started[each.proc.pid],
                heartbeat=read_heartbeat(self._dirs, agent, each.number, now),
                address=LOOPBACK,
            )
            for each in replicas
        )

    def _absent(self, agent: AgentKey, base: Desired, handle: Handle, sweep: Sweep) -> Observation:
        self._registry.watch(agent, base, ())
        reason, message = self._why_gone(agent, handle, sweep) if base.replicas else (None, "")
        return Observation(
            key=self._key(agent),
            driver=self._driver,
            owner=Owner.OURS,
            fields=None,
            state="Missing" if base.replicas else "Stopped",
            observed_at=sweep.now,
            reason=reason,
            message=message,
            live=self._shown(agent, (), {}),
            handle=encode(handle.host or sweep.host, handle.replicas),
            evidence=(Evidence("kernel", message or "no process of it runs", sweep.now),),
            authoritative=True,
        )

    def _why_gone(self, agent: AgentKey, handle: Handle, sweep: Sweep) -> tuple[str, str]:
        if handle.host is not None and handle.host != sweep.host:
            return "HostRestarted", "this machine (or container) was restarted since it ran"
        last = self._registry.last_exit(agent)
        if last is not None and last.status == -9 and self._memory.killed(agent, last.replica):
            return "MemoryLimit", f"pid {last.pid} was killed by the kernel: it reached its memory limit"
        if last is not None and (not handle.replicas or last.pid in {known.pid for known in handle.replicas}):
            return "ProcessGone", f"pid {last.pid} {last.text}"
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
        if owner is Owner.OTHER:
            reason, message = "MarkedByOther", f"pid {pids} is managed by the instance {instance}"
        else:
            reason, message = "NotMarked", f"pid {pids} runs the same command in the same folder, but is not ours"
        return Observation(
            key=self._key(agent),
            driver=self._driver,
            owner=owner,
            fields=IN_THE_WAY,
            state="Foreign",
            observed_at=sweep.now,
            reason=reason,
            message=message,
            live={"replicas": [], "foreign": [proc.pid for proc in procs]},
            # What another instance manages is never handed to the applier, not even to adopt it.
            handle=encode(sweep.host, (), _handles(procs) if owner is Owner.NONE else ()),
            evidence=(Evidence("kernel", message, sweep.now),),
            authoritative=True,
        )

    def _shown(self, agent: AgentKey, replicas: Sequence[Replica], started: Mapping[int, float]) -> dict[str, Any]:
        live: dict[str, Any] = {
            "replicas": [
                {
                    "index": replica.number,
                    "pid": replica.proc.pid,
                    "startedAt": iso(started[replica.proc.pid]),
                    "status": _status(replica.proc),
                }
                for replica in replicas
            ],
            "log": self._dirs.log(agent, 0),
            **self._launcher.shown(agent),
        }
        last = self._registry.last_exit(agent)
        if last is not None:
            how = {"code": last.status} if last.status >= 0 else {"signal": -last.status}
            live["lastExit"] = {"pid": last.pid, "replica": last.replica, "at": iso(last.at), **how}
        return live


class _Expected(NamedTuple):
    """What we last applied to an agent, or else what is wanted of it for the first time."""

    base: Desired | None
    claim: Desired | None


def _expected(base: Fields | None, claim: Fields | None) -> _Expected:
    if base is not None:
        return _Expected(Desired.of(base), None)
    return _Expected(None, Desired.of(claim) if claim is not None else None)


def _handles(procs: Iterable[ProcessInfo]) -> list[ReplicaHandle]:
    return [ReplicaHandle(0, proc.pid, proc.start, "") for proc in procs]


def _status(proc: ProcessInfo) -> str:
    if proc.suspended:
        return "Suspended"
    return "Traced" if proc.traced else "Running"
