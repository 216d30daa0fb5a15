"""Drift reports: what is in them, since when, in which order, and that no secret is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Evidence, Observation, Owner
from gitops_agent.model.passes import Observed
from gitops_agent.model.plan import Action, Class, Decision, Effect, Verb, Verdict
from gitops_agent.model.quantity import iso
from gitops_agent.model.state import State
from gitops_agent.model.status import AgentStatus, ConditionType
from gitops_agent.report.drift import Extent, drift_shape, only
from gitops_agent.report.json_text import dump_json
from gitops_agent.report.words import Shape

from .texts import drift_text
from .values import (
    BOT,
    NOW,
    a_condition,
    a_finding,
    a_known_state,
    a_plan,
    a_status,
    an_action,
    runtime_key,
    schema,
)

pytestmark = pytest.mark.unit

CAT = AgentKey("other", "cat")
GIT = Fields.of({"replicas": 1, "spec": "s"})


def drifted(agent: AgentKey = BOT, **changes: Any) -> Action:
    values: dict[str, Any] = {
        "key": runtime_key(agent),
        "drift_class": Class.CONFLICTING,
        "reason": "FieldsDiffer",
        "message": "The live object was changed by something else.",
        "base": GIT,
        "desired": GIT,
        "live": Fields.of({"replicas": 3}),
        "patch": ({"op": "replace", "path": "/replicas", "value": 1},),
        "evidence": (Evidence("kernel", "3 processes", NOW - 1),),
    }
    return an_action(**(values | changes))


def seen(
    at: float, content: dict[str, Any] | None, reason: str | None = None, key: ResourceKey | None = None
) -> Observation:
    fields = None if content is None else Fields.of(content)
    return Observation(key or runtime_key(), "process", Owner.OURS, fields, "Running", at, reason)


class Past:
    """A journal of which only observations and statuses are asked."""

    def __init__(self, *newest_first: Observation, statuses: Sequence[AgentStatus] = ()) -> None:
        self._seen, self._statuses = newest_first, statuses

    def state(self) -> State:
        return a_known_state(None, None, self._statuses)

    def observations(self, agent: AgentKey, *, limit: int) -> Sequence[Observation]:
        return self._seen[:limit]


def report(
    *actions: Action,
    known: Past | None = None,
    unreachable: dict[str, str] | None = None,
    unseen: dict[ResourceKey, str] | None = None,
    in_sight: int = 12,
    **plan: Any,
) -> Shape:
    journal: Any = known or Past()
    observed = Observed({}, unreachable or {}, unseen or {})
    return drift_shape(a_plan(*actions, **plan), journal, "prod-eu", Extent(12, in_sight), observed, NOW)


def check(shape: Any) -> None:
    jsonschema.validate(json.loads(dump_json(shape)), schema("drift"))


def test_everything_about_one_drift() -> None:
    held = Verdict("freeze", Effect.TRIM, frozenset({runtime_key()}), (a_finding(),))
    shape = report(drifted(decision=Decision.WAIT), verdicts=(held,), held=frozenset({runtime_key()}))
    check(shape)
    assert (shape["agents"], shape["drifted"], shape["summary"]["Conflicting"]) == (12, 1, 1)
    (drift,) = shape["drifts"]
    assert (drift["class"], drift["reason"], drift["confidence"]) == ("Conflicting", "FieldsDiffer", "high")
    assert (drift["verb"], drift["decision"], drift["heldBy"]) == ("update", "wait", ["freeze"])
    assert drift["evidence"] == [{"source": "kernel", "said": "3 processes", "at": "2023-11-14T22:13:19Z"}]
    assert drift["differences"] == [{"path": "/replicas", "live": 3, "git": 1}]


def test_what_a_commit_asks_for_is_no_drift() -> None:
    quiet = report(an_action(drift_class=Class.CHANGE))
    assert quiet["drifts"] == []
    assert drift_text(quiet).startswith("prod-eu: no drift at a1a1a1a1a1 (12 agents, 2023-11-14T22:13:20Z)")


def lost(**changes: Any) -> Action:
    """What was applied and is gone, while a commit changes it."""
    new = Fields.of({"replicas": 2, "spec": "t"})
    values = {
        "verb": Verb.CREATE,
        "drift_class": Class.CHANGE,
        "reason": "SpecChanged",
        "desired": new,
        "live": None,
    }
    return drifted(**(values | changes))


def test_what_is_gone_is_drift_though_a_change_of_it_waits() -> None:
    known = Past(seen(NOW - 5, None), seen(NOW - 9, {"replicas": 1, "spec": "s"}))
    (drift,) = report(lost(), known=known)["drifts"]
    assert (drift["class"], drift["reason"]) == ("MissingExternal", "ObjectMissing")
    assert drift["since"] == iso(NOW - 5), "since it is gone, not since the change waits"


@pytest.mark.parametrize("base", [None, Fields.of({"stopped": True})])
def test_what_was_not_meant_to_be_there_before_a_change_is_not_gone(base: Fields | None) -> None:
    assert report(lost(base=base))["drifts"] == []


def test_an_import_shows_both_sides_and_is_no_drift() -> None:
    step = {"op": "replace", "path": "/replicas", "value": 3, "before": 1}
    imported = drifted(
        drift_class=Class.LAG, reason="LiveDecides", decision=Decision.IMPORT, verb=Verb.ADOPT, patch=(step,)
    )
    found = report(
        imported, known=Past(seen(NOW - 60, {"replicas": 3}, "ExtraReplica"), seen(NOW - 90, {"replicas": 1}))
    )
    assert found["drifted"] == 0
    (shown,) = found["drifts"]
    assert shown["differences"] == [{"path": "/replicas", "live": 3, "git": 1}]
    assert shown["since"] == iso(NOW - 60)
    assert "proposed to Git on a branch" in drift_text(found)


def test_the_worst_class_comes_first() -> None:
    found = report(
        drifted(AgentKey("a", "lag"), drift_class=Class.LAG),
        drifted(AgentKey("a", "gone"), drift_class=Class.MISSING_EXTERNAL),
        drifted(AgentKey("z", "ours"), drift_class=Class.UNSAFE_AMBIGUITY),
    )
    assert [each["agent"] for each in found["drifts"]] == ["z/ours", "a/gone", "a/lag"]
    assert found["drifted"] == 2
    lines = drift_text(found).splitlines()
    assert [line.split() for line in lines[2:5]] == [
        ["1", "UnsafeAmbiguity"],
        ["1", "MissingExternal"],
        ["1", "Lag"],
    ]


@pytest.mark.parametrize(
    ("history", "since"),
    [
        (
            [seen(NOW - 5, {"replicas": 3}), seen(NOW - 60, {"replicas": 2}), seen(NOW - 99, {"replicas": 1})],
            NOW - 60,
        ),
        ([seen(NOW - 5, None, "ProcessGone"), seen(NOW - 99, {"replicas": 1})], NOW - 5),
        ([seen(NOW - 5, {"replicas": 1}, "Suspended"), seen(NOW - 9, {"replicas": 1})], NOW - 5),
        # It was well again in between: the earlier drift is another one.
        (
            [seen(NOW - 5, {"replicas": 3}), seen(NOW - 60, {"replicas": 1}), seen(NOW - 99, {"replicas": 3})],
            NOW - 5,
        ),
        # The journal has not seen it yet: it began now.
        ([seen(NOW - 99, {"replicas": 1})], NOW),
        ([], NOW),
        # What is said of another resource of the agent does not count.
        ([seen(NOW - 5, None, key=ResourceKey(BOT, "config", "bundle")), seen(NOW - 99, {"replicas": 1})], NOW),
        # A clock that jumped: never in the future.
        ([seen(NOW + 500, {"replicas": 3})], NOW),
    ],
)
def test_since_when(history: list[Observation], since: float) -> None:
    assert report(drifted(), known=Past(*history))["drifts"][0]["since"] == iso(since)


def test_since_when_only_health_knows() -> None:
    status = a_status(conditions=(a_condition(), a_condition(ConditionType.DRIFTED, last_transition_at=NOW - 77)))
    stuck = drifted(drift_class=Class.STUCK_PROGRESS, live=GIT, patch=())
    assert report(stuck, known=Past(seen(NOW - 9, {"replicas": 1}), statuses=[status]))["drifts"][0][
        "since"
    ] == iso(NOW - 77)


def test_one_agent_or_one_tenant() -> None:
    about = a_finding(address=f"{BOT}:runtime/main")
    whole = a_plan(drifted(), drifted(CAT), findings=(about, a_finding(address=f"{CAT}:runtime/main")))
    assert [each.key.agent for each in only(whole, agent=BOT).actions] == [BOT]
    assert only(whole, agent=BOT).findings == (about,)
    assert [each.key.agent for each in only(whole, tenant="other").actions] == [CAT]
    assert only(whole) == whole


def test_details_for_people() -> None:
    text = drift_text(report(drifted(), known=Past(seen(NOW - 180, {"replicas": 3}))), details=True)
    assert "3 min ago" in text
    assert "kernel reported at 2023-11-14T22:13:19Z: 3 processes" in text
    assert "/replicas: live 3, Git 1" in text


def test_unreachable_drivers_are_reported() -> None:
    unreachable = report(unreachable={"process": "cannot read the process table"})
    check(unreachable)
    assert "driver process: cannot read the process table" in drift_text(unreachable)
    assert "some could not be looked at" in drift_text(unreachable)


def test_agents_that_could_not_be_looked_at_are_reported() -> None:
    unseen = report(unseen={runtime_key(): "no right to list pods there"})
    check(unseen)
    assert f"{BOT}: no right to list pods there" in drift_text(unseen)
    assert "some could not be looked at" in drift_text(unseen)


def test_a_fleet_of_which_nothing_could_be_looked_at_is_not_called_free_of_drift() -> None:
    text = drift_text(report(unreachable={"kubernetes": "connection refused"}, in_sight=0))
    assert "0 of 12 agents could be looked at" in text
    assert "no drift" not in text
