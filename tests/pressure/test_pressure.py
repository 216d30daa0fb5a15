"""The campaign in small, and that it would see what it looks for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.pressure.campaign import Campaign
from tests.pressure.reports import NoteReport, StatusReport, false_notes, false_statuses
from tests.pressure.simulated_clock import Offset, jumping_datetime
from tests.pressure.truth import Span, Truth


def truth_of(tmp_path: Path, *spans: Span) -> Truth:
    made = Truth(tmp_path, {span.agent for span in spans})
    for span in spans:
        made.spans[span.agent].append(span)
    return made


def status_of(name: str, pid: int, *, ready: bool = True) -> dict[str, Any]:
    live = {"replicas": [{"index": 0, "pid": pid}]}
    row = {"agent": f"t/{name}", "ready": ready, "lifecycle": "Running", "resources": [{"live": live}]}
    return {"agents": [row]}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("pid", "ready", "made", "is_false"),
    [
        (7, True, 55.0, False),  # it lives
        (5, True, 21.0, False),  # gone for a second: that may not be noticed yet
        (5, True, 40.0, True),
        (5, False, 40.0, False),  # not called Ready
        (6, True, 55.0, True),  # no process of it ever had this pid
    ],
)
def test_a_status_is_false_when_the_process_was_long_gone(
    tmp_path: Path, *, pid: int, ready: bool, made: float, is_false: bool
) -> None:
    truth = truth_of(tmp_path, Span("a", 5, "v1", 0.0, 20.0), Span("a", 7, "v1", 50.0))
    report = StatusReport(made, made + 0.2, status_of("a", pid, ready=ready))
    assert bool(list(false_statuses(report, truth))) is is_false


@pytest.mark.unit
@pytest.mark.parametrize(
    ("at", "note", "is_false"),
    [
        (15.0, {"phase": "Converged"}, True),  # b came at 20
        (25.0, {"phase": "Converged"}, False),
        (25.0, {"phase": "Converged", "now": {"phase": "Degraded"}}, False),
        (15.0, {"phase": "Degraded", "now": {"phase": "Converged"}}, True),
        (15.0, {"phase": "Reconciling"}, False),
    ],
)
def test_a_note_is_false_when_its_fleet_was_never_there(
    tmp_path: Path, *, at: float, note: dict[str, Any], is_false: bool
) -> None:
    truth = truth_of(tmp_path, Span("a", 5, "v2", 10.0), Span("b", 6, "v2", 20.0), Span("b", 4, "v1", 0.0, 19.0))
    report = NoteReport(9.0, at, "f" * 40, note, {"a": "v2", "b": "v2"})
    assert bool(list(false_notes(report, truth))) is is_false


@pytest.mark.unit
def test_two_at_once_are_seen_and_one_after_the_other_is_not(tmp_path: Path) -> None:
    in_turn = truth_of(tmp_path, Span("a", 5, "v1", 0.0, 10.0), Span("a", 6, "v1", 10.0))
    at_once = truth_of(tmp_path, Span("a", 5, "v1", 0.0, 11.0), Span("a", 6, "v1", 10.0))
    assert (len(in_turn.twice()), len(at_once.twice())) == (0, 1)


@pytest.mark.unit
def test_the_recorder_follows_the_process_table(tmp_path: Path) -> None:
    living = {11}
    truth = Truth(tmp_path, ["a"])
    (tmp_path / "starts.a").write_text("11 v1\n")
    truth.look(living.__contains__)
    assert [span.pid for span in truth.alive("a")] == [11]
    living.clear()
    truth.look(living.__contains__)
    assert not truth.alive("a")
    assert truth.spans["a"][0].version == "v1"


@pytest.mark.unit
def test_the_simulated_clock_is_off_by_what_the_file_says(tmp_path: Path) -> None:
    offset = Offset(tmp_path / "offset")
    jumping = jumping_datetime(offset)
    assert offset() == 0.0
    (tmp_path / "offset").write_text("86400")
    assert 86_399.0 < (jumping.now(UTC) - datetime.now(UTC)).total_seconds() < 86_401.0
    assert isinstance(jumping.now(UTC), jumping), "the scheduler would take it for a day"


def test_a_little_pressure(tmp_path: Path) -> None:
    found = Campaign(tmp_path / "fleet", 7, commits=10, seconds=8.0).play()
    assert found.problems == []
    assert found.harm["gitops-agent ended"]
    assert found.harm["agents ended"]
    assert found.reports["statuses"]
