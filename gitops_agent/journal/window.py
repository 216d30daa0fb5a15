"""Records of commits: those that a pass needs, found by indexes however long the history is, and single ones."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, select

from gitops_agent.journal.schema import commits as table
from gitops_agent.journal.statements import chunks
from gitops_agent.model.codec import from_json
from gitops_agent.model.state import MAX_RECORDS
from gitops_agent.model.status import CommitRecord, Phase

_NEWEST_FIRST = select(table.c.value).order_by(table.c.position.desc())


def record(connection: Connection, sha: str) -> CommitRecord | None:
    """The record of one commit."""
    return among(connection, [sha]).get(sha)


def among(connection: Connection, shas: Iterable[str]) -> dict[str, CommitRecord]:
    """The records of these commits that there are, by sha."""
    found = (each for part in chunks(shas) for each in _found(connection, table.c.sha.in_(part)))
    return {each.sha: each for each in found}


def records(connection: Connection, limit: int | None, tree: str | None, sha: str) -> Sequence[CommitRecord]:
    """Records newest first: all, those of one tree, those whose sha begins so."""
    conditions = []
    if tree is not None:
        conditions.append(table.c.tree == tree)
    if sha:
        conditions.append(table.c.sha.startswith(sha, autoescape=True))
    return _found(connection, *conditions, limit=limit)


def window(connection: Connection, head: str | None) -> dict[str, CommitRecord]:
    """What ``model.state.trimmed`` would leave of all records."""
    apart = table.c.sha != (head or "")
    converged = _found(connection, table.c.phase == Phase.CONVERGED.value, apart, limit=1)
    since = table.c.position >= (converged[0].position if converged else -1)
    kept = {each.sha: each for each in (*_found(connection, since, limit=MAX_RECORDS), *converged)}
    if head is not None and head not in kept:
        kept.update(among(connection, [head]))
    for part in chunks(kept):
        kept.update((each.sha, each) for each in _found(connection, table.c.rolled_back_by.in_(part)))
    return kept


def _found(
    connection: Connection, *conditions: ColumnElement[bool], limit: int | None = None
) -> list[CommitRecord]:
    query = _NEWEST_FIRST.where(*conditions).limit(limit)
    return [from_json(CommitRecord, value) for value in connection.execute(query).scalars()]
