"""Git processes, bounded: the environment that they are given and no other, a deadline that ends the whole group,
and caps on the output and on each file that is written."""

import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from gitops_agent.support.deadline import deadline

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 4 * 1024 * 1024 * 1024
"""No file that git writes for us (a pack, above all) may be larger: an endless answer ends here."""

# In blocks of 512 bytes, for where there is no prlimit. Where a lower limit holds already, that one stays.
_LIMITED = 'ulimit -f "$0" 2>/dev/null; ulimit -c 0 2>/dev/null; exec "$@"'

STDERR_BYTES = 65_536
_CHUNK_BYTES = 65_536

OnProgress = Callable[[str, int, int | None], None]
"""``on_progress(phase, done, total)``: called from a thread of its own; ``total`` is None while unknown."""


class Overrun(Exception):
    """The process was ended by us because it took too long."""


class Overflow(Overrun):
    """The process was ended by us because its output was too long."""


class Answer(NamedTuple):
    """Exit code, output and errors of a git process."""

    code: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        """The output as text, without the last newline."""
        return self.output.decode(errors="replace").rstrip("\n")


@dataclass(frozen=True, slots=True)
class Runner:
    """Starts git on one repository with these variables and no others, each process in a session of its own."""

    directory: Path
    variables: Mapping[str, str] = field(repr=False)  # credentials may be among them
    timeout: float

    def start(
        self, args: Sequence[str], stdin: int | IO[bytes] | None = None, stdout: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        """A started ``git ARGS``; the caller ends it."""
        git = shutil.which("git", path=self.variables.get("PATH"))
        if git is None:
            raise FileNotFoundError("git")
        limits = _limits(shutil.which("prlimit", path=self.variables.get("PATH")))
        return subprocess.Popen(
            [*limits, git, f"--git-dir={self.directory}", "--no-pager", *args],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd="/",
            env=self.variables,
            start_new_session=True,
        )

    def run(self, args: Sequence[str], stdin: bytes | None) -> Answer:
        """The answer of ``git ARGS``; Overrun when it takes too long or answers too much."""
        with closing(Bounded(self, args, stdin)) as process, process.deadline():
            return process.answer()


def _limits(prlimit: str | None) -> Sequence[str]:
    """The words before a command that limit its files and forbid core dumps, before it begins: set from outside,
    it may come too late for a child of git. An image may have no shell, so that is the second choice."""
    if prlimit is None:
        return ("/bin/sh", "-c", _LIMITED, str(MAX_FILE_BYTES // 512))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(MAX_FILE_BYTES, hard)
    return (prlimit, f"--fsize={size}:{size}", "--core=0:0", "--")


class Bounded:
    """A process to converse with until it is closed. Its input is a file in memory and its errors are drained by a
    thread, so that no pipe fills up."""

    def __init__(self, runner: Runner, args: Sequence[str], stdin: bytes | None) -> None:
        with os.fdopen(os.memfd_create("git-stdin"), "w+b") as given:
            given.write(stdin or b"")
            given.seek(0)
            self._process = runner.start(args, given)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stdout, self._stderr = self._process.stdout, self._process.stderr
        self._timeout = runner.timeout
        self._errors = bytearray()
        self._drainer = threading.Thread(target=self._drain, name="git-stderr", daemon=True)
        self._drainer.start()

    def deadline(self) -> AbstractContextManager[None]:
        """Within this block the process has its time; then its group is killed and Overrun raised."""
        return limited(self._timeout, [self._process])

    def answer(self) -> Answer:
        """Its whole output and its end; Overflow when that is too much."""
        output = bytearray()
        while chunk := self.stdout.read(_CHUNK_BYTES):
            output += chunk
            if len(output) > MAX_ANSWER_BYTES:
                raise Overflow(f"more than {MAX_ANSWER_BYTES} bytes of answer")
        return Answer(self._finish(), bytes(output), self._errors.decode(errors="replace"))

    def _finish(self) -> int:
        code = self._process.wait()
        self._drainer.join()
        return code

    def close(self) -> None:
        """End it, and what it started that still holds its pipes."""
        if self._process.poll() is None or self._drainer.is_alive():
            kill_group(self._process.pid)
        self._finish()
        self.stdout.close()
        self._stderr.close()

    def _drain(self) -> None:
        while chunk := os.read(self._stderr.fileno(), _CHUNK_BYTES):
            self._errors += chunk
            del self._errors[:-STDERR_BYTES]


@contextmanager
def limited(seconds: float, processes: Sequence[subprocess.Popen[Any]]) -> Iterator[None]:
    """Within this block the processes have so much time; then their groups are killed and Overrun is raised.

    Also that of a process that has ended: what it started may still hold the pipe that is read.
    """
    killed: list[int] = []
    try:
        with deadline(seconds, lambda: killed.extend(each.pid for each in processes if kill_group(each.pid))):
            yield
    finally:
        if killed:
            raise Overrun(f"no end after {seconds:g} s")


def kill_group(pid: int) -> bool:
    """Kill a process that we started, with all that it started; False when it had ended by itself."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
