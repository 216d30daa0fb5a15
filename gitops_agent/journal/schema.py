"""The tables as they are now. How older journals get here is in ``migrations.py``.

A column has (as ``key``) the name of the field that it holds, and gives back a value of its type; a new field of
``Base`` or ``Attempt`` is a new column, and needs a migration. Times are in seconds since the epoch. Only portable
column types are used, so that the same tables serve SQLite, and PostgreSQL when the journal is shared.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

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
    UniqueConstraint,
)

from gitops_agent.model.codec import coder, from_json
from gitops_agent.model.control import Control
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent, Result
from gitops_agent.model.plan import Action
from gitops_agent.model.status import AgentStatus, CommitRecord

VERSION = 6


class Text(TypeDecorator[Any]):
    """Text that can always be stored; with a type, the text of such a value (a key, a word) by ``model.codec``.

    Messages carry what commands printed and files were called: lone surrogates and NUL must not stop the journal,
    and with it the fleet, so they are written as escapes.
    """

    impl = String
    cache_ok = True

    def __init__(self, hint: Any = str) -> None:
        super().__init__()
        self.hint = hint

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str | None]:  # noqa: ARG002
        """Escapes what a database refuses."""
        if self.hint is str:
            return storable
        encode = coder(self.hint).encode
        return lambda value: storable(value if value is None else encode(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:  # noqa: ARG002
        """The decoder itself, because tens of thousands are read at once."""
        return None if self.hint is str else coder(self.hint).decode


class Json(Text):
    """A value of some type by ``model.codec``, kept as text so that people can read it with any SQL shell."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:
        """Encodes; a value that is not JSON is kept as its text rather than refused."""
        encode = coder(self.hint).encode
        # PostgreSQL looks into no JSON in which there is a NUL anywhere.
        refused = "\\u0000" if dialect.name == "postgresql" else None

        def text(value: Any) -> str:
            found = encode(value)
            try:
                made = orjson.dumps(found).decode()
            except TypeError:
                return orjson.dumps(_plain(found)).decode()
            return made if refused is None or refused not in made else orjson.dumps(_plain(found)).decode()

        return text

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str], Any]:  # noqa: ARG002
        """Decodes."""
        return lambda text: from_json(self.hint, orjson.loads(text))


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


def storable(text: str | None) -> str | None:
    """The text with lone surrogates and NUL written as escapes."""
    if text is None or (text.isascii() and "\0" not in text):
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


_TYPES: Mapping[Any, Any] = {str: Text, int: Integer, float: Double, bool: Boolean, Fields: RawFields}


def _columns(kind: type[Any], *names: str) -> Iterator[Column[Any]]:
    """Columns for some fields of a type, or for all; what may be None may be NULL."""
    hints = get_type_hints(kind)
    for name in names or [each.name for each in fields(kind)]:
        hint = hints[name]
        nullable = NoneType in get_args(hint)
        if nullable:
            (hint,) = (arg for arg in get_args(hint) if arg is not NoneType)
        column = _TYPES.get(hint) or (Json(hint) if get_origin(hint) is tuple else Text(hint))
        yield Column("commit_sha" if name == "commit" else name, column, key=name, nullable=nullable)


def _numbered() -> Column[int]:
    return Column("seq", Integer, primary_key=True, autoincrement=True)


def _of_agent() -> Column[AgentKey]:
    return Column("agent", Text(AgentKey), nullable=False)


# What decisions and intents both keep of an action.
_ACTION = (
    *("key", "driver", "verb", "drift_class", "reason", "message", "confidence", "decision"),
    *("patch", "evidence"),
)

metadata = MetaData()

schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

# The fields of ``model.state.State`` that have no table of their own, one row each: ``source.head`` and so on.
# A field that has its default has no row.
state = Table(
    "state", metadata, Column("part", Text, primary_key=True), Column("value", Json(Any), nullable=False)
)

# ``value`` holds the whole record (``model.codec``); the other columns are what is searched for.
commits = Table(
    "commits",
    metadata,
    *_columns(CommitRecord, "sha", "position", "phase", "tree", "rolled_back_by"),
    Column("settled_at", Double, nullable=False),
    Column("value", Json(CommitRecord), nullable=False),
    PrimaryKeyConstraint("sha"),
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
    Column("commit_sha", Text, key="commit", nullable=False),
    Column("version", Integer, nullable=False),
    PrimaryKeyConstraint("sink", "commit"),
)

bases = Table("bases", metadata, *_columns(Base), PrimaryKeyConstraint("key"))

attempts = Table("attempts", metadata, Column("key", Text(ResourceKey), primary_key=True), *_columns(Attempt))

intents = Table(
    "intents",
    metadata,
    _numbered(),
    *_columns(Intent, "id", "at", "commit", "plan", "actor"),
    _of_agent(),
    *_columns(Action, *_ACTION, "base", "desired", "live", "handle", "deletion_policy", "idempotent"),
    # The outcome. NULL in ``result`` is what makes an intent open.
    Column("result", Text(Result | None)),
    Column("outcome", Text),
    Column("finished_at", Double),
    Column("duration", Double),
    Column("outcome_handle", RawFields),
    Column("permanent", Boolean),
    UniqueConstraint("id"),
    Index("ix_intents_result", "result"),
    Index("ix_intents_agent", "agent", "seq"),
    Index("ix_intents_commit", "commit", "seq"),
)

# One row for each plan and commit. Its decisions stand in ``decisions`` once, however many plans repeat them:
# while 150 agents are held, a plan that repairs one more adds one decision and not 151.
plans = Table(
    "plans",
    metadata,
    *_columns(Intent, "plan", "commit", "at"),
    # Their digests, 16 bytes each.
    Column("actions", LargeBinary, nullable=False),
    Column("waiting", Integer, nullable=False),
    Column("agents", Integer, nullable=False),
    PrimaryKeyConstraint("plan", "commit"),
    Index("ix_plans_commit", "commit", "at"),
)

# What was decided about a resource, when it was first decided so for a commit, and in which plan.
decisions = Table(
    "decisions",
    metadata,
    *_columns(Intent, "plan", "commit"),
    Column("ordinal", Integer, nullable=False),
    *_columns(Intent, "at"),
    _of_agent(),
    *_columns(Action, *_ACTION),
    # Whether a guard stopped it.
    Column("held", Boolean, nullable=False),
    # The digest of the action: what an approval of the plan covers.
    Column("digest", Text, nullable=False),
    PrimaryKeyConstraint("plan", "commit", "ordinal"),
    Index("ix_decisions_agent", "agent", "at"),
    Index("ix_decisions_commit", "commit"),
    Index("ix_decisions_digest", "digest"),
)

observations = Table(
    "observations",
    metadata,
    _numbered(),
    _of_agent(),
    *_columns(Observation, "key", "observed_at"),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("value", Json(Observation), nullable=False),
    Index("ix_observations_key", "key", "seq"),
    Index("ix_observations_agent", "agent", "seq"),
)

controls = Table(
    "controls",
    metadata,
    _numbered(),
    *_columns(Control, "at", "verb", "target", "actor", "reason", "until", "plan"),
)

statuses = Table(
    "statuses",
    metadata,
    Column("agent", Text(AgentKey), primary_key=True),
    Column("value", Json(AgentStatus), nullable=False),
)
