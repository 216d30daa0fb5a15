"""Liveness: a loop that falls silent counts as dead, and nothing has to notice it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from gitops_agent.daemon.liveness import Liveness
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.passes import Directives, PassResult
from gitops_agent.model.status import Phase
from gitops_agent.testing.clock import FrozenClock
from tests.report.passes import a_pass, a_state
from tests.report.values import BOT, a_record, a_status

pytestmark = pytest.mark.unit


def test_both_loops_must_give_signs() -> None:
    clock = FrozenClock()
    liveness = Liveness(clock, grace=60)
    assert liveness.live() == (True, "ok")
    clock.advance(59)
    liveness.passes.report_progress("waiting", 90)
    clock.advance(2)
    assert liveness.live() == (
        False,
        "polls: starting for 61 s, 1 s longer than that may take",
    )
    liveness.polls.report_progress("asking the source", 600)
    assert liveness.live()[0]
    clock.advance(149)
    assert "passes: waiting for 151 s" in liveness.live()[1]
    clock.advance(1000)
    assert len(liveness.live()[1].splitlines()) == 2
    liveness.passes.report_progress("running a pass")
    liveness.polls.report_progress("waiting for the next poll", 30)
    assert liveness.live()[0], "a loop that comes back is alive"


def test_a_thread_that_ended_is_noticed_at_once() -> None:
    liveness = Liveness(FrozenClock(), grace=60)
    poller = threading.Thread(target=lambda: liveness.polls.report_progress("asking the source", 600))
    poller.start()
    poller.join()
    assert liveness.live() == (False, "polls: the thread that does it ended while asking the source")


def test_the_wall_clock_does_not_matter() -> None:
    clock = FrozenClock()
    liveness = Liveness(clock, grace=1)
    clock.jump(86_400)
    assert liveness.live()[0]
    clock.jump(-2 * 86_400)
    clock.advance(2)
    assert not liveness.live()[0]


def test_ready_after_a_pass_that_knew_what_is_desired() -> None:
    liveness = Liveness(FrozenClock(), grace=1)
    assert liveness.ready() == (False, "not ready: no pass has been completed yet")
    liveness.pass_ended(PassResult(a_state()))
    assert liveness.ready() == (False, "not ready: no valid commit of the source is known yet")
    freezes = tuple(Control(ControlVerb.FREEZE, target, "ada", 0.0) for target in (str(BOT), "*"))
    state = a_state(a_record(phase=Phase.BLOCKED), statuses=(a_status(ready=False),))
    blocked = a_pass(state=state, directives=Directives(freezes=freezes))
    liveness.pass_ended(replace(blocked, unavailable=True))
    ready, text = liveness.ready()
    assert ready
    assert text.splitlines() == [
        "ready",
        "commit: Blocked",
        "agents: 0 of 1 ready",
        "frozen: fleet, agent",
        "source: does not answer",
    ]
    liveness.pass_failed()
    assert liveness.ready() == (False, "not ready: the last pass failed; the log says why")
    liveness.pass_ended(a_pass())
    assert liveness.ready() == (
        True,
        "ready\ncommit: Converged\nagents: 1 of 1 ready\nfrozen: no\nsource: answers",
    )


def test_passes_that_fail_one_after_the_other_are_no_progress() -> None:
    clock = FrozenClock()
    liveness = Liveness(clock, grace=60, max_fetch=100)
    liveness.pass_ended(a_pass())
    for _ in range(7):
        liveness.waiting(5)
        liveness.pass_began()
        liveness.fetch_began()
        clock.advance(10)
        liveness.pass_failed()
    assert liveness.failed_passes == 7
    assert liveness.live()[0] is True
    clock.advance(10)
    assert liveness.live() == (
        False,
        "passes: failing one after the other for 70 s, 10 s longer than that may take",
    )
    liveness.pass_ended(a_pass())
    assert liveness.live()[0]
    assert liveness.ready()[0]


def test_a_source_that_does_not_answer_is_no_reason_to_restart_us() -> None:
    clock = FrozenClock()
    liveness = Liveness(clock, grace=60)
    began = liveness.fetched_at
    clock.advance(50)
    liveness.fetch_ended(answered=False, next_in=600)
    liveness.waiting(600)
    clock.advance(600)
    assert liveness.live() == (True, "ok")
    assert liveness.fetched_at == began
    liveness.fetch_ended(answered=True, next_in=30)
    assert liveness.fetched_at == clock.monotonic()


def test_a_lost_state_directory_is_not_ready_whatever_passes_say() -> None:
    liveness = Liveness(FrozenClock(), grace=60)
    liveness.pass_ended(a_pass())
    liveness.state_lost()
    liveness.pass_ended(a_pass())
    assert liveness.ready() == (
        False,
        "not ready: the state directory was deleted or replaced; starting again",
    )
    assert liveness.live() == (True, "ok"), "no reason to be restarted from outside"
