"""An election on one record that is changed by compare and swap: all that a driver brings is a place to keep it.

The rules, which need no clocks that agree:

- Only what this process saw counts. A record that has not changed for as long as it is good for, by our own clock
  since we saw it, is free; the times that others wrote into it are for people.
- The leader counts from before it asked, and stops believing in itself a third earlier than others may take over:
  clocks may run apart by half, and what it had begun has time to end.
- Every taking is a new term, also when the same process takes the record again: what was begun in an earlier term
  stays fenced for ever. Where there is no record to count on from, the term is the time of day, so that terms do
  not go back when somebody removes the record.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event
from typing import NamedTuple, Protocol

import structlog

from gitops_agent.errors import GitopsAgentError

LEASE_SECONDS = 12.0
"""How long others wait for the next sign of a leader before one of them takes over."""

GIVE_UP, RENEW, ASK = 2 / 3, 1 / 6, 1 / 6
"""As parts of that: when a leader without an answer stops, how often it renews, how long one request may take."""

REMOVED = 1000
"""By how much the term grows when the record was removed: who led meanwhile, and how often, cannot be known."""

MISSING = 2 * RENEW
"""For how long one that never saw a record waits for one, as part of that: a leader whose record was removed
writes it again with its next renewal. Only the first start of an instance ever pays for it."""

EPOCH = 1_577_836_800
"""2020 began: terms that are times count the seconds from here, which fit into 31 bits until 2088."""

_NEVER = float("-inf")

log = structlog.get_logger(__name__)


def boot_seconds() -> float:
    """Seconds since the machine started, those in which it was suspended too, where the kernel counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Lease:
    """The record. ``holder``: the identity of the leader, "" when it resigned. ``seconds``: how long it is good
    for without a change."""

    holder: str
    term: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Kept:
    """The record as it was read or written. ``version`` differs after every write, by whomever."""

    lease: Lease
    version: str


class LeaseStore(Protocol):
    """Where the record is kept. Each call takes at most ``seconds * ASK``; GitopsAgentError when there is no
    answer: a write may have happened then."""

    def read(self) -> Kept | None:
        """The record; None when there is none."""

    def write(self, lease: Lease, over: Kept | None) -> Kept | None:
        """Put the record in the place of the one read before (None: where there was none); None, and nothing is
        written, when it has changed since."""


class _Seen(NamedTuple):
    kept: Kept
    at: float


class _Held(NamedTuple):
    """Of which term this process is the leader, and until when that is certain."""

    term: int
    until: float


class LeaseElection:
    """The ``Election`` on such a record, of one candidate. ``leading``, ``term`` and ``holder`` are for any
    thread, the rest for one."""

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = boot_seconds,
        today: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._identity = identity
        self._seconds = seconds
        self._clock = clock
        self._today = today
        self._held = _Held(0, _NEVER)
        self._seen: _Seen | None = None
        self._removed = False  # what was seen last is no longer there
        self._missing_at = _NEVER  # since when it is known that there is none, where none was ever seen
        self._answered_at = _NEVER
        self._problem = ""
        self._end = Event()
        self._thread: threading.Thread | None = None

    @property
    def term(self) -> int:
        """That of this process while it leads; of its last leadership, or 0, otherwise."""
        return self._held.term

    def leading(self) -> bool:
        """Whether no other process can have taken over yet."""
        return self._clock() < self._held.until

    def holder(self) -> str:
        """The identity of the leader; "" when there is none, or the record was not read for too long."""
        if self.leading():
            return self._identity
        known = self._clock() - self._answered_at < self._seconds
        return self._seen.kept.lease.holder if known and self._seen is not None else ""

    def problem(self) -> str:
        """Why the record could not be read or written when that was last tried; "" when it could."""
        return self._problem

    def wait(self, stop: Event, *, patient: bool = True) -> bool:
        """Take the record as soon as it is free, and keep it. ``patient`` off: not if another is seen to renew."""
        self._stop_renewing()
        while not stop.is_set():
            before = self._seen
            if self.try_to_lead():
                self._end.clear()
                self._thread = threading.Thread(target=self._keep, name="election", daemon=True)
                self._thread.start()
                return True
            if not patient and self._is_alive(before):
                return False
            stop.wait(self._rest())
        return False

    def resign(self) -> None:
        """Write a record without a holder, if this process leads. Nothing acts from here on."""
        self._stop_renewing()
        mine, self._held = self._held, _Held(self._held.term, _NEVER)
        if self._clock() >= mine.until or self._seen is None:
            return
        kept = self._seen.kept
        try:
            self._store.write(replace(kept.lease, holder=""), kept)
        except GitopsAgentError as problem:
            log.warning("the lease could not be given back; it ends by itself", error=problem.message)

    # -- while another leads

    def try_to_lead(self) -> bool:
        """Look at the record once, and take it if it is free; whether this process leads now."""
        try:
            found = self._observe(self._store.read())
            if not self._is_free(found):
                return False
            return self._write(Lease(self._identity, self._next_term(found), self._seconds), found)
        except GitopsAgentError as problem:
            self._complain(problem)
            return False

    def _next_term(self, found: Kept | None) -> int:
        """A term that nobody had: the next one, or where the record is gone, one by the time of day."""
        if found is not None:
            return found.lease.term + 1
        last = self._seen.kept.lease.term + REMOVED if self._seen is not None else 1
        return max(last, int(self._today()) - EPOCH)

    def _observe(self, found: Kept | None) -> Kept | None:
        # The time after the answer: the record may have changed until then.
        last, self._answered_at, self._problem = self._answered_at, self._clock(), ""
        if found is None:
            # Between two looks that are far apart it may have been there again.
            missed = self._answered_at - last > self._seconds * (1 - GIVE_UP)
            if self._seen is None and missed:
                self._missing_at = self._answered_at
            if self._seen is not None and (missed or not self._removed):
                self._seen, self._removed = _Seen(self._seen.kept, self._answered_at), True
            return None
        if self._removed or self._seen is None or self._seen.kept != found:
            self._removed = False
            known, now = self._seen.kept.lease.holder if self._seen is not None else "", found.lease.holder
            self._seen = _Seen(found, self._answered_at)
            if now not in ("", known, self._identity):
                log.info("another process leads", leader=now, term=found.lease.term)
        return found

    def _is_free(self, found: Kept | None) -> bool:
        """Whether no process can believe that it leads. One that was removed is good for as long as a new one: its
        leader, whoever that was, may not know yet."""
        if self._seen is None:
            return self._clock() >= self._missing_at + self._seconds * MISSING
        lease, at = self._seen.kept.lease, self._seen.at
        given_up = found is not None and lease.holder in ("", self._identity)
        return given_up or self._clock() >= at + max(lease.seconds, self._seconds)

    def _is_alive(self, before: _Seen | None) -> bool:
        """Whether somebody else renewed since an earlier look."""
        return before is not None and self._seen is not None and before.kept.version != self._seen.kept.version

    def _rest(self) -> float:
        """Seconds until the next look: at the latest when the record becomes free."""
        rest = self._seconds * RENEW
        if self._problem:
            return rest
        free_at = self._missing_at + self._seconds * MISSING
        if self._seen is not None:
            free_at = self._seen.at + max(self._seen.kept.lease.seconds, self._seconds)
        free_in = free_at - self._clock()
        return min(rest, free_in) if free_in > 0 else rest

    # -- while this process leads

    def _write(self, lease: Lease, over: Kept | None) -> bool:
        asked = self._clock()
        kept = self._store.write(lease, over)
        if kept is None:
            return False
        self._seen, self._answered_at, self._problem = _Seen(kept, asked), self._clock(), ""
        self._removed = False
        if lease.term == self._held.term and not self.leading():
            # Who asked meanwhile was told that this term is over: it does not come back.
            self._lose("the answer came too late", "")
            return False
        self._held = _Held(lease.term, asked + self._seconds * GIVE_UP)
        return True

    def _keep(self) -> None:
        """Renew until the lease is lost or given back."""
        pause = self._seconds * RENEW
        while not self._end.wait(pause):
            pause = self._seconds * (RENEW if self.renew() else RENEW / 2)
            if not self.leading():
                return

    def renew(self) -> bool:
        """Write the record anew, once, while this process leads; whether that succeeded."""
        if not self.leading():
            self._lose(f"not renewed for {self._seconds * GIVE_UP:.0f} s", self._problem)
            return False
        try:
            return self._renewed()
        except GitopsAgentError as problem:
            self._complain(problem)
            return False

    def _renewed(self) -> bool:
        assert self._seen is not None, "who leads has written"
        mine = self._seen.kept
        if self._write(mine.lease, mine):
            return True
        found = self._store.read()
        if found is not None and found.lease != mine.lease:
            self._seen = _Seen(found, self._clock())
            self._lose("another process holds it", found.lease.holder)
            return False
        # Somebody changed what is beside it, or removed it.
        return self._write(mine.lease, found)

    def _lose(self, why: str, more: str) -> None:
        self._held = _Held(self._held.term, _NEVER)
        about = {"more": more} if more else {}
        log.warning("the lease of the leader is lost: nothing more is begun", why=why, term=self.term, **about)

    def _stop_renewing(self) -> None:
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None

    def _complain(self, problem: GitopsAgentError) -> None:
        if problem.message != self._problem:
            log.warning("the lease of the leader cannot be asked for", error=problem.message, hint=problem.hint)
            self._problem = problem.message
