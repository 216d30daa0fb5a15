"""A real PostgreSQL of a test: on a free loopback port, with a password, not as root, none left over.

The cluster is made once per process and copied for every server, which is four times as fast as making it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import psycopg

from tests.servers.processes import ProcessGroup, free_ports

USER, PASSWORD = "keeper", "can@ry/of-the:journal"
WRITTEN = "can%40ry%2Fof-the%3Ajournal"
"""The password as a URL has it."""

FAST = ("fsync=off", "full_page_writes=off")
"""Nothing is left of it after the test, so nothing is to survive a power cut, only a crash."""


def binary(name: str) -> str:
    """Return the path of a program of PostgreSQL, the newest there is."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts[-3].zfill(3))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, f"{name} is missing: install PostgreSQL (apt-get install postgresql), then try again"
    return path


def _unprivileged() -> list[str]:
    """What goes in front of a call so that it does not run as root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


def _give(folder: Path) -> None:
    """Make a folder belong to the user that the server runs as."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)


@cache
def made_cluster() -> Path:
    """Return a cluster that is ready to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="gitops-agent-postgres-"))
    (folder / "password").write_text(PASSWORD)
    _give(folder)
    call = [binary("initdb"), "-D", str(folder / "data"), "-U", USER, "-A", "scram-sha-256", "-E", "UTF8"]
    call += ["--pwfile", str(folder / "password"), "--no-locale", "-N"]
    subprocess.run([*_unprivileged(), *call], check=True, capture_output=True, cwd="/")
    return folder / "data"


class Postgres:
    """One server with one database, ``journal``. Use it in a ``with``."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gitops-agent-postgres-"))
        self._data = self._folder / "data"
        (self.port,) = free_ports(1)
        self._processes = ProcessGroup(self._folder)

    def __enter__(self) -> Postgres:
        shutil.copytree(made_cluster(), self._data)
        self._data.chmod(0o700)
        _give(self._folder)
        self.start()
        self.run("CREATE DATABASE journal", database="postgres")
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, *more: str) -> None:
        """Start the server (again), with further settings."""
        given = (*FAST, "unix_socket_directories=", "listen_addresses=127.0.0.1", f"port={self.port}", *more)
        options = [word for each in given for word in ("-c", each)]
        self._processes.start("postgres", [*_unprivileged(), binary("postgres"), "-D", self._data, *options])
        self._processes.wait("postgres", self._answers)

    def stop(self, with_signal: signal.Signals = signal.SIGQUIT) -> None:
        """End the server as a crash would, and wait until it is gone."""
        self._processes.end("postgres", with_signal)

    def keep(self) -> Path:
        """Return a copy of everything that is on record now; the server is ended and started for it."""
        self.stop(signal.SIGINT)
        kept = Path(tempfile.mkdtemp(dir=self._folder)) / "data"
        shutil.copytree(self._data, kept)
        self.start()
        return kept

    def go_back(self, kept: Path) -> None:
        """Start again from a copy: what was written since then never was."""
        self.stop(signal.SIGINT)
        shutil.rmtree(self._data)
        shutil.copytree(kept, self._data)
        _give(self._data)
        self.start()

    def url(self, database: str = "journal", user: str = USER, password: str = WRITTEN) -> str:
        """Return the address of a database."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "journal") -> list[tuple[object, ...]]:
        """Return what a statement answers, by a connection of its own."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def unique(self) -> str:
        """Return the name of an instance that nobody else has."""
        return f"i{secrets.token_hex(6)}"

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            self.run("SELECT 1", database="postgres")
            return True
        return False
