"""The JSON of the command line keeps its promise: it fits the published schemas, and every key is documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Evidence
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Effect, Verb, Verdict
from gitops_agent.model.status import Phase
from gitops_agent.report.json_shapes import findings_shape, history_shape, plan_shape, validate_shape
from gitops_agent.report.json_text import dump_json

from .values import (
    BOT,
    NOW,
    OTHER,
    SHA,
    SHAPES,
    Explanation,
    FleetStatus,
    a_finding,
    a_plan,
    a_record,
    a_status,
    an_action,
    an_entry,
    explanation_shape,
    runtime_key,
    schema,
    status_shape,
)

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[2] / "docs" / "json.md"
OPEN = {"live", "before", "after", "patch", "replicas"}  # what drivers and patches put there is theirs


def closed(node: Any, name: str = "") -> Any:
    """The schema with no room for undocumented keys."""
    if isinstance(node, list):
        return [closed(item, name) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {
        key: {k: closed(v, k) for k, v in value.items()} if key == "properties" else closed(value, name)
        for key, value in node.items()
    }
    if "properties" in node and name not in OPEN:
        strict["additionalProperties"] = False
    return strict


def check(name: str, value: Any) -> None:
    plain = json.loads(dump_json(value))
    jsonschema.validate(plain, schema(name))
    jsonschema.validate(plain, closed(schema(name)))


@pytest.mark.parametrize("name", SHAPES)
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("name", SHAPES)
def test_every_key_is_documented(name: str) -> None:
    def keys(node: Any) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(keys, node))
        if not isinstance(node, dict):
            return set()
        return set(node.get("properties", ())).union(*map(keys, node.values()))

    text = DOCS.read_text("utf-8")
    assert {key for key in keys(schema(name)) if f"`{key}`" not in text} == set()


@pytest.mark.parametrize("name", SHAPES)
def test_every_word_that_a_key_may_hold_is_documented(name: str) -> None:
    def words(node: Any, key: str = "") -> set[tuple[str, str]]:
        if isinstance(node, list):
            return set().union(*(words(each, key) for each in node))
        if not isinstance(node, dict):
            return set()
        own = {(key, word) for word in node.get("enum", ()) if word is not None}
        named = node.get("properties", {})
        inner = (words(value, key) for part, value in node.items() if part != "properties")
        return own.union(*inner, *(words(value, each) for each, value in named.items()))

    rows = [line for line in DOCS.read_text("utf-8").splitlines() if line.startswith("| `")]
    listed = {(key, word) for key, word in words(schema(name))}
    missing = {
        (k, w) for k, w in listed if not any(row.startswith(f"| `{k}` |") and f'"{w}"' in row for row in rows)
    }
    assert missing == set()


def test_a_schema_refuses_what_is_not_of_the_shape() -> None:
    shape = status_shape(FleetStatus("prod-eu", SHA, SHA, Phase.CONVERGED, [a_status()]))
    shape["agents"][0].pop("ready")
    with pytest.raises(jsonschema.ValidationError, match="ready"):
        check("status", shape)


def test_validate() -> None:
    assert validate_shape([]) == {"valid": True, "comparedWith": None, "findings": []}
    shape = validate_shape([a_finding()])
    check("validate", shape)
    assert shape["valid"] is False
    assert set(shape["findings"][0]) == {"severity", "code", "address", "summary", "detail"}


def test_only_errors_make_a_repository_invalid() -> None:
    assert validate_shape([a_finding(severity="warning")])["valid"] is True


def test_plan() -> None:
    verdict = Verdict("massDelete", Effect.BLOCK, frozenset({runtime_key()}), (a_finding(),))
    plan = a_plan(an_action(), held=frozenset({runtime_key()}), verdicts=(verdict,), findings=(a_finding(),))
    shape = plan_shape(plan)
    check("plan", shape)
    assert shape["summary"]["update"] == 1
    assert shape["summary"]["create"] == 0
    assert shape["blocked"] is True
    action = shape["actions"][0]
    assert (action["agent"], action["resource"]) == ("acme/support-bot", "acme/support-bot:runtime/main")
    assert (action["class"], action["held"]) == ("Change", True)
    assert action["patch"] == [{"op": "replace", "path": "/replicas", "value": 2, "before": 1}]


@pytest.mark.parametrize("verb", list(Verb))
def test_every_verb_is_counted(verb: Verb) -> None:
    shape = plan_shape(a_plan(an_action(verb=verb)))
    check("plan", shape)
    assert shape["summary"][str(verb)] == 1


def test_status() -> None:
    sick = a_status(AgentKey("acme", "a-bot"), ready=False)
    fleet = FleetStatus("prod-eu", SHA, OTHER, Phase.DEGRADED, [a_status(), sick], [a_finding()], 12.5)
    shape = status_shape(fleet)
    check("status", shape)
    assert [agent["agent"] for agent in shape["agents"]] == ["acme/a-bot", "acme/support-bot"]
    assert (shape["commit"], shape["enforced"], shape["phase"]) == (SHA, OTHER, "Degraded")
    assert shape["agents"][1]["resources"][0]["live"]["replicas"][0]["pid"] == 4242
    assert shape["agents"][0]["nextTryAt"] == "2023-11-14T22:13:50Z"
    assert shape["agents"][0]["conditions"][0]["lastTransitionTime"] == "2023-11-14T22:11:50Z"


def test_status_before_the_first_commit() -> None:
    shape = status_shape(FleetStatus("prod-eu", None, None, None, []))
    check("status", shape)
    assert shape["phase"] is None


@pytest.mark.parametrize("phase", list(Phase))
def test_history(phase: Phase) -> None:
    shape = history_shape([a_record(phase=phase, rolls_back_to=OTHER), a_record(OTHER, started_at=None)])
    check("history", shape)
    assert shape["commits"][0]["rollsBackTo"] == OTHER
    assert shape["commits"][1]["startedAt"] is None
    assert shape["commits"][0]["finishedAt"] == "2023-11-14T22:13:15Z"


def test_explain() -> None:
    known = Explanation(
        BOT,
        NOW,
        a_status(),
        a_record(),
        a_record(OTHER, Phase.INVALID),
        [an_entry(evidence=(Evidence("kernel", "pid 7 no longer runs", NOW),))],
        {runtime_key(): Attempt(2, NOW + 5, "no such file")},
        [a_finding()],
        3.0,
    )
    check("explain", explanation_shape(known))
    (action,) = explanation_shape(known)["actions"]
    assert action["evidence"] == [
        {"source": "kernel", "said": "pid 7 no longer runs", "at": "2023-11-14T22:13:20Z"}
    ]
    check("explain", explanation_shape(Explanation(BOT, NOW, None)))


@pytest.mark.parametrize("at", [-1e18, 1e18, float("inf")])
def test_impossible_moments_do_not_stop_a_report(at: float) -> None:
    check("history", history_shape([a_record(committed_at=at, started_at=at, finished_at=at)]))


def test_json_is_inert_and_loses_nothing() -> None:
    evil = "\x1b]0;owned\x07 \x9b31m \u202e \ud800 \u2028 café"
    text = dump_json(findings_shape([a_finding(summary=evil)]))
    assert all(line.isprintable() for line in text.split("\n"))
    assert "café" in text
    assert json.loads(text)[0]["summary"] == evil
