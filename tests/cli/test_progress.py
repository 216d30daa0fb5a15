"""Progress goes to stderr: a bar on a terminal, one line for each phase of a fetch otherwise."""

from __future__ import annotations

import io
import sys

import pytest

from gitops_agent.cli.common import Call, Output
from gitops_agent.cli.progress import fetch_bar
from gitops_agent.model.state import State
from gitops_agent.report.progress_view import ProgressView

pytestmark = pytest.mark.unit

CALL = Call({"output": Output.TEXT}, {})
STEPS = [("receiving objects", 1, 4), ("receiving objects", 4, 4), ("resolving deltas", 0, None)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_phase_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with fetch_bar(CALL) as report:
        for step in STEPS:
            report(*step)
    captured = capsys.readouterr()
    assert captured.err == "fetching: receiving objects\nfetching: resolving deltas\n"
    assert captured.out == ""


def test_on_a_terminal_a_bar_is_drawn_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with fetch_bar(Call({"output": Output.TEXT}, {"NO_COLOR": "1"})) as report:
        for step in STEPS:
            report(*step)
    assert "receiving objects" in stream.getvalue()
    assert "100%" in stream.getvalue()


def test_the_live_view_shows_a_fetch_until_the_next_picture() -> None:
    stream = Terminal()
    with ProgressView("prod-eu", stream, colour=False) as view:
        view.fetching("receiving objects", 3, 12)
        view.update(State(), "looking")
    assert "receiving objects" not in stream.getvalue().splitlines()[-1]
    with ProgressView("prod-eu", bar := Terminal(), colour=False) as view:
        view.fetching("receiving objects", 3, 12)
    assert "receiving objects" in bar.getvalue()
    assert "3 of 12" in bar.getvalue()
