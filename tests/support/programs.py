"""Programs as people run them, as agents: seven kinds, each of which tries to be more than one plain process.

Every process of a program holds a file of its own open, so that all of it can be counted whatever it does to its
environment, its title, its session or its parents; and a line is written for every start.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.fleet import alive, all_pids, until

WORKERS = 2

_BEGIN = """
import os, signal, socket, sys, time
held = open({mark!r}, "a")
def line(path):
    with open(path, "a") as file:
        file.write("x\\n")
line({starts!r})
"""

_TITLED = """
from setproctitle import setproctitle
setproctitle("agent: at work")
line({ups!r})
time.sleep(600)
"""

_DAEMON = """
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
line({ups!r})
time.sleep(600)
"""

# It stays, and what it left in the background stays as well.
_FORKING = """
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        time.sleep(600)
os.wait()
line({ups!r})
while True:
    time.sleep(600)
"""

# Workers that do not care what becomes of their master, and keep the port.
_CLUSTER = """
from setproctitle import setproctitle
port = socket.create_server(("127.0.0.1", {port}))
for number in range({workers}):
    if os.fork() == 0:
        setproctitle("cluster: worker")
        while True:
            port.accept()[0].close()
setproctitle("cluster: master")
line({ups!r})
while True:
    time.sleep(600)
"""

_GUNICORN = """
held = open({mark!r}, "a")
bind = "127.0.0.1:{port}"
workers = {workers}
graceful_timeout = 1
control_socket_disable = True
def line(path):
    with open(path, "a") as file:
        file.write("x\\n")
line({starts!r})
def when_ready(server):
    line({ups!r})
"""

_NODE = """
const cluster = require('cluster'), fs = require('fs'), http = require('http');
fs.openSync({mark_js}, 'a');
if (cluster.isPrimary) {{
  fs.appendFileSync({starts_js}, 'x\\n');
  process.title = 'cluster: master';
  let up = 0;
  for (let i = 0; i < {workers}; i++) cluster.fork();
  cluster.on('listening', () => {{ if (++up === {workers}) fs.appendFileSync({ups_js}, 'x\\n'); }});
}} else {{
  process.title = 'cluster: worker';
  http.createServer((_, answer) => answer.end()).listen({port}, '127.0.0.1');
}}
"""

_PLAIN = 'exec 9>>"$1/mark"; echo x >> "$1/starts"; echo x >> "$1/ups"; exec sleep 600'


@dataclass(frozen=True)
class Program:
    """One program in a folder of its own. ``stays``: its first process does not go into the background."""

    folder: Path
    command: tuple[str, ...]
    size: int
    stays: bool
    port: int

    @property
    def starts(self) -> int:
        return _lines(self.folder / "starts")

    @property
    def processes(self) -> list[int]:
        """Every process that holds the file: the kernel's word."""
        return holders({self.mark})[self.mark]

    @property
    def mark(self) -> str:
        return str(self.folder / "mark")

    def await_up(self, starts: int = 1) -> None:
        """Wait until it has come up so often, and all of it is there."""
        until(lambda: _lines(self.folder / "ups") >= starts, f"start {starts} of {self.command}")
        until(lambda: len(self.processes) == self.size, f"{self.size} processes of {self.command}")


@dataclass(frozen=True)
class KindOfProgram:
    """How a program of one kind is made. ``needs``: what must be installed."""

    words: Callable[[Path, int], tuple[str, ...]]
    size: int = 1
    stays: bool = True
    needs: str = ""

    @property
    def is_here(self) -> bool:
        return not self.needs or shutil.which(self.needs) is not None

    def made(self, folder: Path) -> Program:
        folder.mkdir(parents=True)
        port = _free_port()
        return Program(folder, self.words(folder, port), self.size, self.stays, port)


def _python(body: str) -> Callable[[Path, int], tuple[str, ...]]:
    def words(folder: Path, port: int) -> tuple[str, ...]:
        return (sys.executable, _write(folder / "agent.py", _BEGIN + body, port))

    return words


def _gunicorn(folder: Path, port: int) -> tuple[str, ...]:
    app = "def app(environ, start_response):\n    start_response('200 OK', [])\n    return []\n"
    (folder / "app.py").write_text(app, encoding="utf-8")
    conf = _write(folder / "conf.py", _GUNICORN, port)
    return (sys.executable, "-m", "gunicorn", "--chdir", str(folder), "-c", conf, "app:app")


def _node(folder: Path, port: int) -> tuple[str, ...]:
    return ("node", _write(folder / "agent.js", _NODE, port))


def _plain(folder: Path, _port: int) -> tuple[str, ...]:
    return ("sh", "-c", _PLAIN, "sh", str(folder))


AGENTS = {
    "plain": KindOfProgram(_plain),
    "gunicorn": KindOfProgram(_gunicorn, size=1 + WORKERS),
    "node": KindOfProgram(_node, size=1 + WORKERS, needs="node"),
    "cluster": KindOfProgram(_python(_CLUSTER), size=1 + WORKERS),
    "forking": KindOfProgram(_python(_FORKING), size=2),
    "daemonizing": KindOfProgram(_python(_DAEMON), stays=False),
    "setproctitle": KindOfProgram(_python(_TITLED)),
}


def _write(path: Path, text: str, port: int) -> str:
    names = {name: str(path.parent / name) for name in ("mark", "starts", "ups")}
    for_js = {f"{name}_js": repr(value) for name, value in names.items()}
    path.write_text(text.format(port=port, workers=WORKERS, **names, **for_js), encoding="utf-8")
    return str(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def holders(marks: set[str]) -> dict[str, list[int]]:
    """The live processes that hold each of some files open."""
    found: dict[str, list[int]] = {mark: [] for mark in marks}
    for pid in all_pids():
        for mark in marks & _held(pid):
            if alive(pid):
                found[mark].append(pid)
    return found


def _held(pid: int) -> set[str]:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return {_target(entry.path) for entry in entries}
    except OSError:
        return set()


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - for every descriptor of the machine
    except OSError:
        return ""
