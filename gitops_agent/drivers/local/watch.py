"""What happens between two observations: exits and ``signs`` are noticed by event; memory, which gives none, is
looked at every few seconds, and logs are rotated."""

import os
import resource
import selectors
import threading
import time

import structlog

from gitops_agent.drivers.api import Notify
from gitops_agent.drivers.local.context import ProcessContext
from gitops_agent.drivers.local.handle import Handle, ReplicaHandle
from gitops_agent.drivers.local.observe import ProcessObserver
from gitops_agent.drivers.local.procfs import Identity
from gitops_agent.drivers.local.registry import WatchedAgent
from gitops_agent.drivers.local.signs import Signs
from gitops_agent.drivers.local.stop import open_pidfd
from gitops_agent.errors import ObserveError
from gitops_agent.model.key import AgentKey

log = structlog.get_logger(__name__)

END_SECONDS = 5.0  # for a round to end
FLOOD_POLL_SECONDS = 0.25  # while a log is flooded
GATHER_SECONDS = 0.1  # after the first event in a folder, so that a file is read when it was written whole


class ProcessWatcher:
    """The watching part of a driver for local processes: one thread, one pidfd per replica of the registry.
    Replicas beyond half of our file descriptors, or on a kernel without pidfds, are polled every few seconds.
    Nothing that goes wrong ends the thread: it is logged, and tried again after a pause."""

    def __init__(self, context: ProcessContext, observer: ProcessObserver) -> None:
        self._table = context.table
        self._registry = context.registry
        self._logs = context.logs
        self._observer = observer
        self._signs = Signs(context.dirs, context.table)
        self._every = context.watch_every
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._handles: dict[Identity, int | None] = {}
        self._reported: set[Identity] = set()
        self._wakeup = -1
        self._wakeup_lock = threading.Lock()
        self._due = 0.0
        self._is_following = False
        self._look_due = float("inf")

    def start(self, notify: Notify) -> None:
        """Begin to watch; a second start without a stop changes nothing."""
        if self._thread is not None:
            return
        self._notify = notify
        self._ending.clear()
        self._selector = selectors.DefaultSelector()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._signs.open(self._selector)
        self._is_following, self._look_due = False, float("inf")
        self._registry.changed = self._wake
        self._thread = threading.Thread(target=self._run, name="process-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread, though not for ever. One that hangs keeps its descriptors: were they
        closed, it would go on with those of other files."""
        if self._thread is None:
            return
        self._ending.set()
        self._wake()
        self._registry.changed = lambda: None
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            log.warning("the process watcher does not end", waited_seconds=END_SECONDS)
            return
        self._thread = None
        for identity in tuple(self._handles):
            self._close(identity)
        self._signs.close()
        self._selector.close()
        with self._wakeup_lock:
            os.close(self._wakeup)
            self._wakeup = -1

    def _wake(self) -> None:
        # Under the lock: a wake-up while we stop must not write to a descriptor that was reused by then.
        with self._wakeup_lock:
            if self._wakeup >= 0:
                os.eventfd_write(self._wakeup, 1)

    def _run(self) -> None:
        self._due = time.monotonic() + self._every
        while not self._ending.is_set():
            try:
                self._round()
            except Exception as problem:  # without this thread exits go unnoticed, and floods of output grow
                log.exception("process watcher", error=str(problem))
                self._is_following = False
                self._ending.wait(self._every)

    def _round(self) -> None:
        """Wait for one event, or for the next poll of what gives none."""
        if not self._is_following:
            self._follow_registry()
        for key, _ in self._selector.select(max(0.0, min(self._due, self._look_due) - time.monotonic())):
            self._handle_event(key)
        if time.monotonic() >= self._look_due:
            self._look()
        if time.monotonic() >= self._due:
            # First of all, so that a poll that fails is not repeated at once.
            self._due = time.monotonic() + self._every
            if self._poll():
                self._due = time.monotonic() + min(FLOOD_POLL_SECONDS, self._every)

    def _handle_event(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            os.eventfd_read(key.fd)
            self._is_following = False
            return
        if key.data is self._signs:
            self._selector.unregister(key.fd)  # until they are read
            self._look_due = min(self._look_due, time.monotonic() + GATHER_SECONDS)
            return
        agent, known = key.data
        if known in self._registry.replicas(agent):
            self._exited(agent, known)
        else:
            self._close(known.identity)  # we ended it, and this came before the registry changed

    def _look(self) -> None:
        """Look at the agents in whose folders something happened."""
        self._look_due = time.monotonic() + self._every  # should it fail
        self._signs.gather()
        self._signs.listen(self._selector)
        for agent, word in self._signs.look_at_touched(time.monotonic()):
            self._notify(agent, word)
        self._look_due = self._signs.due

    def _exited(self, agent: AgentKey, known: ReplicaHandle) -> None:
        self._close(known.identity)
        self._reported.add(known.identity)
        self._registry.reap()
        self._notify(agent, "ProcessExited")

    def _follow_registry(self) -> None:
        """Open a handle on what is new, close those on what is no longer ours to watch."""
        self._is_following = True
        agents = self._registry.watched()
        self._signs.follow(agents)
        self._look_due = min(self._look_due, self._signs.due)
        wanted = {
            known.identity: (agent, known) for agent, watched in agents.items() for known in watched.replicas
        }
        self._reported &= wanted.keys()
        for identity in self._handles.keys() - wanted.keys():
            self._close(identity)
        for identity, (agent, known) in wanted.items():
            if identity not in self._handles and identity not in self._reported:
                self._open(agent, known)

    def _open(self, agent: AgentKey, known: ReplicaHandle) -> None:
        budget = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        handle = open_pidfd(known.identity, self._table) if len(self._handles) < budget else None
        if handle is None and not self._table.is_alive(known.identity):
            self._exited(agent, known)
            return
        if handle is not None:
            try:
                self._selector.register(handle, selectors.EVENT_READ, (agent, known))
            except OSError:  # no more events can be had: it is polled instead
                os.close(handle)
                handle = None
        self._handles[known.identity] = handle

    def _close(self, identity: Identity) -> None:
        handle = self._handles.pop(identity, None)
        if handle is not None:
            self._selector.unregister(handle)
            os.close(handle)

    def _poll(self) -> bool:
        """Everything that gives no event; whether a log is flooding."""
        self._is_following = False  # a folder may have come that can be watched now
        watched = self._registry.watched()
        replicas = [(agent, known) for agent, one in watched.items() for known in one.replicas]
        # LogFiles first: they cost the least, fail the least, and a flood does not wait.
        turned = [self._logs.rotate(agent, known.number) for agent, known in replicas]
        for agent, known in replicas:
            polled = self._handles.get(known.identity, -1) is None
            if polled and not self._table.is_alive(known.identity):
                self._exited(agent, known)
        for agent, word in self._signs.look_at_unwatched(time.monotonic()):
            self._notify(agent, word)
        self._check_memory({agent: one for agent, one in watched.items() if one.desired.memory_limit is not None})
        return any(turned)

    def _check_memory(self, limited: dict[AgentKey, WatchedAgent]) -> None:
        if not limited:
            return
        try:
            tree = self._observer.process_tree({agent: Handle() for agent in limited})
        except ObserveError:
            return  # the next observation reports it
        for agent, watched in limited.items():
            replica_set = self._observer.replica_set(agent, watched.desired, tree)
            over = {
                replica.proc.identity
                for replica in replica_set.replicas
                if replica_set.faults.get(replica.proc.pid) == "MemoryLimit"
            }
            if over - self._reported:
                self._reported |= over
                self._notify(agent, "MemoryLimit")
