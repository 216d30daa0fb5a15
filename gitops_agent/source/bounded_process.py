"""One child process, bounded: a deadline that ends its whole group, and a cap on its output."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from gitops_agent.support.deadline import deadline

STDERR_BYTES = 65_536
_CHUNK_BYTES = 65_536


class Overrun(Exception):
    """The process was ended by us because it took too long."""


class Overflow(Overrun):
    """The process was ended by us because its output was too long."""


class Bounded:
    """A started process in a session of its own, fed and drained by threads so that no pipe fills up."""

    def __init__(self, process: subprocess.Popen[bytes], feed: Callable[[IO[bytes]], None] | None) -> None:
        self._process = process
        self._overrun: Overrun | None = None
        self._errors = bytearray()
        self._threads = [threading.Thread(target=self._drain, name="git-stderr", daemon=True)]
        if feed is not None:
            self._threads.append(threading.Thread(target=self._feed, args=(feed,), name="git-stdin", daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def stdout(self) -> IO[bytes]:
        """The output of the process."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def errors(self) -> str:
        """The end of its error output (complete after ``finish``)."""
        return self._errors.decode(errors="replace")

    @contextmanager
    def deadline(self, timeout: float) -> Iterator[None]:
        """Within this block the process has so many seconds; then its group is killed and Overrun raised."""
        with deadline(timeout, lambda: self._kill(Overrun(f"no end after {timeout:g} s"))):
            yield
        if self._overrun:
            raise self._overrun

    def read_all(self, cap: int) -> bytes:
        """Its whole output; its group is killed when that is more than ``cap`` bytes."""
        output = bytearray()
        while chunk := self.stdout.read(_CHUNK_BYTES):
            output += chunk
            if len(output) > cap:
                self._kill(Overflow(f"more than {cap} bytes of answer"))
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
            if stream is not None and not stream.closed:
                _close(stream)

    def _kill(self, why: Overrun | None) -> None:
        if kill_group(self._process.pid):
            self._overrun = self._overrun or why

    def _drain(self) -> None:
        assert self._process.stderr is not None
        while chunk := os.read(self._process.stderr.fileno(), _CHUNK_BYTES):
            self._errors += chunk
            del self._errors[:-STDERR_BYTES]

    def _feed(self, feed: Callable[[IO[bytes]], None]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            feed(stdin)
        except (BrokenPipeError, ValueError):
            pass  # it ended early; its exit code says why
        finally:
            _close(stdin)


def kill_group(pid: int) -> bool:
    """Kill a process that we started, with all that it started; False when it had ended by itself."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except OSError:
        pass  # unsent bytes to a process that is gone
