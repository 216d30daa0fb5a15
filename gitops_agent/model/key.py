"""Names of things: agents are ``tenant/name``, resources ``tenant/name:kind/id``."""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from sys import intern
from typing import NamedTuple


class Kind(StrEnum):
    """The kinds of resource that core knows, in the order in which one agent is brought up; plugins add others."""

    ENTITLEMENT = "entitlement"
    CREDENTIAL = "credential"
    CONFIG = "config"
    RUNTIME = "runtime"
    DNS = "dns"
    CHANNEL = "channel"
    HOOK = "hook"


ON_PROVISIONED, ON_RETIRED = "onProvisioned", "onRetired"
"""The hooks of an agent, by the names they have in its document."""


class AgentKey(NamedTuple):
    """The name of one managed agent."""

    tenant: str
    name: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "AgentKey":
        """Read ``tenant/name``; ValueError otherwise."""
        tenant, slash, name = text.partition("/")
        if not slash or not tenant or not name or "/" in name:
            raise ValueError(f"not an agent key: {text!r} (expected tenant/name)")
        return cls(tenant, name)


Scope = frozenset[AgentKey] | None
"""Which agents a pass looks at: some, or (None) all of them."""


class ResourceKey(NamedTuple):
    """The name of one object in one live system."""

    agent: AgentKey
    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.agent.tenant}/{self.agent.name}:{self.kind}/{self.id}"

    @classmethod
    def parse(cls, text: str) -> "ResourceKey":
        """Read ``tenant/name:kind/id``; ValueError otherwise. Words that repeat are shared: ten thousand agents
        have few tenants and kinds."""
        agent, _, rest = text.partition(":")
        tenant, _, name = agent.partition("/")
        kind, _, identity = rest.partition("/")
        if not (tenant and name and kind and identity) or "/" in name:
            raise ValueError(f"not a resource key: {text!r} (expected tenant/name:kind/id)")
        return cls(AgentKey(intern(tenant), name), intern(kind), intern(identity))


# -- which agent a person means: by ``tenant/name``, or by the name alone where only one tenant has it


def named(text: str, agents: Iterable[AgentKey]) -> list[AgentKey]:
    """The agents that a text names, sorted."""
    return sorted(key for key in agents if text in (str(key), key.name))


def nearest(text: str, agents: Sequence[AgentKey]) -> list[AgentKey]:
    """The agents whose names are most like a text that names none; all of them when none is."""
    whole = get_close_matches(text, list(map(str, agents)), 5)
    bare = get_close_matches(text.rpartition("/")[2], {key.name for key in agents}, 5)
    return [key for key in agents if str(key) in whole or key.name in bare] or list(agents)


def listed(text: str, matches: Sequence[object], agents: Collection[AgentKey], limit: int) -> str:
    """The names to offer when a text names none or several: those it fits, else those most like it."""
    return ", ".join(str(each) for each in (matches or nearest(text, sorted(agents)))[:limit]) or "none yet"
