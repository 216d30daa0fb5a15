"""Text from repositories is inert wherever it is printed."""

from __future__ import annotations

import unicodedata
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Effect, Verdict
from gitops_agent.model.status import Phase, ResourceStatus
from gitops_agent.report.render import PLAIN, Cell, Column, Style, cell_width, table, wants_colour
from gitops_agent.support.secrets import Redactor
from gitops_agent.support.text import escape_control

from .texts import agent_text, explain_text, findings_text, history_text, plan_text, status_text
from .values import (
    BOT,
    NOW,
    SHA,
    Explanation,
    FleetStatus,
    a_condition,
    a_finding,
    a_plan,
    a_record,
    a_status,
    an_action,
    an_entry,
    render_note,
    runtime_key,
)

pytestmark = pytest.mark.unit

ANY = st.text(st.characters(), max_size=40)
EVIL = "\x1b[2J\x1b]8;;http://evil.example\x07click\r\u202egpj.exe\x00\x9b1m\nprod-eu: Converged"


def harmless(text: str) -> bool:
    return all(char == "\n" or char.isprintable() or unicodedata.category(char) == "Zs" for char in text)


def renderings(evil: str) -> dict[str, str]:
    """Every text for people, with the same string wherever the world may write one."""
    odd = AgentKey(evil or "x", evil or "x")
    key = runtime_key(odd)._replace(id=evil, kind=evil)
    condition = a_condition(status=False, reason=evil, message=evil)
    resource = ResourceStatus(key, evil, evil, evil, {"replicas": [{"pid": evil}]})
    status = a_status(odd, ready=False, conditions=(condition,), resources=(resource,), origin=evil)
    record = a_record(phase=Phase.DEGRADED, subject=evil, author=evil, summary=evil, findings=(a_finding(),))
    finding = a_finding(code=evil, address=evil, summary=evil, detail=evil)
    patch = ({"op": "replace", "path": "/" + evil, "value": {evil: evil}},)
    action = an_action(key=key, reason=evil, message=evil, patch=patch)
    verdict = Verdict(evil, Effect.BLOCK, frozenset({key}), (finding,))
    entry = an_entry(odd, key=key, message=evil, reason=evil, outcome=evil)
    fleet = FleetStatus("prod-eu", SHA, None, Phase.DEGRADED, [status], [finding], at=NOW)
    return {
        "findings": findings_text([finding]),
        "plan": plan_text(a_plan(action, verdicts=(verdict,), findings=(finding,))),
        "status": status_text(fleet),
        "narrow status": status_text(fleet, Style(width=40)),
        "agent": agent_text(fleet),
        "history": history_text([record]),
        "explain": explain_text(Explanation(odd, NOW, status, record, record, [entry], {}, [finding])),
        "note": render_note("prod-eu", record, {odd: status}, [entry]),
    }


@given(ANY)
def test_no_rendering_passes_a_control_character_on(evil: str) -> None:
    for name, text in renderings(evil).items():
        assert harmless(text), name


@pytest.mark.parametrize("name", sorted(renderings(EVIL)))
def test_known_tricks_are_visible_and_dead(name: str) -> None:
    text = renderings(EVIL)[name]
    assert harmless(text)
    assert "\\x1b[2J" in text or "\\\\x1b[2J" in text


def test_a_line_break_cannot_forge_a_row() -> None:
    lines = history_text([a_record(subject="innocent\nbbbbbbbbbb  Converged")]).split("\n")
    assert len(lines) == 2


@given(ANY)
def test_inert_is_idempotent_and_one_line(text: str) -> None:
    once = escape_control(text)
    assert escape_control(once) == once
    assert "\n" not in once


def test_printable_text_is_left_alone() -> None:
    text = "Grüße, 世界 🚀 a\u00a0b"
    assert escape_control(text) == text


def test_columns_line_up_also_for_wide_characters() -> None:
    lines = table([Column("A", itemgetter(0)), Column("B", itemgetter(1))], [["世界", "x"], ["ab", "y"]]).split(
        "\n"
    )
    assert [cell_width(line[: line.index(mark)]) for line, mark in zip(lines, "Bxy", strict=True)] == [6, 6, 6]


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_only_where_it_is_wanted(terminal: bool, environment: dict[str, str], expected: bool) -> None:
    assert wants_colour(terminal, environment) is expected


def test_a_terminal_width_folds_prose_and_a_pipe_gets_it_whole() -> None:
    columns = [Column("AGENT", itemgetter(0)), Column("MESSAGE", itemgetter(1), folds=True)]
    rows = [["acme/support-bot", "a very long message " * 10]]
    lines = table(columns, rows, Style(width=60)).split("\n")
    assert max(map(len, lines)) <= 60
    assert (
        " ".join(line.removeprefix("acme/support-bot").strip() for line in lines[1:]).split() == rows[0][1].split()
    )
    assert table(columns, rows, PLAIN).split("\n")[1].endswith("message")


def test_a_table_too_long_for_rich_is_cut_and_stays_fast() -> None:
    columns = [
        Column("AGENT", itemgetter(0)),
        Column("NOTE", itemgetter(1), drop=1),
        Column("MESSAGE", itemgetter(2), folds=True),
    ]
    rows = [[f"acme/bot-{number}", "x" * 30, "a very long message " * 10] for number in range(2_000)]
    lines = table(columns, rows, Style(width=60)).split("\n")
    assert max(map(len, lines)) <= 60
    assert lines[0].split() == ["AGENT", "MESSAGE"]
    assert lines[-1].endswith("…")


def test_unknown_agent_is_explained() -> None:
    assert "nothing of it is left" in explain_text(Explanation(BOT, NOW, None))


def test_cells_are_masked_also_where_one_call_cannot_mask_them_all() -> None:
    mask = Redactor(["swordfish-swordfish"])
    for other in ("plain", "two\nlines"):
        rows = [["swordfish-swordfish", Cell("a swordfish-swordfish b", ("bold",))], [other, "token="]]
        text = table([Column("A", itemgetter(0)), Column("B", itemgetter(1))], rows, mask=mask)
        assert "swordfish" not in text
        assert escape_control(other) in text
