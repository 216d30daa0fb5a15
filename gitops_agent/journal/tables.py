"""Whole tables as the maps that the state holds."""

from sys import intern

from sqlalchemy import Connection, func, select

from gitops_agent.journal import rows, schema
from gitops_agent.journal.statements import CHUNK_ROWS
from gitops_agent.model.control import Control
from gitops_agent.model.fields import JSON
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt, Intent
from gitops_agent.model.status import AgentStatus


def state_rows(connection: Connection) -> dict[str, JSON]:
    """The rows of the table ``state``, by name."""
    return dict(connection.execute(select(schema.state)).all())


def bases(connection: Connection) -> dict[ResourceKey, Base]:
    """What we last applied, for every resource."""
    found = connection.execute(select(schema.bases)).yield_per(CHUNK_ROWS)
    # By position, and with words shared that repeat: tens of thousands are read at once.
    return {
        key: Base(key, intern(driver), fields, intern(commit), *more)
        for key, driver, fields, commit, *more in found
    }


def attempts(connection: Connection) -> dict[ResourceKey, Attempt]:
    """The retry state of the resources that failed."""
    return {key: Attempt(*more) for key, *more in connection.execute(select(schema.attempts))}


def open_intents(connection: Connection) -> dict[str, Intent]:
    """Intents without an outcome by id, oldest first."""
    query = select(schema.intents).where(schema.intents.c.result.is_(None)).order_by(schema.intents.c.seq)
    return {row.id: rows.intent_of(row) for row in connection.execute(query)}


def statuses(connection: Connection) -> dict[AgentKey, AgentStatus]:
    """The last reported status of every agent."""
    query = select(schema.statuses.c.value).order_by(schema.statuses.c.agent)
    return {status.agent: status for status in connection.execute(query).scalars()}


def status(connection: Connection, agent: AgentKey) -> AgentStatus | None:
    """The last reported status of one agent."""
    return connection.execute(select(schema.statuses.c.value).where(schema.statuses.c.agent == agent)).scalar()


def controls(connection: Connection, after: int = 0) -> tuple[Control, ...]:
    """The controls with greater numbers than one, oldest first."""
    table = schema.controls
    query = select(table).where(table.c.seq > after).order_by(table.c.seq)
    return tuple(rows.from_row(table, Control, row) for row in connection.execute(query))


def fingerprints(connection: Connection) -> dict[ResourceKey, bytes]:
    """The fingerprint of the last observation of every resource."""
    table = schema.observations
    newest = select(func.max(table.c.seq)).group_by(table.c.key)
    query = select(table.c.key, table.c.fingerprint).where(table.c.seq.in_(newest))
    return dict(connection.execute(query).all())
