"""What compiled well, kept across restarts by blob id and path.

One SQLite file in the state directory. It is a shortcut: damaged, locked or full, it is discarded or left alone,
and the files are read again. Every row carries a digest of itself. What an earlier version compiled is given only
on request: a commit that this version refuses may be in force all the same.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any
from zlib import crc32

import pydantic
import yaml_rs

from gitops_agent.drivers.plugins import Plugins, known_settings
from gitops_agent.model.fields import canonical, digest
from gitops_agent.settings import Settings
from gitops_agent.snapshot.compiled_file import CompiledFile, decode, encode

FILE_NAME = "snapshot-cache.sqlite"
SPARE_ROWS = 20_000
"""Rows that no file needs any more and that are kept all the same, for the day a commit is reverted."""

_TABLE = "CREATE TABLE IF NOT EXISTS files (name BLOB PRIMARY KEY, data BLOB NOT NULL, version TEXT NOT NULL)"
_SCAN_FROM_FILES = 500
_CHECK_AFTER_ROWS = 1_000
_NAME_BYTES = 16
_SUM_BYTES = 4


class Cache:
    """Compiled files by blob and path. Nothing here raises for what the disk does."""

    def __init__(self, path: Path, version: str) -> None:
        self._path = path
        self._version = version
        self._connection: sqlite3.Connection | None = None
        self._writer: Thread | None = None
        self._unchecked = _CHECK_AFTER_ROWS  # rows written since they were last counted; at first not known
        for _ in range(2):  # when it had to be discarded: once more, from nothing
            if self._connection is None:
                self._attempt(self._open)

    def get(self, wanted: Mapping[str, str], *, of_any_version: bool = False) -> dict[str, CompiledFile]:
        """The compiled files known for some files (path to blob), by this version of us or by the last that had
        nothing against them."""
        self._settle()
        names = {_name(path, blob): (path, blob) for path, blob in wanted.items()}
        return self._attempt(lambda: self._find(names, of_any_version)) or {}

    def put(self, files: Collection[CompiledFile]) -> None:
        """Write files in one transaction; many of them in a thread, while the caller goes on."""
        self._settle()
        if len(files) > _SCAN_FROM_FILES:
            self._writer = Thread(target=self._attempt, args=(lambda: self._write(files),), name="snapshot-cache")
            self._writer.start()
        elif files:
            self._attempt(lambda: self._write(files))

    def trim(self, in_use: Mapping[str, CompiledFile]) -> None:
        """Forget rows that no file needs, once there are many of them; not while rows are being written."""
        if self._writer is None and self._unchecked >= _CHECK_AFTER_ROWS:
            self._attempt(lambda: self._trim(in_use))

    def close(self) -> None:
        """Finish writing and close the file; afterwards nothing is found and nothing kept."""
        self._settle()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _settle(self) -> None:
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # One pass at a time uses it, whichever thread that is.
        connection = sqlite3.connect(self._path, timeout=1.0, isolation_level="IMMEDIATE", check_same_thread=False)
        self._connection = connection
        self._path.chmod(0o600)
        for setting in ("journal_mode = WAL", "synchronous = OFF", "cache_size = -16000"):
            connection.execute(f"PRAGMA {setting}")
        with connection:
            connection.execute(_TABLE)
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'units'").fetchone():
                # The table of a version that knows of no others: after a downgrade that one starts its own anew.
                connection.execute("INSERT OR IGNORE INTO files SELECT name, data, 'earlier' FROM units")
                connection.execute("DROP TABLE units")
                connection.execute("DROP TABLE IF EXISTS meta")

    def _find(self, names: Mapping[bytes, tuple[str, str]], of_any_version: bool) -> dict[str, CompiledFile]:
        if self._connection is None:
            return {}
        select = "SELECT name, data FROM files WHERE ? IN ('', version)"
        version = "" if of_any_version else self._version
        if len(names) > _SCAN_FROM_FILES:
            rows: Iterable[tuple[bytes, object]] = self._connection.execute(select, (version,))
        else:
            one = f"{select} AND name = ?"
            rows = [row for name in names for row in self._connection.execute(one, (version, name))]
        found = (_checked(*names[name], data) for name, data in rows if name in names)
        return {file.path: file for file in found if file is not None}

    def _write(self, files: Collection[CompiledFile]) -> None:
        if self._connection is None:
            return
        self._unchecked += len(files)
        rows = [(_name(file.path, file.blob), _signed(encode(file)), self._version) for file in files]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)

    def _trim(self, in_use: Mapping[str, CompiledFile]) -> None:
        if self._connection is None:
            return
        self._unchecked = 0
        names = self._connection.execute("SELECT name FROM files").fetchall()
        if len(names) > len(in_use) + SPARE_ROWS:
            keep = {_name(file.path, file.blob) for file in in_use.values()}
            with self._connection:
                unused = [row for row in names if row[0] not in keep]
                self._connection.executemany("DELETE FROM files WHERE name = ?", unused)

    def _attempt(self, work: Callable[[], Any]) -> Any:
        """The result of some work; None when the disk does not allow it."""
        try:
            return work()
        except sqlite3.OperationalError:  # locked by another process, or full: go on without
            return None
        except (sqlite3.DatabaseError, OSError):  # damaged
            self._discard()
            return None

    def _discard(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for suffix in ("", "-wal", "-shm"):
            try:
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            except OSError:
                return  # not ours to remove: do without


def version_of(settings: Settings, plugins: Plugins) -> str:
    """The name of everything besides the files themselves that decides how they compile: this package and those of
    the drivers as they are installed, what parses and validates, and the settings that matter."""
    packages = {"gitops_agent", *(plugin.compile.__module__.partition(".")[0] for plugin in plugins)}
    sources = [(name, _source(name)) for name in sorted(packages)]
    parsers = (pydantic.VERSION, yaml_rs.__version__)
    limits = settings.limits.model_dump()
    known = known_settings(plugins, settings.drivers).items()
    drivers = [(name, own.model_dump(mode="json")) for name, own in known]
    return digest(canonical([settings.instance, limits, drivers, plugins.names, parsers, sources]))


def _source(package: str) -> str:
    """A digest of the source files of a package."""
    try:
        module = import_module(package)
        folders = [Path(folder) for folder in getattr(module, "__path__", ())]
        files = sorted(path for folder in folders for path in folder.rglob("*.py"))
        return digest(b"".join(path.read_bytes() for path in files or [Path(str(module.__file__))]))
    except (ImportError, OSError):
        return ""


def _name(path: str, blob: str) -> bytes:
    return blake2b(f"{blob}:{path}".encode("utf-8", "surrogateescape"), digest_size=_NAME_BYTES).digest()


def _signed(data: bytes) -> bytes:
    """The data with a sum in front that shows damage; it is no protection against forgery."""
    return crc32(data).to_bytes(_SUM_BYTES, "big") + data


def _checked(path: str, blob: str, data: object) -> CompiledFile | None:
    if not isinstance(data, bytes):
        return None
    content = data[_SUM_BYTES:]
    if _signed(content) != data:
        return None
    try:
        return decode(path, blob, content)
    except (ValueError, TypeError, KeyError, IndexError, StopIteration):
        return None
