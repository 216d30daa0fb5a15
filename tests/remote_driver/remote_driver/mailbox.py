"""A new kind of resource with a section of its own: ``spec.mailbox`` in documents."""

from __future__ import annotations

from collections.abc import Sequence

from remote_driver import Settings
from remote_driver.client import Client

from gitops_agent.drivers.api import (
    Action,
    AgentKey,
    Applied,
    Class,
    Compilation,
    Context,
    Driver,
    Fields,
    Health,
    HealthState,
    Observation,
    ObserveRequest,
    Owner,
    Plugin,
    Reason,
    Resource,
    ResourceKey,
    ResourceKind,
    Strict,
)

NAME = "mailbox"
MAILBOX = ResourceKind(NAME, position=55, section=("spec", "mailbox"))  # after dns (50), before channels (60)


class Mailbox(Strict):
    """The section ``spec.mailbox``."""

    address: str
    quota: int = 100


def compile_mailbox(asked: Compilation) -> tuple[Resource, ...]:
    """One mailbox for a document that has the section."""
    if not isinstance(asked.options, Mailbox) or asked.document.spec.lifecycle == "Retired":
        return ()
    fields = Fields.of(asked.options.model_dump(by_alias=True))
    return (Resource(ResourceKey(asked.agent, NAME, "main"), NAME, fields),)


class MailboxDriver:
    """The mailboxes of the server. No capability but the contract."""

    def __init__(self, context: Context) -> None:
        self._client = Client(context)
        self._context = context

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Every mailbox of ours in scope; the absence of others goes without saying."""
        now, found = self._context.clock.now(), []
        for each in self._client.read(f"/mailboxes?owner={self._context.instance}"):
            key = ResourceKey(AgentKey.parse(each["agent"]), NAME, "main")
            if request.scope is None or key.agent in request.scope:
                fields = Fields.of({"address": each["address"], "quota": each["quota"]})
                state, health = (
                    ("Active", HealthState.HEALTHY) if each["active"] else ("Pending", HealthState.STARTING)
                )
                seen = Health(health, f"Mailbox{state}", f"{each['address']} is {state.lower()}")
                found.append(Observation(key, NAME, Owner.OURS, fields, state, now, health=seen))
        return found

    def apply(self, action: Action, key: str) -> Applied:
        """Make the mailbox as desired, or remove it."""
        path = f"/mailboxes/{action.key.agent}"
        if action.desired is None:
            self._client.write("DELETE", path, None, key)
            return Applied("deleted the mailbox")
        body = {"owner": self._context.instance, **action.desired.value}
        self._client.write("PUT", path, body, key)
        return Applied(f"made {body['address']}")


def connect(context: Context) -> Driver:
    """The mailboxes of one instance."""
    return MailboxDriver(context)


PLUGIN = Plugin(
    NAME,
    (MAILBOX,),
    compile_mailbox,
    connect,
    options=Mailbox,
    settings=Settings,
    reasons={"QuotaLost": Reason("The mailbox lost its quota.", Class.CONFLICTING, about_fields=True)},
)
