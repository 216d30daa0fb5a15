"""The one file that knows the journal is SQLite: opening, transactions, what its errors mean."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import RLock
from urllib.parse import quote

from sqlalchemy import Connection, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gitops_agent.errors import JournalError
from gitops_agent.journal import lock
from gitops_agent.journal.database import Advice

FILE_NAME = "journal.db"
BUSY_SECONDS = 10.0
MAX_LOG_BYTES = 16 * 2**20
_WRITING = "journal_writing"
MOVE_AWAY = (
    "stop gitops-agent, move {path} and the files beside it that start with its name away, and start again: "
    "agents are found again by their marks and none is started twice; only the history is lost"
)

# Error name of SQLite (by its beginning): what happened, the way out.
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        "SQLITE_FULL",
        "the disk is full, so the journal cannot be written",
        "free some space on the file system of {folder}; nothing written before is lost and the next pass goes on",
    ),
    (
        "SQLITE_READONLY",
        "the journal cannot be written: the file or its directory is read-only",
        "let the user that runs gitops-agent write to {folder}, or choose another --state-dir",
    ),
    (
        "SQLITE_CANTOPEN",
        "the journal cannot be opened: its directory is missing or not accessible",
        "let the user that runs gitops-agent read and write {folder}, or choose another --state-dir",
    ),
    ("SQLITE_CORRUPT", "the journal is damaged (malformed database)", MOVE_AWAY),
    ("SQLITE_NOTADB", "the journal is damaged (not a database)", MOVE_AWAY),
    (
        "SQLITE_BUSY",
        "another process has kept the journal locked for too long",
        "find the process that holds {path} open (for instance with fuser) and end it, then try again",
    ),
    (
        "SQLITE_IOERR",
        "the journal cannot be read or written (input/output error)",
        "check the file system of {folder} and its quota; nothing written before is lost",
    ),
)
_OS_NAMES = {
    errno.ENOSPC: "SQLITE_FULL",
    errno.EDQUOT: "SQLITE_FULL",
    errno.EROFS: "SQLITE_READONLY",
    errno.EACCES: "SQLITE_READONLY",
    errno.EPERM: "SQLITE_READONLY",
}


class SqliteDatabase:
    """A file of SQLite that gives transactions to read or to write in, and speaks JournalError only.

    Who writes is settled by the lock of the state directory, so there are no terms."""

    shared = False
    term = 0

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.place = str(path)
        self.advice = Advice(
            none_yet="run gitops-agent once or run first, or name the right directory with --state-dir",
            foreign="name another directory with --state-dir, or move the file away",
            newer="install the newer gitops-agent that wrote it, or choose another --state-dir",
            too_old=MOVE_AWAY.format(path=path),
        )
        self.read_only = read_only
        self.mutex = RLock()
        self._kept: Connection | None = None
        self._version = 0
        if not read_only:
            with translated(path):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Specs and messages are for this user alone; SQLite gives the files beside it the same mode.
                os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connect = partial(_read_connection if read_only else _write_connection, path)
        # A pool of connections, because threads of reconcile write and read at the same time.
        self.engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=QueuePool, max_overflow=-1)
        event.listen(self.engine, "begin", _begin)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view, whatever is written meanwhile."""
        with translated(self.path), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, by_anyone: bool = False) -> Iterator[Connection]:
        """One durable transaction; one at a time in this process."""
        del by_anyone  # operators write here as the daemon does
        if self.read_only:
            raise JournalError(
                f"{self.path}: the journal was opened for reading only", hint="open it without read_only"
            )
        with self.mutex, translated(self.path):
            connection = self._connection()
            connection.execution_options(**{_WRITING: True})
            with connection.begin():
                yield connection

    def others_wrote(self) -> bool:
        """Whether another connection than the one that writes here has committed since this was last asked."""
        with self.mutex, translated(self.path):
            driver: sqlite3.Connection | None = self._connection().connection.driver_connection
            assert driver is not None
            version: int = driver.execute("PRAGMA data_version").fetchone()[0]
            changed, self._version = version != self._version, version
            return changed

    def _connection(self) -> Connection:
        """One connection, kept: the number that ``others_wrote`` compares means something only to one, and stays
        the same over what that one commits itself."""
        if self._kept is None:
            self._kept = self.engine.connect()
        return self._kept

    def holder(self) -> str | None:
        """The process that works in the state directory now, in words."""
        return lock.holder(self.path.parent)

    def close(self) -> None:
        """Let go of the file; the last one out merges the write-ahead log."""
        if self._kept is not None:
            self._kept.close()
        self.engine.dispose()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLAlchemy, SQLite and the file system raise into JournalError, here and nowhere else."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, ValueError) as error:
        raise _meaning(path, error) from error


def _meaning(path: Path, error: Exception) -> JournalError:
    cause = error.orig if isinstance(error, DBAPIError) else error
    name = getattr(cause, "sqlite_errorname", "") or ""
    if isinstance(cause, OSError):
        name = _OS_NAMES.get(cause.errno or 0, "SQLITE_CANTOPEN")
    if isinstance(cause, ValueError):  # a row was read and does not decode
        name = "SQLITE_CORRUPT"
    for beginning, sentence, hint in _MEANINGS:
        if name.startswith(beginning):
            hint = hint.format(path=path, folder=path.parent)
            return JournalError(f"{path}: {sentence}: {cause}", hint=hint)
    return JournalError(f"{path}: the journal failed: {cause}", hint=MOVE_AWAY.format(path=path))


def _begin(connection: Connection) -> None:
    # IMMEDIATE takes the write lock at once: a transaction that read first could not wait for it later.
    writing = connection.get_execution_options().get(_WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _connect(path: Path, options: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    # isolation_level=None: the driver begins nothing by itself, so that schema changes are transactional too.
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None)


def _write_connection(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "mode=rw")
    try:
        # The log stays as large as the largest transaction ever was, unless it is cut.
        cut = f"journal_size_limit={MAX_LOG_BYTES}"
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", cut):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


def _read_connection(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master").close()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        # Nothing writes (there is no log) and we may not create one in this directory: read the file as it is.
        return _connect(path, "mode=ro&immutable=1")
    return connection
