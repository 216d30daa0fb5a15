"""Git processes, bounded: the environment that they are given and no other, a deadline that ends the whole group,
and caps on the output and on each file that is written."""

import os
import resource
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from gitops_agent.support.deadline import deadline

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 4 * 1024 * 1024 * 1024
"""No file that git writes for us (a pack, above all) may be larger: an endless answer ends here."""

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
    variables: Mapping[str, str]
    timeout: float

    def start(
        self, args: Sequence[str], stdin: int | None = None, stdout: int = subprocess.PIPE, *, text: bool = False
    ) -> subprocess.Popen[Any]:
        """A started ``git ARGS``; whoever takes it ends it."""
        process: subprocess.Popen[Any] = subprocess.Popen(
            ["git", f"--git-dir={self.directory}", "--no-pager", *args],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd="/",
            env=self.variables,
            start_new_session=True,
            # Bytes of a remote that are no text must not end the thread that reads them.
            encoding="utf-8" if text else None,
            errors="replace" if text else None,
        )
        for limit, most in ((resource.RLIMIT_FSIZE, MAX_FILE_BYTES), (resource.RLIMIT_CORE, 0)):
            with suppress(ProcessLookupError, PermissionError, ValueError):  # it has ended, or a lower one holds
                resource.prlimit(process.pid, limit, (most, most))
        return process

    def open(self, args: Sequence[str], stdin: bytes | None) -> "Bounded":
        """``git ARGS`` to converse with, until it is closed."""
        process = self.start(args, None if stdin is None else subprocess.PIPE)
        return Bounded(process, stdin, self.timeout)

    def run(self, args: Sequence[str], stdin: bytes | None) -> Answer:
        """The answer of ``git ARGS``; Overrun when it takes too long or answers too much."""
        with closing(self.open(args, stdin)) as process:
            with process.deadline():
                output = process.read_all()
                code = process.finish()
            return Answer(code, output, process.errors)


class Bounded:
    """A started process in a session of its own, fed and drained by threads so that no pipe fills up."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes | None, timeout: float) -> None:
        assert process.stdout is not None
        self.stdout: IO[bytes] = process.stdout
        self._process = process
        self._timeout = timeout
        self._overrun: Overrun | None = None
        self._errors = bytearray()
        self._threads = [threading.Thread(target=self._drain, name="git-stderr", daemon=True)]
        if stdin is not None:
            self._threads.append(threading.Thread(target=self._feed, args=(stdin,), name="git-stdin", daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def errors(self) -> str:
        """The end of its error output (complete after ``finish``)."""
        return self._errors.decode(errors="replace")

    @contextmanager
    def deadline(self) -> Iterator[None]:
        """Within this block the process has its time; then its group is killed and Overrun raised."""
        try:
            with deadline(self._timeout, lambda: self._kill(Overrun(f"no end after {self._timeout:g} s"))):
                yield
        finally:
            if self._overrun:
                raise self._overrun

    def read_all(self) -> bytes:
        """Its whole output; its group is killed when that is too much."""
        output = bytearray()
        while chunk := self.stdout.read(_CHUNK_BYTES):
            output += chunk
            if len(output) > MAX_ANSWER_BYTES:
                self._kill(Overflow(f"more than {MAX_ANSWER_BYTES} bytes of answer"))
                break
        return bytes(output)

    def finish(self) -> int:
        """Wait for it and for our threads; the exit code."""
        code = self._process.wait()
        for thread in self._threads:
            thread.join()
        return code

    def close(self) -> None:
        """End it if it still runs, and leave nothing behind."""
        if self._process.poll() is None:
            self._kill(None)
        self.finish()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            _close(stream)

    def _kill(self, why: Overrun | None) -> None:
        if kill_group(self._process.pid):
            self._overrun = self._overrun or why

    def _drain(self) -> None:
        assert self._process.stderr is not None
        while chunk := os.read(self._process.stderr.fileno(), _CHUNK_BYTES):
            self._errors += chunk
            del self._errors[:-STDERR_BYTES]

    def _feed(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it ended early; its exit code says why
            self._process.stdin.write(data)
        _close(self._process.stdin)


def kill_group(pid: int) -> bool:
    """Kill a process that we started, with all that it started; False when it had ended by itself."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _close(stream: IO[bytes] | None) -> None:
    with suppress(OSError):  # unsent bytes to a process that is gone
        if stream is not None:
            stream.close()
