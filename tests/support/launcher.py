"""Calls of the command line without paying for its imports each time.

A process that has imported everything forks one for each call: its own pid, directory, environment, arguments,
stdout, stderr and exit, as ``python -m gitops_agent`` would have. Importing is most of what a call costs, and the
tests make hundreds. (``Fleet.running`` and ``Fleet.on_terminal`` start the real thing.)
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import signal
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

ROOT = Path(__file__).parents[2]


class Launcher:
    """The client's side: one call at a time."""

    def __init__(self, search_path: str = "") -> None:
        self._lock = threading.Lock()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.launcher"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": search_path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self.close)

    def call(
        self, words: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout: float
    ) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one call."""
        with self._lock, tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            call = {"words": list(words), "cwd": str(cwd), "environment": dict(environment)}
            self._send({**call, "out": str(out), "err": str(err)})
            pid = self._receive(timeout)
            try:
                code = self._receive(timeout)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._receive(timeout)
                said = out.read_text() + err.read_text()
                raise TimeoutError(f"{' '.join(words)}: not done after {timeout} s\n{said}") from None
            return code, out.read_text(), err.read_text()

    def close(self) -> None:
        """End the server, by its own pipe."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def _send(self, value: Any) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(value).encode() + b"\n")
        self._server.stdin.flush()

    def _receive(self, timeout: float) -> int:
        assert self._server.stdout is not None
        if not select.select([self._server.stdout], [], [], timeout)[0]:
            raise TimeoutError
        return int(os.read(self._server.stdout.fileno(), 12))


@cache
def launcher(search_path: str = "") -> Launcher:
    """The one of this test process that finds modules and plugins on this path as well."""
    return Launcher(search_path)


def serve() -> None:
    """The server: read a call, fork, tell the pid, wait, tell the exit code."""
    _import_everything()
    event.listen(Engine, "connect", hurry)
    gc.freeze()  # else a collection in a child would copy every page of what was imported
    for line in sys.stdin.buffer:
        call = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(call)
        _tell(pid)
        _, status = os.waitpid(pid, 0)
        _tell(os.waitstatus_to_exitcode(status))


def _tell(number: int) -> None:
    # Of one size, so that two of them never run together.
    os.write(1, f"{number:>12}".encode())


def _import_everything() -> None:
    import gitops_agent

    for module in pkgutil.walk_packages(gitops_agent.__path__, "gitops_agent."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
    for name in ("apscheduler.schedulers.background", "jsonpatch", "ruamel.yaml"):
        __import__(name)


def _become(call: dict[str, Any]) -> None:
    """Be the call, in every respect a call can see, and end like one."""
    for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, call["out"], 0), (2, call["err"], 0)):
        handle = os.open(name, flags or os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(call["cwd"])
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.argv = ["gitops-agent", *call["words"]]
    code = 1
    try:
        from gitops_agent.cli import main

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
    serve()
