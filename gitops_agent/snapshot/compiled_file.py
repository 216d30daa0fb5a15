"""What one file of the repository contributes, once it has been read well: frozen, small, and kept by the cache.

Its bytes are one line of JSON that describes, then the canonical JSON of each resource. Canonical JSON holds no
line feed, so lines need no escaping, and the bytes of a resource are stored as they are. Agents are encoded by
hand, for speed; what is rare goes through the codec of all values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any

import orjson

from gitops_agent.model.agent import Agent, DeletionPolicy, Lifecycle, Mode, Origin, Pause, Resource
from gitops_agent.model.codec import from_json, to_json
from gitops_agent.model.document import CredentialPoolSpec, PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey

Labels = tuple[tuple[str, str], ...]
# A lookup here takes a third of the time of a call of the enumeration.
LIFECYCLES = {word.value: word for word in Lifecycle}
DELETIONS = {word.value: word for word in DeletionPolicy}
MODES = {word.value: word for word in Mode}


@dataclass(frozen=True, slots=True)
class AgentUnit:
    """One compiled agent, and what its compilation depended on besides its own document.

    ``labels`` are the authored ones, which selectors look at; ``shared`` the digests of the overlays and the
    credential pool that it was compiled with; ``inlined`` the path and blob of the file that gave the
    instructions; ``pool`` the credential pool it names.
    """

    agent: Agent
    labels: Labels = ()
    shared: tuple[str, ...] = ()
    inlined: tuple[str, str] | None = None
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class OverlayUnit:
    """One overlay for this instance: which agents it selects, and its patches as canonical JSON."""

    origin: Origin
    digest: str
    tenant: str | None
    names: frozenset[str]
    labels: Labels
    patches: str

    def selects(self, key: AgentKey, labels: Labels) -> bool:
        """Whether it applies to an agent."""
        if self.tenant is not None and self.tenant != key.tenant:
            return False
        return (not self.names or key.name in self.names) and all(label in labels for label in self.labels)


@dataclass(frozen=True, slots=True)
class PoolUnit:
    """A credential pool: of one tenant, or (tenant "") for all of them."""

    origin: Origin
    digest: str
    tenant: str
    name: str
    spec: CredentialPoolSpec


@dataclass(frozen=True, slots=True)
class PolicyUnit:
    """The policy document."""

    origin: Origin
    spec: PolicySpec


@dataclass(frozen=True, slots=True)
class CompiledFile:
    """Everything one file contributes; ``findings`` holds no errors."""

    path: str
    blob: str
    agents: tuple[AgentUnit, ...] = ()
    overlays: tuple[OverlayUnit, ...] = ()
    policies: tuple[PolicyUnit, ...] = ()
    pools: tuple[PoolUnit, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def is_special(self) -> bool:
        """Whether there is more to it than agents."""
        return bool(self.overlays or self.policies or self.pools or self.findings)


@dataclass(frozen=True, slots=True)
class Shared:
    """What agents are compiled with besides their own documents: overlays in the order in which they apply, and
    credential pools by tenant and name."""

    overlays: tuple[OverlayUnit, ...] = ()
    pools: Mapping[tuple[str, str], PoolUnit] = field(default_factory=dict)

    def plus(self, overlays: Iterable[OverlayUnit], pools: Iterable[PoolUnit]) -> Shared:
        """These and some more."""
        every = sorted((*self.overlays, *overlays), key=lambda overlay: (overlay.origin.path, overlay.origin.line))
        return Shared(tuple(every), {**self.pools, **{(pool.tenant, pool.name): pool for pool in pools}})

    @property
    def digests(self) -> list[str]:
        """What differs when any of them does."""
        return [unit.digest for unit in self.overlays] + sorted(pool.digest for pool in self.pools.values())

    def matching(self, key: AgentKey, labels: Labels) -> tuple[OverlayUnit, ...]:
        """The overlays that select an agent."""
        return tuple(overlay for overlay in self.overlays if overlay.selects(key, labels)) if self.overlays else ()

    def pool(self, tenant: str, name: str | None) -> PoolUnit | None:
        """The pool that an agent of a tenant means by a name: the tenant's own, or one for all."""
        return None if name is None else self.pools.get((tenant, name)) or self.pools.get(("", name))

    def is_current(self, unit: AgentUnit) -> bool:
        """Whether an agent was compiled with what stands here."""
        key = unit.agent.key
        digests = tuple(overlay.digest for overlay in self.matching(key, unit.labels))
        pool = self.pool(key.tenant, unit.pool)
        return unit.shared == (digests if pool is None else (*digests, pool.digest))


def encode(file: CompiledFile) -> bytes:
    """The bytes of a compiled file (its path and blob are the name under which they are kept)."""
    others = to_json(CompiledFile, replace(file, agents=())) if file.is_special else None
    contents = [resource.fields.raw for agent in file.agents for resource in agent.agent.resources]
    return b"\n".join([orjson.dumps([[_agent_row(agent) for agent in file.agents], others]), *contents])


def decode(path: str, blob: str, data: bytes) -> CompiledFile:
    """The compiled file of some bytes; ValueError, TypeError, KeyError or IndexError when they are not ours."""
    head, *contents = data.split(b"\n")
    rows, others = orjson.loads(head)
    rest = iter(contents)
    agents = tuple([_agent_unit(row, path, blob, rest) for row in rows])
    if others is None:
        return CompiledFile(path, blob, agents)
    special: CompiledFile = from_json(CompiledFile, others)
    return replace(special, agents=agents)


def _agent_row(unit: AgentUnit) -> list[Any]:
    # What a later version adds comes last: the rows of an earlier one are read too, and have not got it.
    agent = unit.agent
    return [
        *agent.key,
        agent.origin.line,
        [[r.key.kind, r.key.id, r.driver, r.restart_on, r.stopped, r.idempotent, r.kept] for r in agent.resources],
        agent.lifecycle,
        agent.deletion_policy,
        agent.mode,
        None if agent.pause is None else [agent.pause.reason, agent.pause.until],
        agent.adopt,
        agent.labels,
        [list(other) for other in agent.depends_on],
        agent.health_timeout,
        agent.authority,
        agent.description,
        agent.canary,
        agent.pause_after_ready,
        None if unit.labels == agent.labels else unit.labels,
        unit.shared,
        unit.inlined,
        unit.pool,
        agent.exclusive,
    ]


def _agent_unit(row: list[Any], path: str, blob: str, contents: Iterator[bytes]) -> AgentUnit:
    (tenant, name, line, resources, lifecycle, deletion, mode, pause, adopt, labels, depends_on) = row[:11]
    (health_timeout, authority, description, canary, pause_after_ready) = row[11:16]
    (authored, shared, inlined, pool) = row[16:20]
    (exclusive,) = row[20:] or (False,)
    key = AgentKey(intern(tenant), name)
    pairs = _pairs(labels) if labels else ()
    agent = Agent(
        key,
        Origin(path, line, blob),
        tuple([_resource(key, fields, contents) for fields in resources]),
        LIFECYCLES[lifecycle],
        DELETIONS[deletion],
        MODES[mode],
        Pause(*pause) if pause is not None else None,
        adopt,
        pairs,
        tuple([AgentKey(*other) for other in depends_on]),
        health_timeout,
        _pairs(authority) if authority else (),
        description,
        canary,
        pause_after_ready,
        exclusive=exclusive,
    )
    own = pairs if authored is None else _pairs(authored)
    return AgentUnit(agent, own, tuple(shared), tuple(inlined) if inlined else None, pool)


def _resource(key: AgentKey, row: list[Any], contents: Iterator[bytes]) -> Resource:
    kind, identity, driver, restart_on, stopped, idempotent, kept = row
    name = ResourceKey(key, intern(kind), identity)
    fields = Fields(next(contents))
    return Resource(name, intern(driver), fields, tuple(map(intern, restart_on)), stopped, idempotent, kept)


def _pairs(rows: list[list[str]]) -> Labels:
    return tuple([(intern(name), intern(value)) for name, value in rows])
