"""Standing by: of several ``run`` of one instance, on several machines, one leads and acts. The others open no
journal, connect no driver and fetch nothing; they wait for their turn, and say so.

    stand by ──► lead: the instance is opened, passes run ──► the lease is given back ──► the end
        ▲            │ the lease is lost    │ all begins anew, or the journal cannot be opened
        └────────────┴──────────────────────┘

How the one is found is a driver's business (``drivers.api.Election``). Here is what it means: a fence for each
leadership, and the way back when it is over.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

import structlog

from gitops_agent.drivers.api import Election
from gitops_agent.errors import JournalError
from gitops_agent.model.key import AgentKey
from gitops_agent.support.backoff import delay

PERIOD_SECONDS = 0.25
"""How soon a lost leadership ends the loop of passes. Nothing is begun meanwhile: the fence is asked each time."""

FIRST_REST_SECONDS, MAX_REST_SECONDS = 5.0, 20.0
"""How long who could not open the journal stands back: others see meanwhile that the lease is free."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fence:
    """One leadership of this process. A later one has another term, so what hung in this one stays fenced."""

    election: Election
    term: int

    def holds(self) -> bool:
        """Whether this process still leads, without a break since; asked right before everything that acts."""
        # In this order: were the term read first, a later leadership could answer for this one.
        return self.election.leading() and self.election.term == self.term


@dataclass(frozen=True, slots=True)
class Answers:
    """What the endpoints answer."""

    metrics: Callable[[], bytes]
    live: Callable[[], tuple[bool, str]]
    ready: Callable[[], tuple[bool, str]]


class Candidacy:
    """This process among those of its instance. ``stop``: set when it is to end. ``fence``: of its leadership;
    None before the first, and without an ``election``, when it always leads. ``answers``: those of a standby, or,
    while it leads, of the instance that is open."""

    def __init__(self, election: Election | None = None, metrics: Callable[[], bytes] = lambda: b"") -> None:
        self._election = election
        self._standby = Answers(metrics, lambda: (True, "ok"), self._ready)
        self.answers = self._standby
        self.stop = Event()
        self.fence: Fence | None = None
        self._failures = 0
        self._problem = ""  # what keeps this process from leading now

    @property
    def elected(self) -> bool:
        """Whether there is an election at all."""
        return self._election is not None

    def wait(self) -> bool:
        """Block until this process leads (True) or is to end."""
        if self._election is not None:
            self._rest()
            log.info("standing by for the one that leads")
            if not self._election.wait(self.stop):
                return False
            self.fence = Fence(self._election, self._election.term)
            log.info("leading", term=self.fence.term, identity=self._election.holder())
        return not self.stop.is_set()

    @contextmanager
    def leadership(self) -> Iterator[None]:
        """The time in which this process leads. At its end the lease is given back, so that whatever begins anew
        does so in another term. Whose journal fails lets others try; without an election there are none."""
        try:
            yield
        except JournalError as problem:
            if self._election is None:
                raise
            log.warning("no journal: this process gives the lease back", error=problem.message, hint=problem.hint)
            self._failures, self._problem = self._failures + 1, problem.message
        finally:
            if self._election is not None:
                self._election.resign()

    def _rest(self) -> None:
        """Stand back for a while after a failure."""
        if self._problem:
            self.stop.wait(delay(self._failures - 1, FIRST_REST_SECONDS, MAX_REST_SECONDS))
            self._problem = ""

    @contextmanager
    def answering(self, answers: Answers) -> Iterator[None]:
        """Have the endpoints answer for an instance meanwhile."""
        self.answers, self._failures = answers, 0
        try:
            yield
        finally:
            self.stand_down()

    def stand_down(self) -> None:
        """Have the endpoints answer as a standby again."""
        self.answers = self._standby

    def _ready(self) -> tuple[bool, str]:
        if self._problem:
            return False, f"not ready: {self._problem}"
        if self.fence is not None and self.fence.holds():
            return False, "not ready: this process leads and has not begun yet"
        leader = self._election.holder() if self._election is not None else ""
        if not leader:
            return False, "standby: nobody is known to lead"
        return True, f"standby: {leader} leads"


class LeaderWatcher:
    """Calls ``on_lost`` once, from a thread of its own, when the leadership is over."""

    def __init__(self, fence: Fence, on_lost: Callable[[], None], period: float = PERIOD_SECONDS) -> None:
        self._fence = fence
        self._on_lost = on_lost
        self._period = period
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, notify: Callable[[AgentKey, str], None]) -> None:
        """Begin to watch. It is about no agent."""
        del notify
        self._thread = threading.Thread(target=self._run, name="leader-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            if not self._fence.holds():
                log.warning("no longer leading: what is under way ends, then this process stands by again")
                self._on_lost()
                return
