"""Compiled files as bytes and back: one line of JSON that describes, then the canonical JSON of each resource.

Canonical JSON holds no line feed, so lines need no escaping, and the bytes of a resource are stored as they are.
"""

from sys import intern
from typing import Any

import orjson

from gitops_agent.model.agent import Agent, DeletionPolicy, Lifecycle, Mode, Origin, Pause, Resource
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.snapshot.compiled_file import AgentUnit, CompiledFile, OverlayUnit, PolicyUnit, PoolUnit


def encode(file: CompiledFile) -> bytes:
    """The bytes of a compiled file (its path and blob are the name under which they are kept)."""
    head = [
        [_agent_row(agent) for agent in file.agents],
        [
            [o.origin.line, o.digest, o.tenant, sorted(o.names), o.labels, o.patches.decode()]
            for o in file.overlays
        ],
        [[policy.origin.line, policy.spec.model_dump_json(by_alias=True)] for policy in file.policies],
        [[pool.origin.line, pool.tenant, pool.name] for pool in file.pools],
        [[f.severity, f.code, f.address, f.summary, f.detail] for f in file.findings],
    ]
    contents = [resource.fields.raw for agent in file.agents for resource in agent.agent.resources]
    return b"\n".join([orjson.dumps(head), *contents])


def decode(path: str, blob: str, data: bytes) -> CompiledFile:
    """The compiled file of some bytes; ValueError, TypeError, KeyError or IndexError when they are not ours."""
    head, *contents = data.split(b"\n")
    agents, overlays, policies, pools, findings = orjson.loads(head)
    rest = iter(contents)
    return CompiledFile(
        path,
        blob,
        tuple(_agent_unit(row, path, blob, rest) for row in agents),
        tuple(
            OverlayUnit(Origin(path, line, blob), name, tenant, frozenset(names), _pairs(labels), patches.encode())
            for line, name, tenant, names, labels, patches in overlays
        ),
        tuple(PolicyUnit(Origin(path, line, blob), PolicySpec.model_validate_json(raw)) for line, raw in policies),
        tuple(PoolUnit(Origin(path, line, blob), tenant, name) for line, tenant, name in pools),
        tuple(Finding(Severity(severity), *texts) for severity, *texts in findings),
    )


def _agent_row(unit: AgentUnit) -> list[Any]:
    agent = unit.agent
    return [
        agent.key.tenant,
        agent.key.name,
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
        unit.overlays,
        unit.inlined,
        unit.pool,
    ]


def _agent_unit(row: list[Any], path: str, blob: str, contents: Any) -> AgentUnit:
    (tenant, name, line, resources, lifecycle, deletion, mode, pause, adopt) = row[:9]
    (labels, depends_on, health_timeout, authority, description, canary, pause_after_ready) = row[9:16]
    (authored, overlays, inlined, pool) = row[16:]
    key = AgentKey(intern(tenant), name)
    pairs = _pairs(labels) if labels else ()
    agent = Agent(
        key,
        Origin(path, line, blob),
        tuple([_resource(key, fields, contents) for fields in resources]),
        Lifecycle(lifecycle),
        DeletionPolicy(deletion),
        Mode(mode),
        Pause(*pause) if pause is not None else None,
        adopt,
        pairs,
        tuple([AgentKey(*other) for other in depends_on]),
        health_timeout,
        _pairs(authority) if authority else (),
        description,
        canary,
        pause_after_ready,
    )
    own = pairs if authored is None else _pairs(authored)
    return AgentUnit(agent, own, tuple(overlays), tuple(inlined) if inlined else None, pool)


def _resource(key: AgentKey, row: list[Any], contents: Any) -> Resource:
    kind, identity, driver, restart_on, *flags = row
    return Resource(
        ResourceKey(key, intern(kind), identity),
        intern(driver),
        Fields(next(contents)),
        tuple(map(intern, restart_on)),
        *flags,
    )


def _pairs(rows: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple([(intern(name), intern(value)) for name, value in rows])
