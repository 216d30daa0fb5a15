"""The note on a commit: one line for people, YAML for machines, never too large."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gitops_agent.model.finding import Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.report.sinks.git_notes import headline, parse_note
from gitops_agent.report.yaml_text import to_yaml
from gitops_agent.support.text import escape_control

from .values import BOT, OTHER, SHA, a_condition, a_finding, a_record, a_status, an_entry, render_note

pytestmark = pytest.mark.unit

LIMIT = 64 * 1024
LEAVES = st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=30)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
TREES = st.dictionaries(
    KEYS,
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)),
    min_size=1,
    max_size=4,
)
TRICKY = [
    "yes", "No", "null", "~", "1e5", "0x1F", "12:30:45", "2026-01-01", "- x", "a: b", "a #b", "#a", "'", '"', "\\",
    "!tag", "&a", "*a", "|", ">", "%x", "@x", "`x", "{", "[", "a,", "a, b", "...", "---", " lead", "trail ", "",
    ".5", "=", "<<", "on", "e1", "a.", "a:", "acme/bot:runtime/main", "exited with code 1", "\ufeff", "\x85",
    "\u2028", "é",
]  # fmt: skip


def loaded(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def visible(value: Any) -> Any:
    """What the emitter makes of a value: the same, with control characters made visible."""
    if isinstance(value, str):
        return escape_control(value, lines=True)
    if isinstance(value, dict):
        return {visible(key): visible(item) for key, item in value.items()}
    return [visible(item) for item in value] if isinstance(value, list) else value


@given(TREES)
def test_whatever_is_emitted_reads_back_as_it_was(tree: dict[str, Any]) -> None:
    # Two keys that look the same once made visible are one key.
    assume(len(visible(tree)) == len(tree))
    assert loaded(to_yaml(tree)) == visible(tree)


@pytest.mark.parametrize("text", TRICKY)
@pytest.mark.parametrize("version", [(1, 1), (1, 2)])
def test_strings_stay_strings_in_every_yaml(text: str, version: tuple[int, int]) -> None:
    parser = YAML(typ="safe", pure=True)
    parser.version = version
    emitted = to_yaml({"key": text, "list": [text, {"k": text}]})
    assert parser.load(emitted) == visible({"key": text, "list": [text, {"k": text}]})


def test_the_first_line_is_for_people() -> None:
    text = render_note("prod-eu", a_record(), {BOT: a_status()}, [an_entry()])
    first, empty, third = text.split("\n")[:3]
    assert first == "prod-eu: Converged, 12 agents, 3 changed, 4.2 s"
    assert empty == ""
    assert third == "apiVersion: gitops-agent.dev/v1"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (a_record(phase=Phase.PENDING, summary=""), "prod-eu: Pending"),
        (
            a_record(phase=Phase.SUPERSEDED, summary="superseded by b2b2b2b2b2"),
            "prod-eu: Superseded by b2b2b2b2b2",
        ),
        (
            a_record(phase=Phase.INVALID, summary="a.yaml:1:1: unknown field"),
            "prod-eu: Invalid, a.yaml:1:1: unknown field",
        ),
        (
            a_record(
                phase=Phase.BLOCKED, agents=0, changed=0, finished_at=None, summary="4 of 10 agents would go"
            ),
            "prod-eu: Blocked, 4 of 10 agents would go",
        ),
        (
            a_record(phase=Phase.BLOCKED, changed=1, finished_at=None, summary="frozen with work waiting"),
            "prod-eu: Blocked, 12 agents, 1 changed, frozen with work waiting",
        ),
        (a_record(agents=0, changed=0), "prod-eu: Converged, 0 agents, 0 changed, 4.2 s"),
        (
            a_record(agents=1, rolls_back_to=OTHER),
            "prod-eu: Converged, 1 agent, 3 changed, 4.2 s, back to the state of b2b2b2b2b2",
        ),
        (
            a_record(rolled_back_by=OTHER),
            "prod-eu: Converged, 12 agents, 3 changed, 4.2 s, undone by b2b2b2b2b2",
        ),
    ],
)
def test_headlines(record: Any, expected: str) -> None:
    assert headline("prod-eu", record) == expected


def test_the_rest_is_for_machines() -> None:
    record = a_record(agents=1, rolls_back_to=OTHER, findings=(a_finding(severity=Severity.WARNING),))
    note = parse_note(render_note("prod-eu", record, {BOT: a_status()}, [an_entry()]))
    assert note is not None
    assert (note["kind"], note["phase"], note["commit"]) == ("ConvergenceStatus", "Converged", SHA)
    assert (note["planDigest"], note["RollsBackTo"]) == ("d4" * 16, OTHER)
    assert "RolledBackBy" not in note
    (agent,) = note["agents"]
    assert (agent["agent"], agent["ready"]) == ("acme/support-bot", True)
    assert agent["conditions"][0]["reason"] == "Healthy"
    (action,) = note["actions"]
    assert (action["resource"], action["reason"]) == ("acme/support-bot:runtime/main", "ProcessGone")
    assert note["findings"][0]["code"] == "UnknownField"
    assert "andMore" not in note


@pytest.mark.parametrize(("here", "untouched"), [(0, 2), (1, 1), (2, None)])
def test_the_numbers_add_up_to_those_of_the_first_line(here: int, untouched: int | None) -> None:
    """A commit that only takes something away lists nobody, and says of whom it knows nothing new."""
    keys = [BOT, AgentKey("acme", "other")]
    statuses = {key: a_status(key, commit=SHA if number < here else OTHER) for number, key in enumerate(keys)}
    text = render_note("prod-eu", a_record(agents=2, changed=1), statuses, [])
    note = parse_note(text)
    assert note is not None
    assert text.startswith("prod-eu: Converged, 2 agents,")
    assert (len(note["agents"]), note.get("andMore", {}).get("untouched")) == (here, untouched)
    again = parse_note(render_note("prod-eu", a_record(agents=2, changed=1), {}, [], previous=note))
    assert again == note


def test_who_is_held_back_is_listed_and_counted_once() -> None:
    halted = (a_condition(ConditionType.HALTED), a_condition())
    behind = {
        key: a_status(key, commit=OTHER, conditions=halted) for name in "abc" if (key := AgentKey("x", name))
    }
    record = a_record(phase=Phase.DEGRADED, agents=6)
    note = parse_note(render_note("prod-eu", record, {BOT: a_status(ready=False), **behind}, []))
    assert note is not None
    assert (len(note["agents"]), note["andMore"]) == (4, {"untouched": 2})


def test_every_phase_is_a_note() -> None:
    for phase in Phase:
        note = parse_note(render_note("prod-eu", a_record(phase=phase), {}, []))
        assert note is not None
        assert note["phase"] == phase


def test_ten_thousand_agents_fit_and_the_sick_come_first() -> None:
    statuses = {key: a_status(key) for index in range(10_000) if (key := AgentKey("acme", f"bot-{index:05}"))}
    sick, changed = AgentKey("acme", "bot-09999"), AgentKey("acme", "bot-05000")
    statuses[sick] = a_status(sick, ready=False)
    record = a_record(findings=tuple(a_finding(address=f"a.yaml:{index}:1") for index in range(10_000)))
    text = render_note("prod-eu", record, statuses, [an_entry(changed)] * 10_000)
    assert len(text.encode()) < LIMIT
    note = parse_note(text)
    assert note is not None
    assert [agent["agent"] for agent in note["agents"][:2]] == [str(sick), str(changed)]
    assert note["andMore"]["agents"] == 10_000 - len(note["agents"])
    assert note["andMore"]["actions"] == 10_000 - len(note["actions"])
    assert note["andMore"]["findings"] == 10_000 - len(note["findings"])


@given(st.text(st.characters(), min_size=1, max_size=5))
def test_hostile_text_cannot_make_it_larger(piece: str) -> None:
    long = piece * 3000
    conditions = tuple(a_condition(status=False, message=long, reason=long) for _ in range(6))
    statuses = {
        key: a_status(key, ready=False, conditions=conditions)
        for index in range(100)
        if (key := AgentKey("acme", f"bot-{index}"))
    }
    findings = tuple(a_finding(summary=long, detail=long, address=long, code=long) for _ in range(50))
    record = a_record(phase=Phase.DEGRADED, summary=long, findings=findings)
    text = render_note("prod-eu", record, statuses, [an_entry(result="Failed", outcome=long)] * 100)
    assert len(text.encode()) < LIMIT
    assert parse_note(text) is not None


def test_a_status_of_another_commit_says_nothing_about_this_one() -> None:
    note = parse_note(render_note("prod-eu", a_record(), {BOT: a_status(commit=OTHER)}, []))
    assert note is not None
    assert note["agents"] == []


def test_a_rollback_does_not_rewrite_what_was_seen() -> None:
    sick = {BOT: a_status(ready=False)}
    before = parse_note(render_note("prod-eu", a_record(phase=Phase.DEGRADED), sick, []))
    undone = a_record(phase=Phase.DEGRADED, rolled_back_by=OTHER)
    after = parse_note(render_note("prod-eu", undone, {BOT: a_status(commit=OTHER)}, [], previous=before))
    assert before is not None
    assert after is not None
    assert after["agents"] == before["agents"]
    assert after["RolledBackBy"] == OTHER


def test_while_it_reconciles_the_agents_are_those_of_now() -> None:
    before = parse_note(
        render_note("prod-eu", a_record(phase=Phase.RECONCILING), {BOT: a_status(ready=False)}, [])
    )
    after = parse_note(render_note("prod-eu", a_record(), {BOT: a_status()}, [], previous=before))
    assert after is not None
    assert after["agents"][0]["ready"] is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "a\n\nb: [",
        "x\n\napiVersion: gitops-agent.dev/v1\nkind: ConvergenceStatus\n- [",
        "x" * 300_000,
    ],
)
def test_what_is_not_a_note_is_not_read(text: str) -> None:
    assert parse_note(text) is None


@given(st.text(max_size=60))
def test_parsing_never_crashes(text: str) -> None:
    start = "x\n\napiVersion: gitops-agent.dev/v1\nkind: ConvergenceStatus\n"
    assert parse_note(start + text) is None or isinstance(parse_note(start + text), dict)
