"""Looks at the process table and says what of it is ours, and what is in our way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gitops_agent.drivers.local.handle import Handle, Known, decode, encode
from gitops_agent.drivers.local.heartbeat_file import read_heartbeat
from gitops_agent.drivers.local.lookalikes import has_environment, runs_command
from gitops_agent.drivers.local.marks import OWNER, variables
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica, count, split_extras
from gitops_agent.drivers.local.procfs import ProcessInfo, this_host
from gitops_agent.drivers.local.sweep import Look
from gitops_agent.drivers.process.assess import Faults, Sight, judge
from gitops_agent.drivers.process.context import ProcessContext
from gitops_agent.drivers.process.spec import DRIVER, Desired, process_key
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import AgentInstance, Base, Evidence, Observation, Owner
from gitops_agent.model.quantity import iso
from gitops_agent.ports import NO_CLAIMS, Claims, Scope

INIT = 1
LOOPBACK = "127.0.0.1"
"""Local agents answer HTTP probes here."""
IN_THE_WAY = Fields.of({"state": "Foreign"})


class ProcessObserver:
    """The reading part of the process driver."""

    def __init__(self, kit: ProcessContext) -> None:
        self._instance = kit.instance
        self._clock = kit.clock
        self._place = kit.place
        self._table = kit.table
        self._roster = kit.roster
        self._memory = kit.memory
        self._decoded: dict[AgentKey, tuple[Fields, Desired]] = {}

    def observe(
        self, scope: Scope, bases: Mapping[ResourceKey, Base], claims: Claims = NO_CLAIMS
    ) -> Sequence[Observation]:
        """Our replicas in the scope, the absence of those on record, and what stands in the way of claims."""
        recorded = {
            key.agent: base
            for key, base in bases.items()
            if base.driver == DRIVER and (scope is None or key.agent in scope)
        }
        claimed = {
            key.agent: claim.fields
            for key, claim in claims.items()
            if claim.driver == DRIVER and key.agent not in recorded and (scope is None or key.agent in scope)
        }
        host = this_host()
        handle = {agent: decode(base.handle) for agent, base in recorded.items()}
        census = self.census({agent: fact.here(host) for agent, fact in handle.items()})
        agents = recorded.keys() | claimed.keys() | census.ours.keys() | census.others.keys()
        look = Look(census, host, self._clock.now(), self._table)
        found = []
        for agent in sorted(agents if scope is None else agents & scope):
            base = recorded.get(agent)
            three_way = self._legs(agent, base.fields if base is not None else None, claimed.get(agent))
            found.append(self._observation(agent, three_way, handle.get(agent, Handle()), look))
        return [observation for observation in found if observation is not None]

    def census(self, handle: Mapping[AgentKey, Handle]) -> ProcessTree:
        """Sweep, reap and sort; what this process started counts as recorded."""
        merged = {agent: self._roster.merge(agent, fact) for agent, fact in handle.items()}
        table = self._table.sweep()
        # After the sweep, so that how a child ended is known whenever the sweep shows that it did.
        self._roster.reap()
        return count(table, self._instance, merged)

    def sight(self, agent: AgentKey, base: Desired | None, census: ProcessTree) -> Sight:
        """The live replicas of one agent and what is wrong with them."""
        replicas, extra = split_extras(census.ours.get(agent, ()), self._table.command_line)
        faults: Faults = {}
        if base is not None:
            for replica in (*replicas, *extra):
                fault = None if replica.known else self._strange(replica, base)
                if fault is not None:
                    faults[replica.proc.pid] = fault
            for replica in self._memory.over(replicas, base.memory_limit, census):
                faults.setdefault(replica.proc.pid, "MemoryLimit")
        return Sight(replicas, extra, faults)

    def fields(
        self, agent: AgentKey, base: Fields | None, handle: Handle, claim: Fields | None = None
    ) -> Fields | None:
        """The comparable fields of one agent now: what the precheck compares."""
        host = this_host()
        census = self.census({agent: handle.here(host)})
        found = self._observation(
            agent, self._legs(agent, base, claim), handle, Look(census, host, self._clock.now(), self._table)
        )
        return found.fields if found is not None else None

    def desired(self, agent: AgentKey, fields: Fields) -> Desired:
        """Decoded fields, remembered while they stay the same."""
        known = self._decoded.get(agent)
        if known is None or known[0] != fields:
            known = self._decoded[agent] = (fields, Desired.of(fields))
        return known[1]

    def _legs(self, agent: AgentKey, base: Fields | None, claim: Fields | None) -> _Legs:
        if base is not None:
            return _Legs(self.desired(agent, base), None)
        return _Legs(None, self.desired(agent, claim) if claim is not None else None)

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

    def _observation(self, agent: AgentKey, three_way: _Legs, handle: Handle, look: Look) -> Observation | None:
        if look.census.ours.get(agent):
            return self._live(agent, three_way.base, look)
        if others := look.census.others.get(agent):
            return _in_the_way(agent, others, Owner.OTHER, look)
        wanted = three_way.base or three_way.claim
        if wanted and wanted.replicas and (strangers := look.lookalikes(wanted, self._workdir(agent, wanted))):
            return _in_the_way(agent, strangers, Owner.NONE, look)
        # What is only claimed was never there: its absence is nothing to speak of.
        return self._absent(agent, three_way.base, handle, look) if three_way.base is not None else None

    def _workdir(self, agent: AgentKey, base: Desired) -> str:
        return base.workdir if base.workdir is not None else self._place.work(agent)

    def _live(self, agent: AgentKey, base: Desired | None, look: Look) -> Observation:
        sight = self.sight(agent, base, look.census)
        verdict = judge(sight, base)
        sound = [replica.record for replica in sight.replicas if replica.proc.pid not in sight.faults]
        if base is not None:
            self._roster.watch(agent, base, sound)
        started = {r.proc.pid: self._table.started_at(r.proc, look.now) for r in sight.all}
        return Observation(
            key=process_key(agent),
            driver=DRIVER,
            owner=Owner.OURS,
            fields=verdict.fields,
            state=verdict.state,
            observed_at=look.now,
            reason=verdict.reason,
            message=verdict.message,
            live=self._shown(agent, sight.all, started),
            handle=encode(look.host, sound),
            evidence=(Evidence("kernel", verdict.message or "all replicas run", look.now),),
            authoritative=True,
            instances=self._instances(agent, sight.replicas, started, look.now),
        )

    def _instances(
        self, agent: AgentKey, replicas: Sequence[Replica], started: Mapping[int, float], now: float
    ) -> tuple[AgentInstance, ...]:
        return tuple(
            AgentInstance(
                str(each.proc.pid),
                started[each.proc.pid],
                heartbeat=read_heartbeat(self._place, agent, each.number, now),
                address=LOOPBACK,
            )
            for each in replicas
        )

    def _absent(self, agent: AgentKey, base: Desired, handle: Handle, look: Look) -> Observation:
        self._roster.watch(agent, base, ())
        reason, message = self._why_gone(agent, handle, look) if base.replicas else (None, "")
        return Observation(
            key=process_key(agent),
            driver=DRIVER,
            owner=Owner.OURS,
            fields=None,
            state="Missing" if base.replicas else "Stopped",
            observed_at=look.now,
            reason=reason,
            message=message,
            live=self._shown(agent, (), {}),
            handle=encode(handle.host or look.host, handle.replicas),
            evidence=(Evidence("kernel", message or "no process of it runs", look.now),),
            authoritative=True,
        )

    def _why_gone(self, agent: AgentKey, handle: Handle, look: Look) -> tuple[str, str]:
        if handle.host is not None and handle.host != look.host:
            return "HostRestarted", "this machine (or container) was restarted since it ran"
        last = self._roster.last_exit(agent)
        if last is not None and last.status == -9 and self._memory.killed(agent, last.replica):
            return "MemoryLimit", f"pid {last.pid} was killed by the kernel: it reached its memory limit"
        if last is not None and (not handle.replicas or last.pid in {known.pid for known in handle.replicas}):
            return "ProcessGone", f"pid {last.pid} {last.said}"
        for known in handle.replicas:
            proc = look.census.table.get(known.pid)
            # What init has not collected yet is gone like any other: a matter of moments, and nobody's fault.
            if proc is not None and proc.start == known.start and proc.ppid != INIT:
                return "Zombie", f"pid {proc.pid} has ended, but its parent {proc.ppid} has not collected it"
        pids = ", ".join(str(known.pid) for known in handle.replicas)
        return "ProcessGone", f"pid {pids} no longer runs" if pids else "no process of it runs"

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
            "log": self._place.log(agent, 0),
        }
        last = self._roster.last_exit(agent)
        if last is not None:
            how = {"code": last.status} if last.status >= 0 else {"signal": -last.status}
            live["lastExit"] = {"pid": last.pid, "replica": last.replica, "at": iso(last.at), **how}
        return live


class _Legs(NamedTuple):
    """What we last applied to an agent, or else what is wanted of it for the first time."""

    base: Desired | None
    claim: Desired | None


def _in_the_way(agent: AgentKey, procs: Iterable[ProcessInfo], owner: Owner, look: Look) -> Observation:
    procs = sorted(procs)
    pids = ", ".join(str(proc.pid) for proc in procs)
    whose = procs[0].marks.instance if procs[0].marks else ""
    if owner is Owner.OTHER:
        reason, message = "MarkedByOther", f"pid {pids} is managed by the instance {whose}"
    else:
        reason, message = "NotMarked", f"pid {pids} runs the same command in the same folder, but is not ours"
    return Observation(
        key=process_key(agent),
        driver=DRIVER,
        owner=owner,
        fields=IN_THE_WAY,
        state="Foreign",
        observed_at=look.now,
        reason=reason,
        message=message,
        live={"replicas": [], "foreign": [proc.pid for proc in procs]},
        # What another instance manages is never handed to the applier, not even to adopt it.
        handle=encode(look.host, (), _handles(procs) if owner is Owner.NONE else ()),
        evidence=(Evidence("kernel", message, look.now),),
        authoritative=True,
    )


def _handles(procs: Iterable[ProcessInfo]) -> list[Known]:
    return [Known(0, proc.pid, proc.start, "") for proc in procs]


def _status(proc: ProcessInfo) -> str:
    if proc.suspended:
        return "Suspended"
    return "Traced" if proc.traced else "Running"
