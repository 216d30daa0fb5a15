"""The remote runtime: observe and apply, and the capabilities it has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from remote_driver.client import Client

from gitops_agent.drivers.api import (
    AS_IT_RUNS,
    Action,
    AgentInstance,
    AgentKey,
    Applied,
    Base,
    Context,
    Evidence,
    ExecResult,
    Fields,
    Health,
    HealthState,
    LogLine,
    Observation,
    ObserveRequest,
    Owner,
    ResourceKey,
    RunAs,
    Verb,
)

NAME, KIND = "remote", "runtime"


class RemoteDriver:
    """One server that runs workers."""

    def __init__(self, context: Context) -> None:
        self._client = Client(context)
        self._context = context

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Every worker of ours in scope, and the absence of those on record."""
        now = self._context.clock.now()
        answer = self._client.read(f"/workers?owner={self._context.instance}")
        workers = {ResourceKey(AgentKey.parse(each["agent"]), KIND, NAME): each for each in answer["workers"]}
        seen = [_worker(key, each, request.bases.get(key), now) for key, each in workers.items()]
        gone = [
            _absence(base, answer["lostNodes"], now) for key, base in request.bases.items() if key not in workers
        ]
        scope = request.scope
        return [each for each in (*seen, *gone) if scope is None or each.key.agent in scope]

    def apply(self, action: Action, key: str) -> Applied:
        """Have the server run the worker as desired, or not at all."""
        path = f"/workers/{action.key.agent}"
        if action.verb is Verb.DELETE or action.desired is None:
            self._client.write("DELETE", path, None, key)
            return Applied("deleted the worker")
        body = {"owner": self._context.instance, "restart": action.verb is Verb.RESTART, **action.desired.value}
        answer = self._client.write("PUT", path, body, key)
        return Applied(f"worker {answer['id']} runs {answer['copies']} copies")

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """Run a command beside the worker."""
        body = {"command": list(command), "env": dict(how.env), "timeout": timeout}
        answer = self._client.write("POST", f"/exec/{agent}", body, "")
        return ExecResult(answer["code"] == 0, answer["output"])

    def logs(self, agent: AgentKey, lines: int, *, follow: bool = False) -> Iterator[LogLine]:
        """The output of every copy. This system has no way to follow it."""
        del follow
        for each in self._client.read(f"/logs/{agent}?lines={lines}"):
            yield LogLine(each["copy"], each["text"])

    def claim(self, agents: Collection[AgentKey]) -> Mapping[AgentKey, str]:
        """Take the leases of some agents on the server."""
        body = {"holder": self._context.instance, "agents": [str(agent) for agent in agents]}
        refused = self._client.write("POST", "/leases", body, "")
        return {AgentKey.parse(agent): f"held by {holder}" for agent, holder in refused.items()}

    def holds(self, agent: AgentKey) -> bool:
        """Whether the server still has our lease."""
        return bool(self._client.read(f"/leases/{agent}") == self._context.instance)


def _worker(key: ResourceKey, worker: Mapping[str, Any], base: Base | None, now: float) -> Observation:
    shown = {name: worker[name] for name in ("image", "region", "copies", "config")}
    copies = [
        AgentInstance(each["id"], each["startedAt"], each["ready"], address=each.get("address", ""))
        for each in worker["running"]
    ]
    applied = base.fields.value if base is not None else shown
    return Observation(
        key,
        NAME,
        Owner.OURS,
        Fields.of(shown),
        "Running" if worker["copies"] else "Stopped",
        now,
        reason="ImageDiffers" if applied["image"] != worker["image"] else None,
        live={"worker": worker["id"]},
        evidence=(Evidence("remote api", f"worker {worker['id']}", now),),
        authoritative=True,
        health=None if worker.get("probedByUs") else _health(worker),
        instances=tuple(copies),
    )


def _health(worker: Mapping[str, Any]) -> Health:
    """What the system itself says of the copies."""
    ready, wanted = sum(each["ready"] for each in worker["running"]), worker["copies"]
    if ready < wanted:
        return Health(HealthState.STARTING, "CopiesNotReady", f"{ready} of {wanted} copies are ready")
    return Health(HealthState.HEALTHY, "Healthy", f"{ready} of {wanted} copies are ready")


def _absence(base: Base, lost_nodes: Sequence[str], now: float) -> Observation:
    reason = "NodeLost" if str(base.key.agent) in lost_nodes else "WorkerLost"
    evidence = (Evidence("remote api", "no such worker", now),)
    return Observation(
        base.key, NAME, Owner.OURS, None, "Missing", now, reason, evidence=evidence, authoritative=True
    )
