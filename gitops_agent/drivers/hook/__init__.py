"""Hooks: what is called once in the life of an agent, and never twice by itself.

What belongs here: which hooks a document asks for, calling them and keeping how it ended in our own record
(``driver``). What does not: when a hook is due (``plan/hooks.py``), and what becomes of a call that a crash cut
off (``reconcile/recovery.py``). What the codes of hooks mean is in core, because core decides when they run.
"""

from gitops_agent.drivers.api import (
    HOOK,
    JSON,
    AgentKey,
    Compilation,
    Context,
    Driver,
    Fields,
    Kind,
    Plugin,
    Resource,
    ResourceKey,
    seconds,
)
from gitops_agent.model.document import Hook
from gitops_agent.model.key import ON_PROVISIONED, ON_RETIRED

DRIVER = "hook"


def hook_key(agent: AgentKey, name: str) -> ResourceKey:
    """The name of one hook of an agent."""
    return ResourceKey(agent, Kind.HOOK.value, name)


def resources(asked: Compilation) -> tuple[Resource, ...]:
    """One resource for each hook that is given."""
    spec = asked.document.spec
    if spec.lifecycle == "Retired":
        return ()
    given = {ON_PROVISIONED: spec.hooks.on_provisioned, ON_RETIRED: spec.hooks.on_retired}
    return tuple(
        Resource(
            key=hook_key(asked.agent, name), driver=DRIVER, fields=_fields(name, hook, asked), idempotent=False
        )
        for name, hook in given.items()
        if hook is not None
    )


def _fields(name: str, hook: Hook, asked: Compilation) -> Fields:
    fields: dict[str, JSON] = {
        "command": hook.command,
        "http": hook.http.model_dump(by_alias=True) if hook.http else None,
        "timeout": seconds(hook.timeout),
        # With the hook, because its agent may be gone when it is called.
        "runtime": dict(asked.run_as) if hook.command else None,
    }
    if name == ON_PROVISIONED:
        # A stopped agent is not provisioned.
        fields["lifecycle"] = asked.document.spec.lifecycle
    return Fields.of(fields)


def connect(context: Context) -> Driver:
    """The hook driver of one instance: commands are run by the runtime drivers."""
    from gitops_agent.drivers.hook.driver import HookDriver

    return HookDriver(context)


PLUGIN = Plugin(DRIVER, (HOOK,), resources, connect, local=True)
