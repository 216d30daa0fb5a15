"""Scheduled drift reports: one each time it is due, made from a pass over everything, off the pass."""

from __future__ import annotations

import threading

import pytest

from gitops_agent.errors import SourceUnavailable
from gitops_agent.model.passes import Observed, PassResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.report.outbox import Outbox
from gitops_agent.report.sinks.drift_report import DriftReportSink
from gitops_agent.report.words import Shape
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.secrets import Redactor
from gitops_agent.testing.clock import FrozenClock
from tests.report.passes import a_pass, a_state, key
from tests.report.test_outbox import FakeOwedJournal

pytestmark = pytest.mark.unit


def reporting(plan: Plan, snapshot: Snapshot, observed: Observed) -> Shape:
    return {"commit": plan.commit, "agents": len(snapshot.agents), "unreachable": observed.unreachable}


def test_a_report_for_the_first_pass_over_everything_then_one_for_each_run() -> None:
    written: list[Shape] = []
    asked: list[str] = []
    sink = DriftReportSink(reporting, [written.append], lambda: asked.append("pass"))
    sink.on_pass(PassResult(a_state()))
    sink.on_pass(a_pass(scope=frozenset({key("a")})))
    assert not sink.has_work()
    for _ in range(3):
        sink.on_pass(a_pass(unreachable={"process": "no answer"}))
        sink.deliver(())
    assert not sink.has_work()
    assert [report["unreachable"] for report in written] == [{"process": "no answer"}]
    sink.run()
    assert asked == ["pass"]
    sink.on_pass(a_pass())
    sink.deliver(())
    assert len(written) == 2


@pytest.mark.parametrize("error", [SourceUnavailable("no answer"), OSError("disk"), RuntimeError("boom")])
def test_a_writer_that_fails_holds_no_other_and_is_tried_again(error: Exception) -> None:
    written: list[Shape] = []
    errors = [error]

    def failing(report: Shape) -> None:
        if errors:
            raise errors.pop()
        written.append(report)

    sink, clock = DriftReportSink(reporting, [failing, written.append], lambda: None), FrozenClock()
    outbox = Outbox([sink], FakeOwedJournal(), clock, Redactor(), lambda: False)
    outbox.publish(a_pass())
    outbox.step()
    assert len(written) == 1
    clock.advance(10)
    outbox.step()
    assert len(written) == 3
    clock.advance(1000)
    outbox.step()
    assert len(written) == 3


def test_a_pass_does_not_wait_for_a_slow_writer() -> None:
    gate, writing, written = threading.Event(), threading.Event(), list[Shape]()

    def slow(report: Shape) -> None:
        writing.set()
        assert gate.wait(20)
        written.append(report)

    sink = DriftReportSink(reporting, [slow], lambda: None)
    outbox = Outbox([sink], FakeOwedJournal(), SystemClock(), Redactor())
    outbox.start(a_state())
    outbox.publish(a_pass())
    assert writing.wait(20)
    sink.run()
    outbox.publish(a_pass(unreachable={"process": "no answer"}))  # returns although the first report hangs
    gate.set()
    assert outbox.close(20)
    assert [bool(report["unreachable"]) for report in written] == [False, True]
