"""Records of commits: those that a pass needs, found by indexes however long the history is, and single ones."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, select, true

from gitops_agent.journal.schema import commits as table
from gitops_agent.journal.statements import chunks
from gitops_agent.model.state import MAX_RECORDS
from gitops_agent.model.status import CommitRecord, Phase


def among(connection: Connection, shas: Iterable[str]) -> dict[str, CommitRecord]:
    """The records of these commits that there are, by sha."""
    found = (each for part in chunks(shas) for each in _found(connection, table.c.sha.in_(part)))
    return {each.sha: each for each in found}


def records(connection: Connection, limit: int | None, tree: str | None, sha: str) -> Sequence[CommitRecord]:
    """Records newest first: all, those of one tree, those whose sha begins so."""
    of_tree = true() if tree is None else table.c.tree == tree
    return _found(connection, of_tree, table.c.sha.startswith(sha, autoescape=True), limit=limit)


def window(connection: Connection, head: str | None) -> dict[str, CommitRecord]:
    """What ``model.state.trimmed`` would leave of all records."""
    converged = _found(connection, table.c.phase == Phase.CONVERGED, table.c.sha != (head or ""), limit=1)
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
    query = select(table.c.value).where(*conditions).order_by(table.c.position.desc()).limit(limit)
    return list(connection.execute(query).scalars())
