"""Statuses of agents and records of commits, to rows and back."""

from __future__ import annotations

from gitops_agent.journal.rows import Found, Row, key_of
from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.finding import packed, unpacked
from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ConditionType, Phase, ResourceStatus


def status_row(status: AgentStatus) -> Row:
    """A status as a row."""
    return {
        "agent": str(status.agent),
        "ready": status.ready,
        "lifecycle": status.lifecycle.value,
        "conditions": [
            [item.type, item.status, item.reason, item.message, item.last_transition_at, item.observed_commit]
            for item in status.conditions
        ],
        "observed_commit": status.observed_commit,
        "resources": [
            [str(item.key), item.driver, item.state, item.health, item.live] for item in status.resources
        ],
        "origin": status.origin,
        "next_try_at": status.next_try_at,
    }


def status_of(row: Found) -> AgentStatus:
    """The status in a row."""
    return AgentStatus(
        agent=AgentKey.parse(row.agent),
        ready=row.ready,
        lifecycle=Lifecycle(row.lifecycle),
        conditions=tuple(Condition(ConditionType(kind), *rest) for kind, *rest in row.conditions),
        observed_commit=row.observed_commit,
        resources=tuple(ResourceStatus(key_of(key), *rest) for key, *rest in row.resources),
        origin=row.origin,
        next_try_at=row.next_try_at,
    )


def commit_row(record: CommitRecord) -> Row:
    """The record of a commit as a row."""
    row = {name: getattr(record, name) for name in CommitRecord.__slots__}
    return {**row, "phase": record.phase.value, "findings": packed(record.findings)}


def commit_of(row: Found) -> CommitRecord:
    """The record in a row."""
    values = row._asdict()
    return CommitRecord(**{**values, "phase": Phase(row.phase), "findings": unpacked(row.findings)})
