"""What goes wrong at random while gitops-agent works: each gremlin is one kind of harm, done again and again.

A gremlin does its harm and takes it back: what is left at the end is only what gitops-agent made of it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.pressure.truth import Truth
from tests.support.fleet import Fleet, signal_pid
from tests.support.git_servers import Drip, Fail, GitHttpServer, Hang

ROOT = Path(__file__).parents[2]
DISK_BYTES = 256 * 1024 * 1024
JUMPS = (3600.0, 315_360_000.0, -86_400.0, 40.0)
"""Seconds that the clock is off by for a while: an hour, ten years, a day back, a little."""


class Daemon:
    """``run`` in a process of its own, ended and started again by whoever asks."""

    def __init__(self, fleet: Fleet, offset: Path, log: Path) -> None:
        self._fleet, self._offset, self._log = fleet, offset, log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.exits: Counter[int] = Counter()

    def start(self) -> None:
        with self._lock:
            self._start()

    def _start(self) -> None:
        program = [sys.executable, "-m", "tests.pressure.simulated_clock", str(self._offset)]
        words = self._fleet.command("run")[3:]
        with self._log.open("ab") as log:
            environment = {**self._fleet.environment, "PYTHONPATH": str(ROOT)}
            self._process = subprocess.Popen([*program, *words], cwd=ROOT, env=environment, stdout=log, stderr=log)

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def end(self, number: int, patience: float = 30.0) -> int | None:
        """End it; its exit code, None when it did not end in time and was killed."""
        with self._lock:
            process = self._process
            assert process is not None
            process.send_signal(number)
            try:
                code = process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return None
            self.exits[code] += 1
            return code

    def replace(self, number: int) -> int | None:
        """End it and start another; what ended by itself is started again too, as a service manager would."""
        code = self.end(number)
        self.start()
        return code


class Disk:
    """The file system of the state directory: a small one of its own, or (where that is not allowed) a simulated
    limit on how large a file may become."""

    def __init__(self, folder: Path, daemon: Callable[[], int | None]) -> None:
        folder.mkdir()
        self._folder, self._daemon = folder, daemon
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(folder)]
        self.is_real = (
            os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        )

    def fill(self) -> None:
        if not self.is_real:
            self._limit(1)
            return
        with contextlib.suppress(OSError), (self._folder / "ballast").open("wb") as ballast:
            while True:
                ballast.write(bytes(1024 * 1024))
                ballast.flush()

    def free(self) -> None:
        if self.is_real:
            (self._folder / "ballast").unlink(missing_ok=True)
        else:
            self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        if (pid := self._daemon()) is not None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def close(self) -> None:
        if self.is_real:
            subprocess.run(["umount", str(self._folder)], capture_output=True, check=False)


class Gremlin(threading.Thread):
    """Does one kind of harm until it is stopped, with pauses of random length in between."""

    def __init__(self, name: str, harm: Callable[[], None], random: Random, pause: tuple[float, float]) -> None:
        super().__init__(name=name, daemon=True)
        self._harm, self._random, self._pause = harm, random, pause
        self._stop_asked = threading.Event()
        self.done = 0
        self.problem = ""

    def run(self) -> None:
        try:
            while not self._stop_asked.wait(self._random.uniform(*self._pause)):
                self._harm()
                self.done += 1
        except Exception as problem:  # a gremlin that died must not pass for a quiet one
            self.problem = f"{self.name}: {type(problem).__name__}: {problem}"

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(60.0)


class Harm:
    """The kinds of harm."""

    def __init__(self, random: Random, truth: Truth, daemon: Daemon, disk: Disk, server: GitHttpServer) -> None:
        self._random = random
        self._truth, self._daemon, self._disk, self._server = truth, daemon, disk, server

    def end_agents(self) -> None:
        names = self._random.sample(sorted(self._truth.spans), self._random.choice((1, 1, 1, 2, 5)))
        for span in (span for name in names for span in self._truth.alive(name)):
            signal_pid(span.pid)

    def end_daemon(self) -> None:
        self._daemon.replace(self._random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))

    def break_remote(self) -> None:
        self._server.always = self._random.choice((Hang(), Fail(503, {"Retry-After": "1"}), Fail(500), Drip()))
        time.sleep(self._random.uniform(1.0, 6.0))
        self._server.always = None

    def fill_disk(self) -> None:
        self._disk.fill()
        time.sleep(self._random.uniform(0.5, 3.0))
        self._disk.free()

    def lock_journal(self, journal: Path) -> None:
        if not journal.exists():
            return
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(journal, timeout=0.2)) as other,
        ):
            other.execute("BEGIN EXCLUSIVE")
            time.sleep(self._random.uniform(0.5, 3.0))
            other.rollback()

    def jump(self, offset: Path) -> None:
        offset.write_text(str(self._random.choice(JUMPS)))
        time.sleep(self._random.uniform(1.0, 4.0))
        offset.write_text("0")
