"""A heartbeat for agents written in Python: it tells gitops-agent that the agent makes progress.

Only the standard library is used, so an agent may also copy this one file. Without ``MANAGED_AGENT_HEARTBEAT`` in
the environment every call does nothing, so the same agent runs unchanged outside of gitops-agent::

    heartbeat = Heartbeat()
    for turn, message in enumerate(messages):
        heartbeat.beat(turn=turn)
        with heartbeat.tool_call("crm.lookup"):
            look_up(message)

The file format is documented in ``docs/heartbeat.md``.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "MANAGED_AGENT_HEARTBEAT"
VERSION = 1


class Heartbeat:
    """Writes the heartbeat file of this process. Safe to share between threads; never raises for a full disk."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path if path is not None else os.environ.get(VARIABLE, "")
        self._lock = threading.Lock()
        self._turn: int | None = None
        self._pending: list[str] = []

    @property
    def enabled(self) -> bool:
        """Whether somebody asked for heartbeats."""
        return bool(self._path)

    def beat(self, turn: int | None = None) -> None:
        """Say that progress was made, and in which turn (without one, the last turn stays)."""
        with self._lock:
            if turn is not None:
                self._turn = turn
            self._write()

    def idle(self) -> None:
        """Say that it is alive and in no turn: it waits for work, for however long."""
        with self._lock:
            self._turn = None
            self._write()

    @contextmanager
    def tool_call(self, name: str) -> Iterator[None]:
        """A tool call in progress: a stale heartbeat does not restart the agent while it lasts."""
        with self._lock:
            self._pending.append(name)
            self._write()
        try:
            yield
        finally:
            with self._lock:
                self._pending.remove(name)
                self._write()

    @contextmanager
    def background(self, every: float = 10.0) -> Iterator[None]:
        """Beat from a thread of its own, for work that cannot call ``beat``.

        This only proves that the process is scheduled: prefer ``beat`` wherever real progress is made.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._keep_beating, args=(every, ended), name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _keep_beating(self, every: float, ended: threading.Event) -> None:
        self.beat()
        while not ended.wait(every):
            self.beat()

    def _write(self) -> None:
        if not self._path:
            return
        content = {"version": VERSION, "at": time.time(), "turn": self._turn, "pending": self._pending}
        try:
            _replace(Path(self._path), json.dumps(content))
        except OSError:
            pass  # an agent must not fail because its heartbeat cannot be written


def _replace(path: Path, text: str) -> None:
    """Readers see the old heartbeat or the new one, never half of one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
