"""What compiled well, kept across restarts by blob id and path.

One SQLite file in the state directory. It is only ever a shortcut: damaged, locked, full or of another version,
it is discarded or left alone, and the files are read again. Every row carries a digest of itself.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any
from zlib import crc32

import orjson

from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.fields import canonical, digest
from gitops_agent.settings import Settings
from gitops_agent.snapshot.codec import decode, encode
from gitops_agent.snapshot.compiled_file import CompiledFile
from gitops_agent.snapshot.schema import json_schema

FILE_NAME = "snapshot-cache.sqlite"
SPARE_ROWS = 20_000
"""Rows that no file needs any more and that are kept all the same, for the day a commit is reverted."""

_SCAN_FROM_FILES = 500
_CHECK_AFTER_ROWS = 1_000
_NAME_BYTES = 16
_SUM_BYTES = 4


class Cache:
    """Compiled files by blob and path. Nothing here raises for what the disk does."""

    def __init__(self, path: Path, version: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._writer: Thread | None = None
        self._unchecked = _CHECK_AFTER_ROWS  # rows written since they were last counted; at first not known
        self._attempt(lambda: self._open(version))
        if self._connection is None:  # discarded: once more, from nothing
            self._attempt(lambda: self._open(version))

    def get(self, wanted: Mapping[str, str]) -> dict[str, CompiledFile]:
        """The compiled files known for some files (path to blob)."""
        self._settle()
        names = {_name(path, blob): (path, blob) for path, blob in wanted.items()}
        return self._attempt(lambda: self._find(names)) or {}

    def put(self, files: Collection[CompiledFile]) -> None:
        """Write files in one transaction; many of them in a thread, while the caller goes on."""
        self._settle()
        if len(files) > _SCAN_FROM_FILES:
            self._writer = Thread(target=self._attempt, args=(lambda: self._write(files),), name="snapshot-cache")
            self._writer.start()
        elif files:
            self._attempt(lambda: self._write(files))

    def trim(self, in_use: Mapping[str, CompiledFile]) -> None:
        """Forget rows that no file needs, once there are many of them."""
        if self._writer is not None:
            return  # next time
        self._attempt(lambda: self._trim(in_use))

    def close(self) -> None:
        """Finish writing and close the file; afterwards nothing is found and nothing kept."""
        self._settle()
        self._drop_connection()

    def _settle(self) -> None:
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, version: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # One pass at a time uses it, whichever thread that is.
        connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None, check_same_thread=False)
        self._connection = connection
        self._path.chmod(0o600)
        for setting in ("journal_mode = WAL", "synchronous = OFF", "cache_size = -16000"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("CREATE TABLE IF NOT EXISTS meta (version TEXT NOT NULL)")
        connection.execute("CREATE TABLE IF NOT EXISTS units (name BLOB PRIMARY KEY, data BLOB NOT NULL)")
        if connection.execute("SELECT version FROM meta").fetchall() != [(version,)]:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM units")
            connection.execute("DELETE FROM meta")
            connection.execute("INSERT INTO meta VALUES (?)", (version,))
            connection.execute("COMMIT")

    def _find(self, names: Mapping[bytes, tuple[str, str]]) -> dict[str, CompiledFile]:
        found: dict[str, CompiledFile] = {}
        for name, data in self._rows(names):
            if name in names and (file := _checked(*names[name], data)) is not None:
                found[file.path] = file
        return found

    def _rows(self, names: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
        if self._connection is None:
            return
        if len(names) > _SCAN_FROM_FILES:
            yield from self._connection.execute("SELECT name, data FROM units")
            return
        for name in names:
            yield from self._connection.execute("SELECT name, data FROM units WHERE name = ?", (name,))

    def _write(self, files: Collection[CompiledFile]) -> None:
        if self._connection is None:
            return
        self._unchecked += len(files)
        rows = [(_name(file.path, file.blob), _signed(encode(file))) for file in files]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT OR REPLACE INTO units VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def _trim(self, in_use: Mapping[str, CompiledFile]) -> None:
        if self._connection is None or self._unchecked < _CHECK_AFTER_ROWS:
            return
        self._unchecked = 0
        (count,) = self._connection.execute("SELECT COUNT(*) FROM units").fetchone()
        if count <= len(in_use) + SPARE_ROWS:
            return
        keep = {_name(file.path, file.blob) for file in in_use.values()}
        names = self._connection.execute("SELECT name FROM units").fetchall()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("DELETE FROM units WHERE name = ?", [n for n in names if n[0] not in keep])
        self._connection.execute("COMMIT")

    def _attempt(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except sqlite3.OperationalError:  # locked by another process, or full: go on without
            self._roll_back()
        except (sqlite3.DatabaseError, OSError):  # damaged
            self._discard()
        return None

    def _roll_back(self) -> None:
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop_connection()

    def _discard(self) -> None:
        self._drop_connection()
        for suffix in ("", "-wal", "-shm"):
            try:
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            except OSError:
                return  # not ours to remove: do without


def version_of(settings: Settings, plugins: Plugins) -> str:
    """The name of everything besides the files themselves that decides how they compile."""
    sources = [_source("gitops_agent.snapshot"), _source("gitops_agent.model")]
    packages = ((plugin.name, import_module(plugin.compile.__module__).__package__ or "") for plugin in plugins)
    sources += [f"{name}={_source(package)}" for name, package in packages]
    limits = settings.limits.model_dump()
    return digest(canonical([settings.instance, limits, json_schema(plugins.documents), sources]))


def _source(package: str) -> str:
    """A digest of the source files in the folder of a package."""
    try:
        locations = list(import_module(package).__path__) if package else []
        files = sorted(path for folder in locations for path in Path(folder).glob("*.py"))
        return digest(b"".join(path.read_bytes() for path in files))
    except (ImportError, AttributeError, OSError):
        return package


def _name(path: str, blob: str) -> bytes:
    return blake2b(f"{blob}:{path}".encode("utf-8", "surrogateescape"), digest_size=_NAME_BYTES).digest()


def _signed(data: bytes) -> bytes:
    """The data with a sum in front that shows damage; it is no protection against forgery."""
    return crc32(data).to_bytes(_SUM_BYTES, "big") + data


def _checked(path: str, blob: str, data: object) -> CompiledFile | None:
    if not isinstance(data, bytes):
        return None
    content = data[_SUM_BYTES:]
    if crc32(content).to_bytes(_SUM_BYTES, "big") != data[:_SUM_BYTES]:
        return None
    try:
        return decode(path, blob, content)
    except (ValueError, TypeError, KeyError, IndexError, StopIteration, orjson.JSONDecodeError):
        return None
