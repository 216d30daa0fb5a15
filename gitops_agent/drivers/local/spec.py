"""What a document asks of a runtime on this host: one resource with everything a start needs. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gitops_agent.model.agent import Resource
from gitops_agent.model.bundle import bundle
from gitops_agent.model.document import AgentDocument, EnvVar, Runtime, SecretRef
from gitops_agent.model.fields import JSON, Fields, canonical, digest
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.quantity import memory_bytes, seconds

OWN_SETTINGS = "GITOPS_AGENT_"
MAX_GRACE_SECONDS = 3600.0
HOT = "hot"  # in place of the bundle's digest: the agent reads its bundle again by itself


@dataclass(frozen=True, slots=True)
class Desired:
    """The fields of a local runtime, decoded. ``env`` holds literals and references, never a secret."""

    command: tuple[str, ...]
    workdir: str | None
    env: tuple[Mapping[str, Any], ...]
    replicas: int
    signal: str
    grace: float
    memory_limit: int | None
    spec: str

    @classmethod
    def of(cls, fields: Fields) -> Desired:
        """Decode the fields that ``resources`` made."""
        value = fields.value
        return cls(
            command=tuple(value["command"]),
            workdir=value["workdir"],
            env=tuple(value["env"]),
            replicas=value["replicas"] if value["state"] == "Running" else 0,
            signal=value["stop"]["signal"],
            grace=min(value["stop"]["grace"], MAX_GRACE_SECONDS),
            memory_limit=value["memoryLimit"],
            spec=value["spec"],
        )

    @classmethod
    def of_runtime(cls, runtime: Fields) -> Desired:
        """Enough to run a command as an agent that may be gone: the workdir and environment of its document."""
        value = runtime.value
        return cls((), value["workdir"], tuple(value["env"]), 0, "SIGTERM", 0.0, None, runtime.digest)


def runtime_key(agent: AgentKey, driver: str) -> ResourceKey:
    """The name of an agent's runtime on this host."""
    return ResourceKey(agent, Kind.RUNTIME.value, driver)


def runtime_resources(driver: str, agent: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
    """The runtime of an agent if it names this driver; ValueError in one sentence when it cannot be run so."""
    spec, runtime = document.spec, document.spec.runtime
    if runtime.driver != driver or spec.lifecycle == "Retired":
        return ()
    _check(driver, runtime)
    stopped = spec.lifecycle == "Stopped"
    needs_restart: dict[str, JSON] = {
        "command": runtime.command,
        "workdir": runtime.workdir,
        "env": [_env(variable) for variable in runtime.env],
        "config": HOT if runtime.reload == "Hot" else bundle(agent, document).digest,
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
    }
    return (
        Resource(
            key=runtime_key(agent, driver),
            driver=driver,
            fields=Fields.of(fields),
            restart_on=("spec",),
            dormant=stopped,
        ),
    )


def _env(variable: EnvVar) -> dict[str, JSON]:
    if variable.value_from is None:
        return {"name": variable.name, "value": variable.value}
    reference = variable.value_from.secret_ref
    return {"name": variable.name, "secretRef": {"provider": reference.provider, "name": reference.name}}


def _check(driver: str, runtime: Runtime) -> None:
    """What the schema allows, because other drivers can do it, and this one cannot."""
    if runtime.image is not None:
        raise ValueError(f"runtime.image means nothing to the {driver} driver: remove it or choose another driver")
    if runtime.workdir is not None and not posixpath.isabs(runtime.workdir):
        raise ValueError(f"runtime.workdir {runtime.workdir!r} is relative: give an absolute path, or none")
    if seconds(runtime.stop.grace) > MAX_GRACE_SECONDS:
        raise ValueError(f"runtime.stop.grace {runtime.stop.grace} is more than 1h, which is the longest")
    for variable in runtime.env:
        if variable.value_from is not None:
            _check_secret(variable.name, variable.value_from.secret_ref)


def _check_secret(name: str, reference: SecretRef) -> None:
    if reference.provider == "file" and not posixpath.isabs(reference.name):
        raise ValueError(f"runtime.env {name}: the secret file {reference.name!r} needs an absolute path")
    if reference.provider == "env" and reference.name.startswith(OWN_SETTINGS):
        raise ValueError(f"runtime.env {name}: {OWN_SETTINGS}… are settings of ours, not for agents")
