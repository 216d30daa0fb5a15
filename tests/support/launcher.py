"""Processes of the command line without paying for its imports each time.

A process that has imported everything forks one for each call: its own pid, directory, environment, arguments,
stdout, stderr and exit, as ``python -m gitops_agent`` would have. Importing is most of what a call costs, and the
tests make hundreds. (``tests/e2e/test_output.py`` and ``tests/e2e/test_run.py`` also start the real thing.)
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from tests.support.fast_disk import hurry
from tests.support.shared_statements import share_statements

ROOT = Path(__file__).parents[2]
Step = tuple[str, str, str]
"""Module, function and argument: what a call does first, in its own process."""


class Launched:
    """A process of the command line; used like a ``subprocess.Popen``."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self.pid = self._number()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._line], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative when a signal ended it."""
        if self.returncode is None:
            if not select.select([self._line], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = self._number()
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        # Of one size, so that two of them never run together.
        return int(self._line.recv(12, socket.MSG_WAITALL))


class Launcher:
    """The client's side."""

    def __init__(self, search_path: str = "") -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._address = f"{self._folder.name}/line"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self._address)
        listening.listen()  # from now on a call waits for the server instead of failing
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.launcher", str(listening.fileno())],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": search_path},
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
        )
        listening.close()
        atexit.register(self.close)

    def start(
        self,
        words: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        output: tuple[Path, Path],
        first: Sequence[Step] = (),
    ) -> Launched:
        """A process that runs these words, with its stdout and stderr appended to these files."""
        out, err = map(str, output)
        call = {"words": list(words), "cwd": str(cwd), "environment": dict(environment), "out": out, "err": err}
        line = socket.socket(socket.AF_UNIX)
        line.connect(self._address)
        line.sendall(json.dumps({**call, "first": list(first)}).encode() + b"\n")
        return Launched(line)

    def call(
        self,
        words: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        timeout: float,
        first: Sequence[Step] = (),
    ) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one call."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            process = self.start(words, cwd, environment, (out, err), first)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                said = out.read_text() + err.read_text()
                raise TimeoutError(f"{' '.join(words)}: not done after {timeout} s\n{said}") from None
            return code, out.read_text(), err.read_text()

    def close(self) -> None:
        """End the server, by its own pipe."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        self._folder.cleanup()


@cache
def launcher(search_path: str = "") -> Launcher:
    """The one of this test process that finds modules and plugins on this path as well."""
    return Launcher(search_path)


def serve(listening: socket.socket) -> None:
    """The server: read a call, fork, tell the pid; tell the exit code when the process has ended."""
    warm()
    event.listen(Engine, "connect", hurry)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    selector.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listening:
                _begin(listening, selector)
            else:
                selector.unregister(key.fileobj)
                _end(key.fd, *key.data)


def _begin(listening: socket.socket, selector: selectors.BaseSelector) -> None:
    line, _ = listening.accept()
    with line.makefile("rb") as request:
        call = json.loads(request.readline())
    pid = os.fork()
    if pid == 0:
        _become(call)
    _tell(line, pid)
    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, line))


def _end(handle: int, pid: int, line: socket.socket) -> None:
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    _tell(line, os.waitstatus_to_exitcode(status))
    line.close()


def _tell(line: socket.socket, number: int) -> None:
    try:
        line.sendall(f"{number:>12}".encode())
    except OSError:
        pass  # the test that asked is over


def warm() -> None:
    """Do once what every process would do again: import everything, and what follows from the code alone."""
    import gitops_agent

    for module in pkgutil.walk_packages(gitops_agent.__path__, "gitops_agent."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
    for name in ("apscheduler.schedulers.background", "git", "jsonpatch", "ruamel.yaml"):
        __import__(name)

    import typer.main

    from gitops_agent import wiring
    from gitops_agent.cli.app import app
    from tests.pipeline.world import World

    typer.main.get_command = cache(typer.main.get_command)
    typer.main.get_command(app)
    wiring.load_plugins = cache(wiring.load_plugins)
    assert wiring.load_plugins().documents  # their models are made when they are asked for
    share_statements()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for fleet in (("one", "two"), ("one",)):
            world.commit(*fleet)
            world.converge()
        world.shut()
    gc.freeze()  # else a collection in a child would copy every page of what was imported


def _become(call: dict[str, Any]) -> None:
    """Be the call, in every respect a call can see, and end like one."""
    for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, call["out"], 0), (2, call["err"], 0)):
        handle = os.open(name, flags or os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY)
        os.dup2(handle, number)
        os.close(handle)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(call["cwd"])
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.argv = ["gitops-agent", *call["words"]]
    code = 1
    try:
        from gitops_agent.cli import main

        for module, function, argument in call["first"]:
            getattr(importlib.import_module(module), function)(argument)
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
