"""Counting what the journal asks of its database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event

from gitops_agent.journal.store import SqlJournal


def statements(journal: SqlJournal) -> list[str]:
    """The statements that the journal sends from now on (BEGIN among them), as they are sent."""
    sent: list[str] = []

    def listen(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    event.listen(journal._database.engine, "before_cursor_execute", listen)
    return sent
