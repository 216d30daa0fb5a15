"""Every value that is kept comes back from its JSON form as it was, also when fields came or left meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.codec import from_json, to_json
from gitops_agent.model.control import Control
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.health import Evidence
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent
from gitops_agent.model.state import ProposalState, RolloutState, SourceState, State
from gitops_agent.model.status import AgentStatus, CommitRecord
from tests.journal import values

pytestmark = pytest.mark.unit


def through_json(kind: Any, value: Any) -> Any:
    return from_json(kind, orjson.loads(orjson.dumps(to_json(kind, value))))


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        (AgentStatus, values.statuses),
        (Attempt, values.attempts),
        (Base, values.bases),
        (CommitRecord, values.commits),
        (Control, values.controls),
        (Intent, values.intents),
        (Observation, values.observations),
        (ProposalState, values.proposal_states),
        (RolloutState, values.rollout_states),
        (SourceState, values.source_states),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
@given(data=st.data())
def test_values_come_back(kind: Any, strategy: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(strategy)
    assert through_json(kind, value) == value


def test_every_field_of_the_state_has_a_json_form() -> None:
    """But the maps with tables of their own, which are written row by row."""
    for part in get_type_hints(State).values():
        hints = get_type_hints(part)
        for each in fields(part):
            if each.name not in ("agents", "bases"):
                assert through_json(hints[each.name], getattr(part(), each.name)) == getattr(part(), each.name)


@dataclass(frozen=True)
class Old:
    name: str
    gone: int = 0


@dataclass(frozen=True)
class New:
    name: str
    count: int = 3
    by_agent: Mapping[AgentKey, float] = field(default_factory=dict)


def test_a_field_may_come_and_go() -> None:
    assert from_json(New, to_json(Old, Old("x", 7))) == New("x")


def test_defaults_take_no_room() -> None:
    assert to_json(New, New("x")) == {"name": "x"}
    assert to_json(New, New("x", 4, {AgentKey("a", "b"): 1.5})) == {
        "name": "x",
        "count": 4,
        "by_agent": {"a/b": 1.5},
    }


def test_small_values_of_older_journals_are_lists() -> None:
    assert from_json(tuple[Evidence, ...], [["kernel", "alive", 1.0]]) == (Evidence("kernel", "alive", 1.0),)
    assert from_json(Finding, ["error", "Code", "here", "it is so"]) == Finding(
        Severity.ERROR, "Code", "here", "it is so"
    )
    assert from_json(AgentKey, ["acme", "bot"]) == AgentKey("acme", "bot")


def test_infinity_survives() -> None:
    assert through_json(Attempt, Attempt(1, float("inf"), "never")) == Attempt(1, float("inf"), "never")


def test_a_policy_keeps_only_what_was_set() -> None:
    policy = PolicySpec.model_validate({"rollout": {"canary": 2}})
    assert to_json(PolicySpec, policy) == {"rollout": {"canary": 2}}
    assert through_json(PolicySpec, policy) == policy


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (Finding, 7),
        (Finding, {"severity": "loud", "code": "", "address": "", "summary": ""}),
        (Finding, {"code": "only"}),
        (AgentKey, "no-tenant"),
        (ResourceKey, "acme/bot"),
        (tuple[float, ...], ["soon"]),
        (PolicySpec, {"rollout": 7}),
    ],
)
def test_what_is_none_is_a_value_error(kind: Any, found: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(kind, found)


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        to_json(set[int], {1})


def test_keys_share_their_words() -> None:
    one, two = ResourceKey.parse("acme/a:runtime/main"), ResourceKey.parse("acme/b:runtime/main")
    assert (one.agent.tenant is two.agent.tenant, one.kind is two.kind) == (True, True)
    with pytest.raises(ValueError, match="not a resource key"):
        ResourceKey.parse("acme/a")


def test_a_policy_that_this_version_would_refuse_is_read_with_defaults_in_its_place() -> None:
    kept = {"actionsOfOldTimes": 7, "breaker": {"pause": "90d", "failures": 3}, "tenants": {"acme": {"gone": 1}}}
    read = from_json(PolicySpec, kept)
    assert (read.breaker.pause, read.breaker.failures) == (PolicySpec().breaker.pause, 3)
    assert "acme" in read.tenants
