"""Statements that were compiled for one journal serve every other journal of the same process.

SQLAlchemy keeps what it compiled with each engine. A test process opens thousands of journals, one engine each,
with the same statements: compiling them anew is a third of what a short story costs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

_COMPILED: dict[Any, Any] = {}


def share_statements() -> None:
    """From now on, in this process."""
    # What is compiled is kept by dialect, and every engine has a dialect of its own: they are all alike.
    SQLiteDialect_pysqlite.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[assignment,method-assign]
    SQLiteDialect_pysqlite.__hash__ = lambda self: hash(type(self))  # type: ignore[assignment,method-assign]
    event.listen(Engine, "engine_connect", _use)


def _use(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)
