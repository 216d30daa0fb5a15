"""Which hooks a document asks for. Pure."""

from __future__ import annotations

from gitops_agent.model.agent import Resource
from gitops_agent.model.document import AgentDocument, AgentSpec, EnvVar, Hook, Runtime
from gitops_agent.model.fields import JSON, Fields
from gitops_agent.model.key import ON_PROVISIONED, ON_RETIRED, AgentKey, Kind, ResourceKey
from gitops_agent.model.quantity import seconds

DRIVER = "hook"


def hook_key(agent: AgentKey, name: str) -> ResourceKey:
    """The name of one hook of an agent."""
    return ResourceKey(agent, Kind.HOOK.value, name)


def resources(agent: AgentKey, document: AgentDocument) -> tuple[Resource, ...]:
    """One resource for each hook that is given."""
    spec = document.spec
    if spec.lifecycle == "Retired":
        return ()
    given = {ON_PROVISIONED: spec.hooks.on_provisioned, ON_RETIRED: spec.hooks.on_retired}
    return tuple(
        Resource(key=hook_key(agent, name), driver=DRIVER, fields=_fields(name, hook, spec), idempotent=False)
        for name, hook in given.items()
        if hook is not None
    )


def _fields(name: str, hook: Hook, spec: AgentSpec) -> Fields:
    fields: dict[str, JSON] = {
        "command": hook.command,
        "http": hook.http.model_dump(by_alias=True) if hook.http else None,
        "timeout": seconds(hook.timeout),
        # With the hook, because its agent may be gone when it is called.
        "runtime": _runtime(spec.runtime) if hook.command else None,
    }
    if name == ON_PROVISIONED:
        # A stopped agent is not provisioned: nobody is there yet.
        fields["lifecycle"] = spec.lifecycle
    return Fields.of(fields)


def _runtime(runtime: Runtime) -> dict[str, JSON]:
    """What a command needs to be run as the agent. References only, never a secret."""
    return {"driver": runtime.driver, "workdir": runtime.workdir, "env": [_env(each) for each in runtime.env]}


def _env(variable: EnvVar) -> dict[str, JSON]:
    if variable.value_from is None:
        return {"name": variable.name, "value": variable.value}
    reference = variable.value_from.secret_ref
    return {"name": variable.name, "secretRef": {"provider": reference.provider, "name": reference.name}}
