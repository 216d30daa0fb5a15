"""Retention: what may leave the journal when it is old, and what never does.

Never: bases, retry states, the fields of the state, statuses, open intents, whatever belongs to a commit that is
not terminal yet, the last observation of a resource of ours, controls that have an effect (freezes in force,
approvals of plans on record), the newest records of commits and those that the state refers to. Notes keep what is
known of older commits.
"""

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, bindparam, func, not_, select

from gitops_agent.journal import tables
from gitops_agent.journal.plans import unpacked
from gitops_agent.journal.rows import delete
from gitops_agent.journal.schema import bases, commits, controls, decisions, intents, observations, owed, plans
from gitops_agent.model.control import spent
from gitops_agent.model.state import MAX_RECORDS, State
from gitops_agent.model.status import Phase

_UNSETTLED = [phase for phase in Phase if not phase.terminal]


MAX_ROWS = 20_000
"""How many rows of a table go at once: the next time goes on, and no pass waits for long."""

MAX_OBSERVATIONS = 500
"""How many observations of one resource are kept, however young: one that never rests would fill the disk."""


def prune(connection: Connection, before: float, state: State) -> int:
    """Drop what is older than a moment and may go, or is too much; how many rows went."""
    ended = (intents.c.result.is_not(None), intents.c.finished_at < before, _settled(intents.c.commit))
    dropped = _drop(connection, intents, select(intents.c.seq).where(*ended))
    seen = select(observations.c.seq).where(observations.c.observed_at < before, not_(_last_of_ours()))
    dropped += _drop(connection, observations, seen) + _drop(connection, observations, _too_many())
    dropped += _prune_plans(connection, before)
    return dropped + _prune_controls(connection, before) + _prune_commits(connection, before, state)


def _drop(connection: Connection, table: Table, doomed: Select[tuple[int]]) -> int:
    return connection.execute(table.delete().where(table.c.seq.in_(doomed.limit(MAX_ROWS)))).rowcount


def _too_many() -> Select[tuple[int]]:
    """The numbers of observations beyond the newest of their resource."""
    column = observations.c
    newest_first = func.row_number().over(partition_by=column.key, order_by=column.seq.desc())
    counted = select(column.seq, newest_first.label("place")).subquery()
    return select(counted.c.seq).where(counted.c.place > MAX_OBSERVATIONS)


def _prune_plans(connection: Connection, before: float) -> int:
    """Plans, and the decisions that no plan refers to any more."""
    dropped = connection.execute(plans.delete().where(plans.c.at < before, _settled(plans.c.commit))).rowcount
    kept = frozenset[str]().union(*map(unpacked, connection.execute(select(plans.c.actions)).scalars()))
    names = ("plan", "commit", "ordinal")
    old = select(*(decisions.c[name] for name in names), decisions.c.digest).where(
        decisions.c.at < before, _settled(decisions.c.commit)
    )
    gone = [row[:3] for row in connection.execute(old.limit(MAX_ROWS)) if row.digest not in kept]
    if gone:
        same = [decisions.c[name] == bindparam(f"of_{name}") for name in names]
        doomed = [dict(zip((f"of_{name}" for name in names), row, strict=True)) for row in gone]
        connection.execute(decisions.delete().where(*same), doomed)
    return dropped + len(gone)


def _prune_commits(connection: Connection, before: float, state: State) -> int:
    oldest_kept = select(commits.c.position).order_by(commits.c.position.desc()).offset(MAX_RECORDS - 1).limit(1)
    query = select(commits.c.sha).where(
        commits.c.settled_at < before,
        commits.c.phase.not_in(_UNSETTLED),
        commits.c.position < oldest_kept.scalar_subquery(),
    )
    needed = _referenced(state)
    gone = [sha for sha in connection.execute(query).scalars() if sha not in needed]
    delete(connection, commits, "sha", gone)
    delete(connection, owed, "commit", gone)
    return len(gone)


def _referenced(state: State) -> frozenset[str | None]:
    """The shas of the commits that a pass may ask for."""
    source, rollout = state.source, state.rollout
    return frozenset(
        (
            source.head,
            source.valid,
            source.verified,
            rollout.enforced,
            rollout.converged,
            rollout.rollout.commit if rollout.rollout else None,
            *rollout.released.values(),
            *(each.commit for each in rollout.failed_trees),
            *(each.commit for each in rollout.given_up.values()),
            *(each.commit for each in state.reconcile.open_intents.values()),
            *state.proposals.reverts,
            *state.commits.records,
        )
    )


def _prune_controls(connection: Connection, before: float) -> int:
    """After the decisions, because an approval of a plan that has just left means nothing any more."""
    known = tables.controls(connection)
    if not any(control.at < before for control in known):
        return 0
    recorded = set(connection.execute(select(plans.c.plan).distinct()).scalars())
    gone = spent(known, before, recorded)
    delete(connection, controls, "seq", gone)
    return len(gone)


def _settled(commit: ColumnElement[str]) -> ColumnElement[bool]:
    return commit.not_in(select(commits.c.sha).where(commits.c.phase.in_(_UNSETTLED)))


def _last_of_ours() -> ColumnElement[bool]:
    newest = select(func.max(observations.c.seq)).group_by(observations.c.key)
    return and_(observations.c.seq.in_(newest), observations.c.key.in_(select(bases.c.key)))
