"""Every row of the three-way table, from a data file, through the comparison and through the whole stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitops_agent.model.agent import DeletionPolicy, Lifecycle
from gitops_agent.model.key import Kind
from gitops_agent.model.observation import Owner
from gitops_agent.model.plan import Class, Decision, Plan
from gitops_agent.model.status import Health, HealthState
from gitops_agent.plan.compare import Difference, compare
from gitops_agent.plan.reasons import ReasonCode
from gitops_agent.plan.three_way import ThreeWay
from tests.plan import make

pytestmark = pytest.mark.unit

ROWS: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(Path(__file__).parent / "tables" / "comparison.yaml")


KINDS = [kind for kind in Kind if kind is not Kind.HOOK]
"""Hooks are no state that could drift; they have a table of their own."""


def legs_of(row: dict[str, Any], kind: str = Kind.RUNTIME) -> ThreeWay:
    kind = row.get("kind", kind)
    key = make.key("acme/bot", kind)
    desired = None
    if row["desired"] is not None:
        options = {name: row[name] for name in ("stopped", "idempotent") if name in row}
        desired = make.resource(key, row["desired"], restart_on=tuple(row.get("restartOn", ())), **options)
    agent = make.agent(
        "acme/bot",
        (desired,) if desired else (),
        adopt=row.get("adopt", False),
        lifecycle=Lifecycle(row.get("lifecycle", "Running")),
        deletion_policy=DeletionPolicy(row.get("deletion", "Delete")),
        authority=tuple(
            (f"{row.get('authorityOf', kind)}.{path}", who) for path, who in row.get("authority", {}).items()
        ),
    )
    base = None
    if row["base"] is not None:
        deletion = DeletionPolicy(row.get("baseDeletion", "Delete"))
        base = make.base(key, row["base"], deletion_policy=deletion, retained=row.get("retained", False))
    live = None
    if row["live"] is not None or "liveReason" in row:
        live = make.live(key, row["live"], Owner(row.get("owner", "Ours")), reason=row.get("liveReason"))
    if live is not None and base is not None and "seenBefore" in row:
        live = replace(live, observed_at=base.applied_at - row["seenBefore"])
    return ThreeWay(key, agent if row.get("document", True) else None, desired, base, live, make.CATALOG)


def plan_of(three_way: ThreeWay, row: dict[str, Any]) -> Plan:
    health = Health(HealthState.STUCK, row["health"], "It is stuck.", restart=True) if "health" in row else None
    if "stuck" in row:
        health = Health(HealthState.STUCK, row["stuck"], "It is stuck.")
    if "ready" in row:
        health = Health(HealthState.STARTING, row["ready"], "The next may follow.")
    return make.plan(
        make.snapshot([three_way.agent] if three_way.agent else [make.agent("other/bot")]),
        [three_way.live] if three_way.live else [],
        [three_way.base] if three_way.base else [],
        {three_way.key.agent: health} if health else {},
    )


CASES = [
    (row, kind) for row in ROWS for kind in ([row["kind"]] if "kind" in row else KINDS) if kind != row.get("notOf")
]


@pytest.mark.parametrize(("row", "kind"), CASES, ids=[f"{row['row']} ({kind})" for row, kind in CASES])
def test_row(row: dict[str, Any], kind: str) -> None:
    three_way, expect = legs_of(row, kind), row["expect"]
    assert compare(three_way) == expect["difference"]

    plan = plan_of(three_way, row)
    if "verb" not in expect:
        assert plan.actions == ()
        return
    (action,) = plan.actions
    said = {
        "verb": action.verb,
        "class": action.drift_class,
        "reason": action.reason,
        "confidence": action.confidence,
        "decision": action.decision,
        "applies": action.desired.value if action.desired else None,
    }
    wanted = {name: value for name, value in expect.items() if name != "difference"}
    assert {name: said[name] for name in wanted} == wanted
    assert action.key == three_way.key
    assert action.message.endswith(".")


def test_every_difference_class_decision_and_reason_is_in_the_table() -> None:
    expected = [row["expect"] for row in ROWS]
    assert {each["difference"] for each in expected} == set(Difference)
    assert {each["class"] for each in expected if "class" in each} == set(Class)
    assert {each["decision"] for each in expected if "decision" in each} == set(Decision)
    missing = set(ReasonCode) - {each.get("reason") for each in expected}
    # Hooks, sources that disagree and agents that never became Ready are tested where those words are made.
    assert {reason for reason in missing if not reason.startswith("Hook")} <= {
        "SourcesDisagree",
        "ProvisioningTimedOut",
    }


def test_retained_and_unsafe_resources_are_reported() -> None:
    for row in ROWS:
        three_way = legs_of(row)
        plan = plan_of(three_way, row)
        done_or_lag = row["expect"].get("decision", "repair") in ("repair", "wait")
        silent = done_or_lag and row["expect"]["difference"] != "Retained"
        assert [finding.address for finding in plan.findings] == ([] if silent else [str(three_way.key)]), row[
            "row"
        ]
