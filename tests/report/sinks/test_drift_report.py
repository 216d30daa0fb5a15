"""Scheduled drift reports: one each time it is due, made from a pass over everything, off the pass."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from gitops_agent.errors import SourceUnavailable
from gitops_agent.model.passes import PassResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.report.drift import DriftReport
from gitops_agent.report.sinks.drift_report import DriftReportSink
from tests.report.passes import a_pass, a_state, key
from tests.report.values import NOW

pytestmark = pytest.mark.unit


def reporting(plan: Plan, snapshot: Snapshot, unreachable: Mapping[str, str]) -> DriftReport:
    return DriftReport("prod-eu", plan.commit, NOW, len(snapshot.agents), (), (), tuple(unreachable.items()))


def test_a_report_for_the_first_pass_over_everything_then_one_for_each_run() -> None:
    written: list[DriftReport] = []
    asked: list[str] = []
    sink = DriftReportSink(reporting, [written.append], lambda: asked.append("pass"))
    sink.on_pass(PassResult(a_state()))
    sink.on_pass(a_pass(scope=frozenset({key("a")})))
    sink.close()
    assert written == []
    for _ in range(3):
        sink.on_pass(a_pass(unreachable={"process": "no answer"}))
        sink.close()
    assert [report.unreachable for report in written] == [(("process", "no answer"),)]
    sink.run()
    assert asked == ["pass"]
    sink.on_pass(a_pass())
    sink.close()
    assert len(written) == 2


@pytest.mark.parametrize("error", [SourceUnavailable("no answer"), OSError("disk"), RuntimeError("boom")])
def test_a_writer_that_fails_holds_neither_the_others_nor_the_next_report(error: Exception) -> None:
    written: list[DriftReport] = []

    def failing(report: DriftReport) -> None:
        del report
        raise error

    sink = DriftReportSink(reporting, [failing, written.append], lambda: None)
    for _ in range(2):
        sink.run()
        sink.on_pass(a_pass())
        sink.close()
    assert len(written) == 2


def test_a_pass_does_not_wait_for_a_slow_writer() -> None:
    gate = threading.Event()
    written: list[DriftReport] = []

    def slow(report: DriftReport) -> None:
        assert gate.wait(20)
        written.append(report)

    sink = DriftReportSink(reporting, [slow], lambda: None)
    sink.on_pass(a_pass())
    sink.run()
    sink.on_pass(a_pass())  # returns although the first report hangs; the second stays due
    gate.set()
    sink.close(20)
    sink.on_pass(a_pass())
    sink.close(20)
    assert len(written) == 2
