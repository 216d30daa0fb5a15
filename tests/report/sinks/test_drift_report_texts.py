"""Drift reports in files and notes: whole, small, and without a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Evidence
from gitops_agent.model.plan import Action
from gitops_agent.report.sinks.drift_report import drift_note, write_drift_report
from gitops_agent.support.secrets import Redactor
from tests.report.test_drift import check, drifted, report
from tests.report.values import NOW

pytestmark = pytest.mark.unit


def secretive() -> Action:
    step = {"op": "replace", "path": "/settings/password", "value": "hunter2hunter2"}
    live = Fields.of({"settings": {"password": "opensesame"}})
    return drifted(patch=(step,), live=live, base=None, evidence=(Evidence("file", "token=opensesame", NOW),))


def test_no_secret_in_any_form(tmp_path: Path) -> None:
    found = Redactor(["hunter2hunter2"]).tree(report(secretive()))
    for name in ("report.json", "report.txt"):
        write_drift_report(found, tmp_path / name)
    texts = [path.read_text() for path in tmp_path.iterdir()] + [drift_note(found)]
    assert len(texts) == 3
    for text in texts:
        assert "hunter2" not in text
        assert "opensesame" not in text
        assert "***" in text


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "drift.json"
    write_drift_report(report(drifted()), path)
    shape = json.loads(path.read_text())
    check(shape)
    assert shape["drifted"] == 1
    write_drift_report(report(), path)
    assert json.loads(path.read_text())["drifted"] == 0
    assert [each.name for each in path.parent.iterdir()] == ["drift.json"], "nothing is left behind"


def test_a_note_stays_small_and_counts_what_it_leaves_out() -> None:
    many = [drifted(AgentKey("acme", f"bot-{number}")) for number in range(2000)]
    note = drift_note(report(*many))
    assert len(note.encode()) < 64_000
    assert note.startswith("prod-eu: 2000 of 12 agents drifted at a1a1a1a1a1\n\napiVersion:")
    assert "andMore: " in note
