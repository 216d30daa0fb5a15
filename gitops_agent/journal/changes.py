"""What one transaction writes: found by comparing two states, and written."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields

from sqlalchemy import Connection

from gitops_agent.journal import owed, rows, schema
from gitops_agent.journal.parts import changed_entries, changed_rows
from gitops_agent.journal.statements import delete, insert, replace
from gitops_agent.model.control import Control
from gitops_agent.model.fields import JSON
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Plan
from gitops_agent.model.state import State
from gitops_agent.model.status import AgentStatus, CommitRecord

VERSION = "commits.version"
"""The row of the table ``state`` that counts how often records of commits were written."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows that change. ``fields``: rows of the table ``state``; None removes one. ``observations``: rows."""

    fields: Mapping[str, JSON] = field(default_factory=dict)
    bases: Mapping[ResourceKey, Base] = field(default_factory=dict)
    forgotten: Collection[ResourceKey] = ()
    attempts: Mapping[ResourceKey, Attempt | None] = field(default_factory=dict)
    statuses: Mapping[AgentKey, AgentStatus] = field(default_factory=dict)
    removed: Collection[AgentKey] = ()
    records: Mapping[str, CommitRecord] = field(default_factory=dict)
    controls: Sequence[Control] = ()
    plans: Sequence[Plan] = ()
    observations: Sequence[rows.Row] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))


def between(old: State, new: State) -> Changes:
    """What differs, apart from open intents, which only ``begin`` and ``finish`` change."""
    bases, forgotten = changed_entries(old.reconcile.bases, new.reconcile.bases)
    failing, over = changed_entries(old.reconcile.attempts, new.reconcile.attempts)
    statuses, removed = changed_entries(old.status.agents, new.status.agents)
    records, _ = changed_entries(old.commits.records, new.commits.records)  # others were trimmed, not deleted
    controls = () if new.control.controls is old.control.controls else new.control.controls
    return Changes(
        fields=changed_rows(old, new),
        bases=bases,
        forgotten=forgotten,
        attempts={**failing, **dict.fromkeys(over)},
        statuses=statuses,
        removed=removed,
        records=records,
        controls=[control for control in controls if not control.seq],
    )


def write(connection: Connection, changes: Changes, *, at: float = 0.0) -> None:
    """Write the rows. ``at``: when the plans were made."""
    _write_fields(connection, changes.fields)
    delete(connection, schema.bases, "key", map(str, changes.forgotten))
    replace(connection, schema.bases, "key", map(rows.base_row, changes.bases.values()))
    delete(connection, schema.attempts, "key", map(str, changes.attempts))
    failing = [rows.attempt_row(key, each) for key, each in changes.attempts.items() if each]
    insert(connection, schema.attempts, failing)
    delete(connection, schema.statuses, "agent", map(str, changes.removed))
    replace(connection, schema.statuses, "agent", map(rows.status_row, changes.statuses.values()))
    replace(connection, schema.commits, "sha", map(rows.commit_row, changes.records.values()))
    insert(connection, schema.controls, [rows.control_row(control) for control in changes.controls])
    insert(connection, schema.decisions, [row for plan in changes.plans for row in rows.decision_rows(plan, at)])
    insert(connection, schema.observations, changes.observations)


def write_owed(connection: Connection, sinks: Collection[str], shas: Collection[str], version: int) -> None:
    """Write that sinks owe commits whose records changed, and the version of that change."""
    _write_fields(connection, {VERSION: version})
    owed.owe(connection, sinks, shas, version)


def _write_fields(connection: Connection, changed: Mapping[str, JSON]) -> None:
    delete(connection, schema.state, "part", changed)
    kept = [{"part": part, "value": value} for part, value in changed.items() if value is not None]
    insert(connection, schema.state, kept)
