"""The tables as they are now. How older journals get here is in ``migrations.py``.

Times are seconds since the epoch. Keys are kept in their text form. Only portable column types are used, so that
the same tables serve SQLite now and PostgreSQL when the journal is shared.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy import (
    Boolean,
    Column,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    TypeDecorator,
    false,
    true,
)

from gitops_agent.model.fields import Fields

VERSION = 5


class Text(TypeDecorator[str]):
    """Text that can always be stored.

    Messages carry what commands printed and files were called: lone surrogates and NUL must not stop the journal,
    and with it the fleet, so they are written as escapes.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Escape what a database refuses."""
        return None if value is None else storable(value)


class Json(TypeDecorator[Any]):
    """A small JSON value, kept as text so that people can read it with any SQL shell."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:  # noqa: ARG002
        """Encode; a value that is not JSON is kept as its text rather than refused."""
        try:
            return orjson.dumps(value).decode()
        except TypeError:
            return orjson.dumps(_plain(value)).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """Decode."""
        return None if value is None else orjson.loads(value)


class RawFields(TypeDecorator[Fields]):
    """Fields as their canonical bytes: nothing is decoded on the way in or out."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Fields | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """The bytes."""
        return None if value is None else value.raw

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Fields | None:  # noqa: ARG002
        """The fields again."""
        return None if value is None else Fields(value)


def storable(text: str) -> str:
    """The text with lone surrogates and NUL written as escapes."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {storable(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    return storable(str(value))


def _action_columns() -> tuple[Column[Any], ...]:
    """What decisions and intents both keep of an action."""
    words = ("agent", "key", "driver", "verb", "drift_class", "reason", "message", "confidence", "decision")
    texts = tuple(Column(word, Text, nullable=False) for word in words)
    return (*texts, Column("patch", Json, nullable=False), Column("evidence", Json, nullable=False))


metadata = MetaData()

schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

# The fields of ``model.state.State`` that have no table of their own, one row each: ``source.head`` and so on.
# A field that has its default has no row.
state = Table("state", metadata, Column("part", Text, primary_key=True), Column("value", Json, nullable=False))

# ``value`` holds the whole record (``model.codec``); the other columns are what is searched for.
commits = Table(
    "commits",
    metadata,
    Column("sha", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("phase", Text, nullable=False),
    Column("tree", Text, nullable=False),
    Column("rolled_back_by", Text),
    Column("settled_at", Double, nullable=False),
    Column("value", Json, nullable=False),
    Index("ix_commits_position", "position"),
    Index("ix_commits_phase", "phase", "position"),
    Index("ix_commits_tree", "tree", "position"),
    Index("ix_commits_rolled_back_by", "rolled_back_by"),
)

# What sinks have not delivered yet. ``version`` grows with every change of a commit's record.
owed = Table(
    "owed",
    metadata,
    Column("sink", Text, nullable=False),
    Column("commit_sha", Text, nullable=False),
    Column("version", Integer, nullable=False),
    PrimaryKeyConstraint("sink", "commit_sha"),
)

bases = Table(
    "bases",
    metadata,
    Column("key", Text, primary_key=True),
    Column("driver", Text, nullable=False),
    Column("fields", RawFields, nullable=False),
    Column("commit_sha", Text, nullable=False),
    Column("applied_at", Double, nullable=False),
    Column("deletion_policy", Text, nullable=False),
    Column("idempotent", Boolean, nullable=False),
    Column("retained", Boolean, nullable=False),
    Column("handle", RawFields, nullable=False),
    Column("established", Boolean, nullable=False, server_default=true()),
)

attempts = Table(
    "attempts",
    metadata,
    Column("key", Text, primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("next_at", Double, nullable=False),
    Column("error", Text, nullable=False),
    Column("permanent", Boolean, nullable=False),
)

intents = Table(
    "intents",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("at", Double, nullable=False),
    Column("commit_sha", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("actor", Text, nullable=False),
    *_action_columns(),
    Column("base", RawFields),
    Column("desired", RawFields),
    Column("live", RawFields),
    Column("handle", RawFields),
    Column("deletion_policy", Text, nullable=False),
    Column("idempotent", Boolean, nullable=False),
    # The outcome. NULL in ``result`` is what makes an intent open.
    Column("result", Text),
    Column("outcome", Text),
    Column("finished_at", Double),
    Column("duration", Double),
    Column("outcome_handle", RawFields),
    Column("permanent", Boolean),
    Index("ix_intents_result", "result"),
    Index("ix_intents_agent", "agent", "seq"),
    Index("ix_intents_commit", "commit_sha", "seq"),
)

decisions = Table(
    "decisions",
    metadata,
    Column("plan", Text, nullable=False),
    Column("commit_sha", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("at", Double, nullable=False),
    *_action_columns(),
    Column("held", Boolean, nullable=False, server_default=false()),
    # The digest of the action: what an approval of the plan covers.
    Column("digest", Text, nullable=False, server_default=""),
    PrimaryKeyConstraint("plan", "commit_sha", "ordinal"),
    Index("ix_decisions_agent", "agent", "at"),
)

observations = Table(
    "observations",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("agent", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("observed_at", Double, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("value", Json, nullable=False),
    Index("ix_observations_key", "key", "seq"),
    Index("ix_observations_agent", "agent", "seq"),
)

controls = Table(
    "controls",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("verb", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("until", Double),
    Column("plan", Text, nullable=False),
)

statuses = Table(
    "statuses", metadata, Column("agent", Text, primary_key=True), Column("value", Json, nullable=False)
)
