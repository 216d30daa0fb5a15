"""Liveness: whether the two loops of ``run`` are alive, and whether it is ready. Written by the loops, read by
any thread.

A loop reports what it does now and how long that may take. When the time is up without another report, or the
thread of the last one has ended, reading shows the problem. Values are replaced whole, so that readers need no
lock and a pass that hangs cannot hide it.
"""

import threading
from dataclasses import dataclass

from gitops_agent.model.passes import PassResult, frozen_kinds
from gitops_agent.model.quantity import iso
from gitops_agent.ports import Clock
from gitops_agent.report.words import ready_words


@dataclass(frozen=True, slots=True)
class _Progress:
    doing: str
    at: float
    due: float
    thread: threading.Thread


class LoopLiveness:
    """The progress of one loop: written by its own thread, read by any."""

    def __init__(self, name: str, clock: Clock, grace: float) -> None:
        self._name = name
        self._clock = clock
        self._grace = grace
        self.report_progress("starting")

    def report_progress(self, doing: str, within: float = 0.0) -> None:
        """Record what the loop does now; its next report is due within so many seconds, and the grace on top."""
        now, thread = self._clock.monotonic(), threading.current_thread()
        self._last = _Progress(doing, now, now + max(0.0, within) + self._grace, thread)

    def problem(self) -> str:
        """What is wrong, in a sentence; "" while reports come in time."""
        last, now = self._last, self._clock.monotonic()
        if not last.thread.is_alive():
            return f"{self._name}: the thread that does it ended while {last.doing}"
        if now <= last.due:
            return ""
        seconds, late = now - last.at, now - last.due
        return f"{self._name}: {last.doing} for {seconds:.0f} s, {late:.0f} s longer than that may take"


class Liveness:
    """Liveness and readiness of ``run``. The loop of passes and the fetcher call the methods as things happen,
    each on its own thread. ``max_fetch``: seconds that asking the source may take.

    ``pass_began_at``, ``pass_ended_at``, ``fetched_at`` are monotonic; ``failed_passes`` counts since the start.
    """

    def __init__(self, clock: Clock, grace: float, max_fetch: float = 0.0) -> None:
        self.passes = LoopLiveness("passes", clock, grace)
        self.polls = LoopLiveness("polls", clock, grace)
        self.pass_began_at = self.pass_ended_at = self.fetched_at = clock.monotonic()
        self.failed_passes = 0
        self._clock = clock
        self._max_fetch = max_fetch
        self._failing = False
        self._last: PassResult | None = None
        self._not_ready = "no pass has been completed yet"
        self._lost = ""

    def waiting(self, seconds: float) -> None:
        """The next pass begins in so many seconds at the latest."""
        if not self._failing:
            self.passes.report_progress("waiting for something to do", seconds)

    def pass_began(self) -> None:
        """A pass begins."""
        self.pass_began_at = self._clock.monotonic()
        if not self._failing:
            self.passes.report_progress("running a pass")

    def pass_ended(self, result: PassResult) -> None:
        """A pass was completed."""
        self.pass_ended_at = self._clock.monotonic()
        self._failing = False
        self.passes.report_progress("ending a pass")
        self._last = result
        self._not_ready = "" if result.record is not None else "no valid commit of the source is known yet"

    def pass_failed(self) -> None:
        """A pass ended in an unexpected error."""
        self.failed_passes += 1
        if not self._failing:
            # From here on only a completed pass counts as progress.
            self._failing = True
            self.passes.report_progress("failing one after the other")
        self._not_ready = "the last pass failed; the log says why"

    def state_lost(self) -> None:
        """The state directory was deleted or replaced: what a pass says from now on is worth nothing."""
        self._lost = "the state directory was deleted or replaced; starting again"

    def fetch_began(self) -> None:
        """The source is being asked."""
        self.polls.report_progress("asking the source", self._max_fetch)

    def fetch_ended(self, *, answered: bool, next_in: float) -> None:
        """The source answered or did not; it is asked again in so many seconds."""
        self.polls.report_progress("waiting for the next poll", next_in)
        if answered:
            self.fetched_at = self._clock.monotonic()

    def live(self) -> tuple[bool, str]:
        """Whether both loops are alive. A source that does not answer is no reason to restart us."""
        problems = [problem for loop in (self.passes, self.polls) if (problem := loop.problem())]
        return (False, "\n".join(problems)) if problems else (True, "ok")

    def ready(self) -> tuple[bool, str]:
        """Whether the last pass was completed with something desired; and the state of the fleet, in lines."""
        last, why = self._last, self._lost or self._not_ready
        if why or last is None or last.record is None:
            return False, f"not ready: {why}"
        agents, frozen = last.state.status.agents, frozen_kinds(last.record, self._clock.now())
        lines = (
            "ready",
            f"commit: {_commit(last)}",
            f"agents: {ready_words(agents.ready, len(agents), agents.on_their_way)}",
            f"frozen: {', '.join(frozen) or 'no'}",
            f"source: {'does not answer' if last.unavailable else 'answers'}",
        )
        return True, "\n".join(lines)


def _commit(last: PassResult) -> str:
    """How the fleet stands under the newest commit, in one line, without names of agents."""
    head = last.state.head
    if head is None:
        return "none"
    if head.now is None or head.now.phase is head.phase:
        return str(head.phase)
    return f"{head.now.phase} since {iso(head.now.since)} (the commit was {head.phase})"
