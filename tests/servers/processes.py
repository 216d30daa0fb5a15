"""Server processes of a test: on free loopback ports, with their output in files, none left over.

All processes of one ``ProcessGroup`` share a process group with a guard. The guard waits on a pipe that only we
hold open: however we end, also by ``kill -9``, the pipe closes and the guard ends the group.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BELOW_EPHEMERAL = range(15000, 32000)
"""Ports that no outgoing connection takes meanwhile."""


class StartFailed(Exception):
    """A server did not come up; the message ends with the last lines of its output."""


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that nobody listens on, all different."""
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            one = socket.socket()
            try:
                one.bind(("127.0.0.1", random.choice(BELOW_EPHEMERAL)))
                held.append(one)
            except OSError:
                one.close()
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


class ProcessGroup:
    """Servers that live and end together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._guard = subprocess.Popen(["sh", "-c", "read _; kill -9 -$$"], stdin=subprocess.PIPE, process_group=0)

    def start(self, name: str, call: Sequence[str | Path]) -> None:
        """Start a server; its output is appended to ``<name>.log`` in the folder."""
        with self.log(name).open("ab") as output:
            self._processes[name] = subprocess.Popen(
                list(call),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=self._guard.pid,
                cwd=self._folder,
            )

    def end(self, name: str, with_signal: signal.Signals = signal.SIGKILL, timeout: float = 60) -> None:
        """End one server and wait until it is gone."""
        process = self._processes.pop(name)
        process.send_signal(with_signal)
        process.wait(timeout)

    def pid(self, name: str) -> int:
        """Return the process id of a server."""
        return self._processes[name].pid

    def log(self, name: str) -> Path:
        """Return the file that a server's output goes to."""
        return self._folder / f"{name}.log"

    def wait(self, name: str, ready: Callable[[], bool], timeout: float = 90) -> None:
        """Return once the server is ready; raise with the end of its output when it exits or takes too long."""
        until = time.monotonic() + timeout
        while not ready():
            code = self._processes[name].poll()
            if code is not None or time.monotonic() > until:
                what = f"not ready after {timeout:.0f} s" if code is None else f"ended with {code}"
                raise StartFailed(f"{name} {what}; the end of {self.log(name)}:\n{self.tail(name)}")
            time.sleep(0.05)

    def tail(self, name: str, lines: int = 25) -> str:
        """Return the last lines of a server's output."""
        log = self.log(name)
        text = log.read_text(errors="replace") if log.exists() else ""
        return "\n".join(f"  {line[:400]}" for line in text.splitlines()[-lines:])

    def stop(self) -> None:
        """End all of them at once and wait until they are gone."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
