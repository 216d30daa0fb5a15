"""Retention: what may leave the journal when it is old, and what never does.

Never: bases, retry states, named values, statuses, records of commits (rollbacks are recognised by them), open
intents, whatever belongs to a commit that is not terminal yet, the last observation of a resource of ours, and
controls that have an effect: freezes that stand, approvals of plans on record.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, func, not_, select

from gitops_agent.journal.rows import control_of
from gitops_agent.journal.schema import bases, commits, controls, decisions, intents, observations
from gitops_agent.model.control import spent
from gitops_agent.model.state import State
from gitops_agent.model.status import Phase

_UNSETTLED = [phase.value for phase in Phase if not phase.terminal]


def prune(connection: Connection, before: float, state: State) -> int:
    """Drop what is older than a moment and may go; how many rows went."""
    doomed = (
        intents.delete().where(
            intents.c.result.is_not(None), intents.c.finished_at < before, _settled(intents.c.commit_sha)
        ),
        decisions.delete().where(decisions.c.at < before, _settled(decisions.c.commit_sha)),
        observations.delete().where(observations.c.observed_at < before, not_(_last_of_ours())),
    )
    dropped = sum(connection.execute(statement).rowcount for statement in doomed)
    return dropped + _prune_controls(connection, before)


def _prune_controls(connection: Connection, before: float) -> int:
    """After the decisions, because an approval of a plan that has just left means nothing any more."""
    said = [control_of(row) for row in connection.execute(select(controls).order_by(controls.c.seq))]
    if not any(control.at < before for control in said):
        return 0
    recorded = set(connection.execute(select(decisions.c.plan).distinct()).scalars())
    gone = spent(said, before, recorded)
    for seq in gone:
        connection.execute(controls.delete().where(controls.c.seq == seq))
    return len(gone)


def _settled(commit: ColumnElement[str]) -> ColumnElement[bool]:
    return commit.not_in(select(commits.c.sha).where(commits.c.phase.in_(_UNSETTLED)))


def _last_of_ours() -> ColumnElement[bool]:
    newest = select(func.max(observations.c.seq)).group_by(observations.c.key)
    return and_(observations.c.seq.in_(newest), observations.c.key.in_(select(bases.c.key)))
