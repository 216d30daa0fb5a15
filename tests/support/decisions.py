"""What plans decided, as the journal keeps it: the package itself only counts and matches these rows."""

from typing import Any

from sqlalchemy import select

from gitops_agent.journal.rows import from_row
from gitops_agent.journal.schema import decisions
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.plan import Action


def decided(journal: SqlJournal, **where: Any) -> list[Any]:
    """The rows of decisions, executed or not, newest plan first and in the order of the plan."""
    table = decisions
    query = select(table).filter_by(**where).order_by(table.c.at.desc(), table.c.plan, table.c.ordinal)
    with journal._database.reading() as connection:
        return list(connection.execute(query))


def action_of(row: Any) -> Action:
    """The action in a row of decisions; it has no fields of base, desired and live."""
    action: Action = from_row(decisions, Action, row)
    return action
