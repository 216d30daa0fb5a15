"""The one file that knows the journal is PostgreSQL: opening, transactions, who writes, what its errors mean.

Every instance has a schema of its own, so that several share a database. One row, ``writer``, says who writes it
(``name``, ``since``), under which ``term``, and how many transactions there were (``writes``). Every transaction
that writes begins by changing that row: so there is one at a time, as with SQLite, whoever takes over waits for
the one that runs, and a process whose term is over writes nothing more, however long it was paused. Nor does one
that remembers more transactions than there were: the server was put back to an earlier state (a backup, a replica
that took over without the last of them), so what is in memory is no continuation of what is on record.

The writer also keeps one connection that holds a lock as long as it lives: by it others see that it is there. Each
term has a lock of its own, so that who takes over has one at once, whatever the one before it still holds.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from threading import RLock
from typing import Any, NamedTuple

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gitops_agent.errors import JournalError, JournalTaken, LockHeld, UsageError
from gitops_agent.journal.database import Advice
from gitops_agent.journal.migrations import WRITER_TABLE
from gitops_agent.journal.place import SharedJournal
from gitops_agent.support.secrets import Redactor

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as missing:  # pragma: no cover - the tests have it
    raise UsageError(
        "the journal is to be on PostgreSQL, and the Python package psycopg is not installed",
        hint="install it with pip install 'gitops-agent[postgres]'",
    ) from missing

LOOK_SECONDS = 0.25
"""How often the server is asked at most whether others wrote."""

MAX_TRIES, PAUSE_SECONDS = 100, 0.02
"""How often, and how far apart, the lock of a writer that has just ended is asked for."""

# A process that is paused or cut off in the middle of a transaction keeps others waiting no longer than this.
_OPTIONS = {
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "30s",
    # Where a machine vanished, nobody says so: then its lock goes after half a minute.
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}

_AGAIN = "nothing written before is lost; the next pass goes on by itself once the server answers"

# What a message says, or the code of the error (by its beginning): what happened, the way out.
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        "password authentication failed|no password supplied|28",
        "the server of the journal does not let us in",
        "correct user and password in --journal-url (or the file of journalUrlFile), or pg_hba.conf on the server",
    ),
    (
        'database ".*" does not exist|3D',
        "there is no such database on the server of the journal",
        "create it (createdb), with the encoding UTF8, or correct --journal-url; tables are made by themselves",
    ),
    (
        "25006",
        "the server of the journal is a read-only standby",
        "name the primary in --journal-url, or all servers and target_session_attrs=read-write",
    ),
    (
        "53100",
        "the disk of the journal's server is full",
        "free some space there; nothing written before is lost and the next pass goes on",
    ),
    ("53", "the server of the journal has no room for us", f"raise its limits (max_connections); {_AGAIN}"),
    (
        "42501",
        "the server of the journal does not let us do that",
        "let its user create the schema (GRANT CREATE ON DATABASE), or create the schema for it as its owner",
    ),
    (
        "55P03|57014",
        "another process has kept the journal locked for too long",
        "look for it in pg_stat_activity (application_name gitops-agent), and end it; the next pass tries again",
    ),
    ("22P05|22021", "the database of the journal cannot hold all text", "create one with the encoding UTF8"),
    ("08|57P|25P03|57P05", "the connection to the journal was lost", _AGAIN),
)
_UNREACHABLE = ("the server of the journal does not answer", f"check that it runs and can be reached; {_AGAIN}")
_FAILED = ("the journal failed", "look into the log of the server for more; the next pass tries again")


class Writer(NamedTuple):
    """The row that says who writes."""

    term: int
    name: str
    since: float
    writes: int

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC)
        return f"{self.name or 'unknown'}, since {since:%Y-%m-%d %H:%M:%S} UTC"


class PostgresDatabase:
    """The schema of one instance in a PostgreSQL database, as ``journal.database`` describes it.

    ``writer``: the name under which this process becomes the writer; "" for those that read or write controls.
    ``leading``: whether it may still do so, asked when nobody else can any more, and before anybody can see it."""

    shared = True

    def __init__(
        self,
        place: SharedJournal,
        *,
        read_only: bool,
        writer: str = "",
        take_over: bool = False,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self.place = str(place)
        self.advice = _advice(place)
        self.read_only = read_only
        self.mutex = RLock()
        self.term = 0
        self._schema = place.schema
        self._translated = Translation(place)
        self._look_at = 0.0
        self._writes = -1  # as of the last look for what others wrote
        self._newest = -1  # the most that we know of
        self._session: _Session | None = None
        self._leading = leading
        connect = _connector(place)
        self.engine = create_engine(
            "postgresql+psycopg://", creator=connect, pool_pre_ping=True, max_overflow=-1, use_native_hstore=False
        )
        # One view for all that is read together, and no right to change anything.
        view = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._views = self.engine.execution_options(**view)
        if read_only:
            return
        try:
            with self._translated:
                self._prepare()
                if writer:
                    self._session = _Session(connect, self._schema)
                    self._take_term(self._session, writer, take_over=take_over)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view, whatever is written meanwhile."""
        with self._translated, self._views.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, by_anyone: bool = False) -> Iterator[Connection]:
        """One durable transaction; one at a time, of all processes. JournalTaken when our term is over, or the
        journal is not the one that we know."""
        if self.read_only or not (self.term or by_anyone):
            what = "for reading only" if self.read_only else "for controls only"
            hint = "open it without read_only, as the writer"
            raise JournalError(f"{self.place}: the journal was opened {what}", hint=hint)
        with self.mutex, self._translated:
            with self.engine.begin() as connection:
                found = Writer(*connection.execute(_WRITE).one())
                self._require_ours(found, self._newest + 1)
                yield connection
            self._newest = found.writes
            if found.writes == self._writes + 1:  # otherwise somebody wrote in between, and we have not looked yet
                self._writes = found.writes

    def others_wrote(self) -> bool:
        """Whether others have committed since this was last asked; the server is asked now and then."""
        with self.mutex, self._translated:
            now = time.monotonic()
            if now < self._look_at:
                return False
            found = self._session.look() if self._session is not None else self._look()
            self._look_at = now + LOOK_SECONDS
            self._require_ours(found, self._newest)
            changed = found.writes != self._writes
            self._writes = self._newest = found.writes
            return changed

    def holder(self) -> str | None:
        """The process that writes now, in words."""
        with self._translated, self._views.connect() as connection:
            found = Writer(*connection.execute(_ROW).one())
            held = connection.execute(_HELD, _key_halves(_lock_name(self._schema, found.term))).scalar()
            return str(found) if held else None

    def close(self) -> None:
        """Let go of the server, and of the lock."""
        if self._session is not None:
            self._session.close()
        self.engine.dispose()

    def _look(self) -> Writer:
        with self._views.connect() as connection:
            return Writer(*connection.execute(_ROW).one())

    def _prepare(self) -> None:
        """Make the schema and the row of the writer, unless they are there."""
        with self.engine.connect() as connection:
            encoding = connection.execute(text("SHOW server_encoding")).scalar()
            if encoding != "UTF8":
                hint = "create one with createdb -E UTF8 -T template0, and name it in --journal-url"
                raise JournalError(f"{self.place}: the encoding of the database is {encoding}", hint=hint)
            if connection.execute(_KNOWN, {"name": f"{self._schema}.{WRITER_TABLE}"}).scalar():
                return
        with self.engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key(f"make {self._schema}")})
            if not connection.execute(_KNOWN_SCHEMA, {"name": self._schema}).scalar():
                connection.execute(text(f"CREATE SCHEMA {self._schema}"))
            if not connection.execute(_KNOWN, {"name": f"{self._schema}.{WRITER_TABLE}"}).scalar():
                for statement in _MAKE_WRITER:
                    connection.execute(statement)

    def _take_term(self, session: "_Session", name: str, *, take_over: bool) -> None:
        tries = 0
        while not self.term:
            found = session.look()
            if take_over or session.is_over(found.term):
                # None when another one was faster, and is the writer now.
                self.term = session.take_term(found.term, name, self._require_leading) or 0
            elif tries == MAX_TRIES:
                raise LockHeld(
                    f"{self.place}: another gitops-agent writes this journal: {found}",
                    hint="wait for it or stop it, or give this one another --instance; "
                    "status, explain, history and plan work beside it",
                )
            else:
                tries += 1
                time.sleep(PAUSE_SECONDS)

    def _require_leading(self) -> None:
        if not self._leading():
            raise JournalTaken(
                f"{self.place}: this gitops-agent leads no more, and leaves the journal to the one that does",
                hint="it waits for its turn, or ends",
            )

    def _require_ours(self, found: Writer, least: int) -> None:
        """JournalTaken unless the term is ours, and there were as many transactions as we know of."""
        if self.term and found.term != self.term:
            raise JournalTaken(
                f"{self.place}: another gitops-agent has taken over the journal: {found}",
                hint="this one writes nothing more; it begins anew, and waits for its turn or ends",
            )
        if self.term and found.writes < least:
            raise JournalTaken(
                f"{self.place}: the journal went back in time: the server lacks what was written last",
                hint="a backup was restored, or a replica took over without the last transactions; this one "
                "begins anew with what is on record",
            )


class _Session:
    """The connection that the writer keeps: it holds the lock of its term, by which others see that it lives."""

    def __init__(self, connect: "Callable[[], psycopg.Connection]", schema: str) -> None:
        self._connect = connect
        self._schema = schema
        self._connection: psycopg.Connection | None = None
        self._term = 0
        self._locked = False

    def is_over(self, term: int) -> bool:
        """Whether the writer of a term has ended: nobody holds its lock."""
        key = _key(_lock_name(self._schema, term))
        ((free,),) = self._ask("SELECT pg_try_advisory_lock(%s)", key)
        if free:
            self._ask("SELECT pg_advisory_unlock(%s)", key)
        return bool(free)

    def take_term(self, known: int, name: str, check: Callable[[], None]) -> int | None:
        """Become the writer after that of a known term; the new term, None when it is not the newest any more.
        Waits for a transaction that is under way, and takes nothing when ``check`` raises after that. The lock is
        held before anybody can see the term."""
        with self._opened().transaction():
            found = self._ask(_TAKE, name, known)
            if not found:
                return None
            check()
            self._term = int(found[0][0])
            self._try_lock()
        return self._term

    def look(self) -> Writer:
        """Who writes. A connection that was lost meanwhile is made anew, and our lock is asked for again."""
        try:
            found = self._ask(str(_ROW))
        except psycopg.OperationalError:
            self.close()
            found = self._ask(str(_ROW))
        if self._term and not self._locked:
            # It may still be held for a connection of ours of which the server does not know yet that it is gone.
            self._try_lock()
        return Writer(*found[0])

    def _try_lock(self) -> None:
        key = _key(_lock_name(self._schema, self._term))
        ((self._locked,),) = self._ask("SELECT pg_try_advisory_lock(%s)", key)

    def close(self) -> None:
        """Let go of the lock."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection, self._locked = None, False

    def _ask(self, statement: str, *values: object) -> list[Any]:
        return self._opened().execute(statement.encode(), values or None).fetchall()

    def _opened(self) -> "psycopg.Connection":
        if self._connection is None:
            self._connection = self._connect()
            self._connection.autocommit = True
        return self._connection


def has_tables(place: SharedJournal) -> bool:
    """Whether there is a journal of an instance in a database."""
    with Translation(place), _connector(place)() as connection:
        found = connection.execute("SELECT to_regclass(%s)", (f"{place.schema}.schema_version",)).fetchone()
    return found is not None and found[0] is not None


def _connector(place: SharedJournal) -> "Callable[[], psycopg.Connection]":
    """What opens a connection in which the names of tables mean those of the instance."""
    with Translation(place):
        given = conninfo_to_dict(place.url)
    options = " ".join(f"-c {name}={value}" for name, value in {"search_path": place.schema, **_OPTIONS}.items())
    options = f"{given.pop('options', None) or ''} {options}".strip()
    name = f"gitops-agent {place.instance}"[:63]
    wanted: dict[str, Any] = {**_DEFAULTS, "application_name": name, **given, "options": options}
    return lambda: psycopg.connect("", client_encoding="utf8", **wanted)


# -- the row that says who writes, and the lock of the one that lives

_ROW = text("SELECT term, name, since, writes FROM writer")
_WRITE = text("UPDATE writer SET writes = writes + 1 RETURNING term, name, since, writes")
_TAKE = """
    UPDATE writer SET term = term + 1, name = %s, since = extract(epoch FROM clock_timestamp())
    WHERE term = %s RETURNING term
"""
_MAKE_WRITER = (
    text(
        f"CREATE TABLE {WRITER_TABLE} (one boolean PRIMARY KEY DEFAULT true CHECK (one), term bigint NOT NULL, "
        "name text NOT NULL, since double precision NOT NULL, writes bigint NOT NULL)"
    ),
    text(f"INSERT INTO {WRITER_TABLE} (term, name, since, writes) VALUES (0, '', 0, 0)"),  # noqa: S608
)
_KNOWN = text("SELECT to_regclass(:name) IS NOT NULL")
_KNOWN_SCHEMA = text("SELECT to_regnamespace(:name) IS NOT NULL")
_HELD = text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid = :high AND objid = :low"
)


def _key(name: str) -> int:
    """The number of a lock."""
    return int.from_bytes(sha256(f"gitops-agent {name}".encode()).digest()[:8], signed=True)


def _lock_name(schema: str, term: int) -> str:
    """The name of the lock that the writer of a term holds."""
    return f"{schema} {term}"


def _key_halves(name: str) -> dict[str, int]:
    """The number of a lock as the server lists it."""
    number = _key(name) % 2**64
    return {"high": number >> 32, "low": number % 2**32}


def _advice(place: SharedJournal) -> Advice:
    schema = place.schema
    return Advice(
        none_yet="run gitops-agent once or run first, or correct --journal-url or --instance",
        foreign=f"choose another --instance or database, or rename the schema {schema}",
        newer="install the newer gitops-agent that wrote it, or choose another database",
        too_old=f"stop gitops-agent, rename the schema {schema} away, and start again: agents are found again by "
        "their marks and none is started twice; only the history is lost",
    )


# -- what its errors mean


class Translation:
    """Turns what SQLAlchemy and psycopg raise into JournalError, without a password, here and nowhere else."""

    def __init__(self, place: SharedJournal) -> None:
        self._place = str(place)
        self._clean = Redactor(place.secrets)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, SQLAlchemyError | psycopg.Error | OSError | ValueError):
            raise self._meaning(error) from error

    def _meaning(self, error: Exception) -> JournalError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        said = self._clean(" ".join(str(cause).split()))
        sentence, hint = _meaning_of(getattr(cause, "sqlstate", None) or "", said, error)
        return JournalError(f"{self._place}: {sentence}: {said}", hint=hint)


def _meaning_of(code: str, said: str, error: Exception) -> tuple[str, str]:
    for pattern, sentence, hint in _MEANINGS:
        *texts, last = pattern.split("|")
        begins = [each for each in (*texts, last) if re.fullmatch("[0-9A-Z]{2,5}", each)]
        if (code and any(code.startswith(each) for each in begins)) or any(
            re.search(each, said) for each in texts if each not in begins
        ):
            return sentence, hint
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, psycopg.OperationalError | OSError):
        lost = getattr(error, "connection_invalidated", False) or "closed" in said
        return ("the connection to the journal was lost", _AGAIN) if lost else _UNREACHABLE
    return _FAILED
