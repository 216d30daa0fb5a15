"""What happens between two observations: exits are noticed by event, memory is watched, logs are rotated."""

from __future__ import annotations

import os
import resource
import selectors
import threading
import time
from collections.abc import Callable

import structlog

from gitops_agent.drivers.local.handle import Handle, Known
from gitops_agent.drivers.local.procfs import ProcessInfo
from gitops_agent.drivers.process.context import ProcessContext
from gitops_agent.drivers.process.observe import ProcessObserver
from gitops_agent.drivers.process.registry import Identity, Watched
from gitops_agent.drivers.process.stop import is_alive, open_pidfd
from gitops_agent.errors import ObserveError
from gitops_agent.model.key import AgentKey

log = structlog.get_logger(__name__)

Notify = Callable[[AgentKey, str], None]

EVERY = 2.0
FLOODED = 0.25  # while a log floods it is looked at this often


class ProcessWatcher:
    """The watching part of the process driver: one thread, one pidfd per replica, taught by the roster.

    Replicas beyond half of our file descriptors, or on a kernel without pidfds, are looked at every few seconds.
    Nothing that goes wrong ends the thread: it is logged, and tried again after a pause.
    """

    def __init__(self, kit: ProcessContext, observer: ProcessObserver, every: float = EVERY) -> None:
        self._table = kit.table
        self._roster = kit.roster
        self._logs = kit.logs
        self._observer = observer
        self._every = every
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._handles: dict[Identity, int | None] = {}
        self._told: set[Identity] = set()
        self._bell: int | None = None
        self._bell_lock = threading.Lock()
        self._due = 0.0

    def start(self, notify: Notify) -> None:
        """Begin to watch; a second start without a stop changes nothing."""
        if self._thread is not None:
            return
        self._notify = notify
        self._ending.clear()
        self._selector = selectors.DefaultSelector()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._roster.changed = self._ring
        self._thread = threading.Thread(target=self._run, name="process-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        if self._thread is None:
            return
        self._ending.set()
        self._ring()
        self._thread.join()
        self._thread = None
        self._roster.changed = lambda: None
        for identity in tuple(self._handles):
            self._close(identity)
        self._selector.close()
        with self._bell_lock:
            bell, self._bell = self._bell, None
            if bell is not None:
                os.close(bell)

    def _ring(self) -> None:
        # Under the lock: whoever rings while we stop must not write to a number that is somebody else's by then.
        with self._bell_lock:
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def _run(self) -> None:
        self._due = time.monotonic() + self._every
        while not self._ending.is_set():
            try:
                self._round()
            except Exception as problem:  # without this thread exits go unnoticed, and floods of output grow
                log.exception("process watcher", error=str(problem))
                self._ending.wait(self._every)

    def _round(self) -> None:
        """Wait for one event, or for the next look at what gives none."""
        self._learn()
        for key, _ in self._selector.select(max(0.0, self._due - time.monotonic())):
            self._heard(key)
        if time.monotonic() >= self._due:
            # First of all, so that a look that fails is not repeated at once.
            self._due = time.monotonic() + self._every
            if self._look():
                self._due = time.monotonic() + min(FLOODED, self._every)

    def _heard(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            os.eventfd_read(key.fd)
            return
        agent, known = key.data
        watched = self._roster.get(agent)
        if watched is not None and known in watched.replicas:
            self._exited(agent, known)
        else:
            self._close((known.pid, known.start))  # its end was asked for, and came before we learned of it

    def _exited(self, agent: AgentKey, known: Known) -> None:
        self._close((known.pid, known.start))
        self._told.add((known.pid, known.start))
        self._roster.reap([known.pid])
        self._notify(agent, "ProcessExited")

    def _learn(self) -> None:
        """Open a handle on what is new, close those on what is no longer ours to watch."""
        wanted = {
            (known.pid, known.start): (agent, known)
            for agent, watched in self._roster.watched().items()
            for known in watched.replicas
        }
        self._told &= wanted.keys()
        for identity in self._handles.keys() - wanted.keys():
            self._close(identity)
        for identity, (agent, known) in wanted.items():
            if identity not in self._handles and identity not in self._told:
                self._open(agent, known)

    def _open(self, agent: AgentKey, known: Known) -> None:
        proc = _proc(known)
        handle = open_pidfd(proc, self._table) if len(self._handles) < _budget() else None
        if handle is None and not is_alive(proc, self._table):
            self._exited(agent, known)
            return
        self._handles[(known.pid, known.start)] = self._listen(handle, agent, known)

    def _listen(self, handle: int | None, agent: AgentKey, known: Known) -> int | None:
        """The handle, once its event will be heard; None for a replica that must be looked at instead."""
        if handle is None:
            return None
        try:
            self._selector.register(handle, selectors.EVENT_READ, (agent, known))
        except OSError:
            os.close(handle)
            return None
        return handle

    def _close(self, identity: Identity) -> None:
        handle = self._handles.pop(identity, None)
        if handle is not None:
            self._selector.unregister(handle)
            os.close(handle)

    def _look(self) -> bool:
        """Everything that gives no event; whether a log is flooding."""
        watched = self._roster.watched()
        # Logs first: they cost the least, fail the least, and a flood does not wait.
        turned = [
            self._logs.rotate(agent, known.number) for agent, one in watched.items() for known in one.replicas
        ]
        for agent, one in watched.items():
            for known in one.replicas:
                if self._handles.get((known.pid, known.start), -1) is None and not is_alive(
                    _proc(known), self._table
                ):
                    self._exited(agent, known)
        self._look_at_memory(
            {agent: one for agent, one in watched.items() if one.desired.memory_limit is not None}
        )
        return any(turned)

    def _look_at_memory(self, limited: dict[AgentKey, Watched]) -> None:
        if not limited:
            return
        try:
            census = self._observer.census({agent: Handle() for agent in limited})
        except ObserveError:
            return  # the next observation says so where people see it
        for agent, watched in limited.items():
            sight = self._observer.sight(agent, watched.desired, census)
            over = {
                (replica.proc.pid, replica.proc.start)
                for replica in sight.replicas
                if sight.faults.get(replica.proc.pid) == "MemoryLimit"
            }
            if over - self._told:
                self._told |= over
                self._notify(agent, "MemoryLimit")


def _proc(known: Known) -> ProcessInfo:
    """A stand-in that carries the identity of a process, which is all that handles compare."""
    return ProcessInfo(known.pid, "?", 0, 0, 0, known.start, 0, None)


def _budget() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
