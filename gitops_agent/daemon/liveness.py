"""Liveness: whether our own loops are alive and whether we are ready, told by the loops and read by anybody.

A loop says what it does now and how long that may take. Nobody has to notice that it stopped: when the time is up
and no further sign came, or the thread that gave the last one has ended, reading says so. Values are replaced
whole, so that readers need no lock, and a pass that hangs cannot keep anybody from seeing that it does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from gitops_agent.model.status import AgentStatus, Phase
from gitops_agent.ports import Clock


@dataclass(frozen=True, slots=True)
class _Sign:
    doing: str
    at: float
    due: float
    thread: threading.Thread


class Pulse:
    """The signs of life of one loop: written by its own thread, read by any."""

    def __init__(self, name: str, clock: Clock, grace: float) -> None:
        self._name = name
        self._clock = clock
        self._grace = grace
        self._sign = self._now("starting", 0.0)

    def beat(self, doing: str, within: float = 0.0) -> None:
        """I do this now; the next sign comes within so many seconds, and the grace on top."""
        self._sign = self._now(doing, within)

    def trouble(self) -> str:
        """What is wrong, in a sentence; nothing while signs come in time."""
        sign, now = self._sign, self._clock.monotonic()
        if not sign.thread.is_alive():
            return f"{self._name}: the thread that does it ended while {sign.doing}"
        if now <= sign.due:
            return ""
        seconds, late = now - sign.at, now - sign.due
        return f"{self._name}: {sign.doing} for {seconds:.0f} s, {late:.0f} s longer than that may take"

    def _now(self, doing: str, within: float) -> _Sign:
        now = self._clock.monotonic()
        return _Sign(doing, now, now + max(0.0, within) + self._grace, threading.current_thread())


@dataclass(frozen=True, slots=True)
class LastPass:
    """How the last pass left things."""

    phase: Phase | None
    statuses: tuple[AgentStatus, ...]
    frozen: tuple[str, ...] = ()
    source_answers: bool = True


class Liveness:
    """Liveness and readiness of ``run``. ``passes`` and ``polls`` are beaten by the two loops."""

    def __init__(self, clock: Clock, grace: float) -> None:
        self.passes = Pulse("passes", clock, grace)
        self.polls = Pulse("polls", clock, grace)
        self._last: LastPass | None = None
        self._why = "no pass has been completed yet"

    def completed(self, last: LastPass) -> None:
        """A pass was completed with something to enforce."""
        self._last, self._why = last, ""

    def not_ready(self, why: str) -> None:
        """A pass failed, or there is nothing to enforce."""
        self._why = why

    def live(self) -> tuple[bool, str]:
        """Whether both loops are alive. A source that does not answer is no reason to call us dead."""
        troubles = [trouble for pulse in (self.passes, self.polls) if (trouble := pulse.trouble())]
        return (False, "\n".join(troubles)) if troubles else (True, "ok")

    def ready(self) -> tuple[bool, str]:
        """Whether the last pass knew what is desired and could write down what it did; and how things stand."""
        last, why = self._last, self._why
        if last is None or why:
            return False, f"not ready: {why}"
        return True, "\n".join(("ready", *_lines(last)))


def _lines(last: LastPass) -> list[str]:
    ready = sum(status.ready for status in last.statuses)
    return [
        f"commit: {last.phase or 'none'}",
        f"agents: {ready} of {len(last.statuses)} Ready",
        f"frozen: {', '.join(last.frozen) or 'no'}",
        f"source: {'answers' if last.source_answers else 'does not answer'}",
    ]
