"""Whole tables as the maps that the state holds."""

from sqlalchemy import Connection, func, select

from gitops_agent.journal import rows, schema
from gitops_agent.journal.statements import CHUNK_ROWS
from gitops_agent.model.codec import from_json, resource_key
from gitops_agent.model.control import Control
from gitops_agent.model.fields import JSON
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt, Intent
from gitops_agent.model.status import AgentStatus


def state_rows(connection: Connection) -> dict[str, JSON]:
    """The rows of the table ``state``, by name."""
    return dict(connection.execute(select(schema.state.c.part, schema.state.c.value)).all())


def bases(connection: Connection) -> dict[ResourceKey, Base]:
    """What we last applied, for every resource."""
    found = map(rows.base_of, connection.execute(select(schema.bases)).yield_per(CHUNK_ROWS))
    return {base.key: base for base in found}


def attempts(connection: Connection) -> dict[ResourceKey, Attempt]:
    """The retry state of the resources that failed."""
    found = connection.execute(select(schema.attempts))
    return {resource_key(row.key): rows.attempt_of(row) for row in found}


def open_intents(connection: Connection) -> dict[str, Intent]:
    """Intents without an outcome by id, oldest first."""
    query = select(schema.intents).where(schema.intents.c.result.is_(None)).order_by(schema.intents.c.seq)
    return {row.id: rows.intent_of(row) for row in connection.execute(query)}


def statuses(connection: Connection) -> dict[AgentKey, AgentStatus]:
    """The last reported status of every agent."""
    query = select(schema.statuses.c.value).order_by(schema.statuses.c.agent)
    found = (from_json(AgentStatus, value) for value in connection.execute(query).scalars())
    return {status.agent: status for status in found}


def status(connection: Connection, agent: AgentKey) -> AgentStatus | None:
    """The last reported status of one agent."""
    query = select(schema.statuses.c.value).where(schema.statuses.c.agent == str(agent))
    value = connection.execute(query).scalar()
    return None if value is None else from_json(AgentStatus, value)


def controls(connection: Connection, after: int = 0) -> tuple[Control, ...]:
    """The controls with greater numbers than one, oldest first."""
    query = select(schema.controls).where(schema.controls.c.seq > after).order_by(schema.controls.c.seq)
    return tuple(rows.control_of(row) for row in connection.execute(query))


def fingerprints(connection: Connection) -> dict[ResourceKey, bytes]:
    """The fingerprint of the last observation of every resource."""
    table = schema.observations
    newest = select(func.max(table.c.seq)).group_by(table.c.key)
    query = select(table.c.key, table.c.fingerprint).where(table.c.seq.in_(newest))
    return {resource_key(key): mark for key, mark in connection.execute(query)}
