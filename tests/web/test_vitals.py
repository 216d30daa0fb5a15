"""Liveness: who falls silent is dead without anybody having to say so."""

from __future__ import annotations

import threading

import pytest

from gitops_agent.daemon.liveness import LastPass, Liveness
from gitops_agent.model.status import Phase
from gitops_agent.testing.clock import FrozenClock

pytestmark = pytest.mark.unit


def test_both_loops_must_give_signs() -> None:
    clock = FrozenClock()
    vitals = Liveness(clock, grace=60)
    assert vitals.live() == (True, "ok")
    clock.advance(59)
    vitals.passes.beat("waiting", 90)
    clock.advance(2)
    assert vitals.live() == (
        False,
        "polls: starting for 61 s, 1 s longer than that may take",
    )
    vitals.polls.beat("asking the source", 600)
    assert vitals.live()[0]
    clock.advance(149)
    assert "passes: waiting for 151 s" in vitals.live()[1]
    clock.advance(1000)
    assert len(vitals.live()[1].splitlines()) == 2
    vitals.passes.beat("running a pass")
    vitals.polls.beat("waiting for the next poll", 30)
    assert vitals.live()[0], "who comes back is alive"


def test_a_thread_that_ended_is_noticed_at_once() -> None:
    vitals = Liveness(FrozenClock(), grace=60)
    poller = threading.Thread(target=lambda: vitals.polls.beat("asking the source", 600))
    poller.start()
    poller.join()
    assert vitals.live() == (False, "polls: the thread that does it ended while asking the source")


def test_the_wall_clock_does_not_matter() -> None:
    clock = FrozenClock()
    vitals = Liveness(clock, grace=1)
    clock.jump(86_400)
    assert vitals.live()[0]
    clock.jump(-2 * 86_400)
    clock.advance(2)
    assert not vitals.live()[0]


def test_ready_after_a_pass_that_knew_what_is_desired() -> None:
    vitals = Liveness(FrozenClock(), grace=1)
    assert vitals.ready() == (False, "not ready: no pass has been completed yet")
    vitals.not_ready("no valid commit of the source is known yet")
    assert vitals.ready() == (False, "not ready: no valid commit of the source is known yet")
    vitals.completed(LastPass(Phase.BLOCKED, (), ("fleet", "agent"), source_answers=False))
    ready, text = vitals.ready()
    assert ready
    assert text.splitlines() == [
        "ready",
        "commit: Blocked",
        "agents: 0 of 0 Ready",
        "frozen: fleet, agent",
        "source: does not answer",
    ]
    vitals.not_ready("the last pass failed; the log says why")
    assert not vitals.ready()[0]
