"""Retention: what may leave the journal when it is old, and what never does.

Never: bases, retry states, the fields of the state, statuses, open intents, whatever belongs to a commit that is
not terminal yet, the last observation of a resource of ours, controls that have an effect (freezes in force,
approvals of plans on record), the newest records of commits and those that the state refers to. Notes keep what is
known of older commits.
"""

from sqlalchemy import ColumnElement, Connection, and_, func, not_, select

from gitops_agent.journal import tables
from gitops_agent.journal.rows import delete
from gitops_agent.journal.schema import bases, commits, controls, decisions, intents, observations, owed
from gitops_agent.model.control import spent
from gitops_agent.model.state import MAX_RECORDS, State
from gitops_agent.model.status import Phase

_UNSETTLED = [phase for phase in Phase if not phase.terminal]


def prune(connection: Connection, before: float, state: State) -> int:
    """Drop what is older than a moment and may go; how many rows went."""
    doomed = (
        intents.delete().where(
            intents.c.result.is_not(None), intents.c.finished_at < before, _settled(intents.c.commit)
        ),
        decisions.delete().where(decisions.c.at < before, _settled(decisions.c.commit)),
        observations.delete().where(observations.c.observed_at < before, not_(_last_of_ours())),
    )
    dropped = sum(connection.execute(statement).rowcount for statement in doomed)
    return dropped + _prune_controls(connection, before) + _prune_commits(connection, before, state)


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
    recorded = set(connection.execute(select(decisions.c.plan).distinct()).scalars())
    gone = spent(known, before, recorded)
    delete(connection, controls, "seq", gone)
    return len(gone)


def _settled(commit: ColumnElement[str]) -> ColumnElement[bool]:
    return commit.not_in(select(commits.c.sha).where(commits.c.phase.in_(_UNSETTLED)))


def _last_of_ours() -> ColumnElement[bool]:
    newest = select(func.max(observations.c.seq)).group_by(observations.c.key)
    return and_(observations.c.seq.in_(newest), observations.c.key.in_(select(bases.c.key)))
