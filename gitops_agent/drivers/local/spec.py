"""What a document asks of a runtime on this host: one resource with everything a start needs; and the plugin that
drivers for such runtimes offer. Pure."""

from __future__ import annotations

import posixpath
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from gitops_agent.drivers.api import RUNTIME, CheckResult, Compilation, Context, Driver, Plugin, Refused, Resource
from gitops_agent.model.catalog import Reason, Repair
from gitops_agent.model.document import AgentDocument, EnvVar, Runtime, Update
from gitops_agent.model.fields import JSON, Fields, canonical, digest
from gitops_agent.model.health_spec import ON_SECRET_CHANGE, health_fields, read_health
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.plan import Class
from gitops_agent.model.quantity import memory_bytes, seconds
from gitops_agent.model.strict import SecretRef

OWN_SETTINGS = "GITOPS_AGENT_"
SIGNALS = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2")
MAX_GRACE_SECONDS = 3600.0
SETTLE_SECONDS = 120.0  # beyond minUptime, for a new replica to become Ready: the default of healthTimeout
HOT = "hot"  # in place of the bundle's digest: the agent reads its bundle again by itself

_EXTERNAL, _STUCK = Class.MISSING_EXTERNAL, Class.STUCK_PROGRESS

REASONS = {
    "ProcessGone": Reason("The process ended or was killed.", _EXTERNAL),
    "HostRestarted": Reason("The host was restarted since it was last applied.", _EXTERNAL, explained=True),
    "Daemonized": Reason(
        "The process ended and left others running: it went into the background by itself.",
        _EXTERNAL,
        Repair.RESTART,
    ),
    "SpecDiffers": Reason("It runs from another spec than applied.", repair=Repair.RESTART),
    "CommandDiffers": Reason("It runs another command than applied.", repair=Repair.RESTART),
    "EnvironmentDiffers": Reason("It runs with another environment.", repair=Repair.RESTART),
    "ExtraReplica": Reason("More replicas run than desired.", Class.MISSING_INTERNAL, about_fields=True),
    "ReplicaMissing": Reason("Fewer replicas run than desired.", _EXTERNAL, about_fields=True),
    "Suspended": Reason("The process was stopped by a signal.", _STUCK, cross_check=True),
    "Zombie": Reason("The process ended and was not collected by its parent.", _EXTERNAL),
    "MemoryLimit": Reason("It used more memory than its limit.", _STUCK, Repair.RESTART),
}


@dataclass(frozen=True, slots=True)
class HeartbeatLimits:
    """After how many seconds a heartbeat is stale, a tool call or a turn stuck."""

    stale_after: float
    max_tool_call: float
    max_turn: float

    @staticmethod
    def of(fields: Fields) -> HeartbeatLimits | None:
        """The limits that the fields of a runtime ask for; None when they ask for no heartbeat."""
        asked = read_health(fields).get("heartbeat")
        if not asked:
            return None
        return HeartbeatLimits(
            seconds(asked.get("staleAfter", "60s")),
            seconds(asked.get("maxToolCall", "15m")),
            seconds(asked.get("maxTurn", "1h")),
        )


@dataclass(frozen=True, slots=True)
class Desired:
    """The fields of a local runtime, decoded. ``env`` holds literals and references, never a secret."""

    command: tuple[str, ...]
    workdir: str | None
    env: tuple[Mapping[str, Any], ...]
    replicas: int
    stop: tuple[int, float]  # signal and grace in seconds
    memory_limit: int | None
    spec: str
    max_unavailable: int = 1
    settles_within: float = SETTLE_SECONDS  # after which a replica that is not Ready keeps none waiting
    follows_secrets: bool = False  # restarted when a secret was rotated
    heartbeat: HeartbeatLimits | None = None

    @staticmethod
    @lru_cache(65_536)  # those of a fleet are asked for with every observation, and rarely change
    def of(fields: Fields) -> Desired:
        """Decode the fields that ``runtime_resources`` made."""
        value = fields.value
        return Desired(
            command=tuple(value["command"]),
            workdir=value["workdir"],
            env=tuple(value["env"]),
            replicas=value["replicas"] if value["state"] == "Running" else 0,
            stop=(signal.Signals[value["stop"]["signal"]], min(value["stop"]["grace"], MAX_GRACE_SECONDS)),
            memory_limit=value["memoryLimit"],
            spec=value["spec"],
            max_unavailable=value.get("maxUnavailable", 1),
            settles_within=SETTLE_SECONDS + seconds(read_health(fields).get("minUptime", "1s")),
            follows_secrets=value.get(ON_SECRET_CHANGE) == "Restart",
            heartbeat=HeartbeatLimits.of(fields),
        )

    @classmethod
    def of_runtime(cls, runtime: Fields) -> Desired:
        """Enough to run a command as an agent that may be gone: what ``run_as`` made of its document."""
        value = runtime.value
        return cls((), value["workdir"], tuple(value["env"]), 0, (signal.SIGTERM, 0.0), None, runtime.digest)


def runtime_key(agent: AgentKey, driver: str) -> ResourceKey:
    """The name of an agent's runtime on this host."""
    return ResourceKey(agent, Kind.RUNTIME.value, driver)


def runtime_resources(driver: str, asked: Compilation) -> tuple[Resource, ...]:
    """The runtime of an agent if it names this driver; Refused in one sentence when it cannot be run so."""
    spec, runtime = asked.document.spec, asked.document.spec.runtime
    if runtime.driver != driver or spec.lifecycle == "Retired":
        return ()
    if refused := list(_refusals(driver, runtime)):
        raise Refused(str(refused[0]), refused[0].at, refused[1:])
    stopped = spec.lifecycle == "Stopped"
    needs_restart: dict[str, JSON] = {
        "command": runtime.command,
        "workdir": runtime.workdir,
        "env": [_env(variable) for variable in runtime.env],
        "config": HOT if runtime.reload == "Hot" else asked.bundle.digest,
    }
    limit = runtime.resources.limits.memory
    fields = {
        **needs_restart,
        "spec": digest(canonical(needs_restart)),
        "reload": runtime.reload,
        "replicas": 0 if stopped else runtime.replicas,
        "state": "Stopped" if stopped else "Running",
        "stop": {"signal": runtime.stop.signal, "grace": seconds(runtime.stop.grace)},
        "memoryLimit": memory_bytes(limit) if limit is not None else None,
        **health_fields(asked.document),
        # Only where a document says so: a field that all have would touch all agents with a new version of ours.
        **({"maxUnavailable": runtime.update.max_unavailable} if runtime.update != Update() else {}),
        **({ON_SECRET_CHANGE: "Restart"} if runtime.on_secret_change == "Restart" else {}),  # noqa: S105
    }
    key = runtime_key(asked.agent, driver)
    return (Resource(key, driver, Fields.of(fields), restart_on=("spec",), stopped=stopped),)


def run_as(document: AgentDocument) -> dict[str, JSON]:
    """What a command needs to be run as the agent. References only, never a secret."""
    runtime = document.spec.runtime
    return {"workdir": runtime.workdir, "env": [_env(variable) for variable in runtime.env]}


def _env(variable: EnvVar) -> dict[str, JSON]:
    if variable.value_from is None:
        return {"name": variable.name, "value": variable.value}
    reference = variable.value_from.secret_ref
    return {"name": variable.name, "secretRef": {"provider": reference.provider, "name": reference.name}}


def _refusals(driver: str, runtime: Runtime) -> Iterator[Refused]:
    """What the schema allows, because other drivers can do it, and this one cannot."""
    if not runtime.command or not runtime.command[0]:
        yield Refused(f"driver {driver} needs command: the program and its arguments", ("runtime",))
    if runtime.image is not None:
        message = f"runtime.image means nothing to the {driver} driver: remove it or choose another driver"
        yield Refused(message, ("runtime", "image"))
    if runtime.workdir is not None and not posixpath.isabs(runtime.workdir):
        message = f"runtime.workdir {runtime.workdir!r} is relative: give an absolute path, or none"
        yield Refused(message, ("runtime", "workdir"))
    if runtime.stop.signal not in SIGNALS:
        message = f"runtime.stop.signal {runtime.stop.signal!r} is none of {', '.join(SIGNALS)}"
        yield Refused(message, ("runtime", "stop", "signal"))
    for position, variable in enumerate(runtime.env):
        if variable.value_from is None:
            continue
        name, secret = variable.name, variable.value_from.secret_ref
        at = ("runtime", "env", position, "valueFrom", "secretRef", "name")
        if problem := secret_problem(secret):
            yield Refused(f"runtime.env {name}: {problem}", at)


def secret_problem(reference: SecretRef) -> str:
    """Why a secret of this host cannot be found by a reference, or nothing."""
    if reference.provider == "file" and not posixpath.isabs(reference.name):
        return f"the secret file {reference.name!r} needs an absolute path"
    if reference.provider == "env" and reference.name.startswith(OWN_SETTINGS):
        return f"{OWN_SETTINGS}… are settings of ours, not for agents"
    return ""


def local_plugin(
    name: str,
    connect: Callable[[Context], Driver],
    check: Callable[[Context], CheckResult],
    reasons: Mapping[str, Reason] | None = None,
) -> Plugin:
    """The plugin of a driver whose agents are processes of this host. ``reasons``: what it adds to the codes."""
    return Plugin(
        name,
        (RUNTIME,),
        partial(runtime_resources, name),
        connect,
        reasons={**REASONS, **(reasons or {})},
        checks=(check,),
        run_as=run_as,
        local=True,
        bundle_file=True,
        instances="replicas",
    )
