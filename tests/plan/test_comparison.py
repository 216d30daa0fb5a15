"""Every row of the three-way table, from a data file, through the comparison and through the whole stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitops_agent.model.agent import DeletionPolicy, Lifecycle
from gitops_agent.model.observation import Owner
from gitops_agent.plan.compare import Difference, compare
from gitops_agent.plan.legs import Legs
from tests.plan import make

pytestmark = pytest.mark.unit

ROWS: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(Path(__file__).parent / "tables" / "comparison.yaml")


def legs_of(row: dict[str, Any]) -> Legs:
    key = make.key("acme/bot", row.get("kind", "runtime"))
    desired = None
    if row["desired"] is not None:
        options = {name: row[name] for name in ("dormant", "idempotent") if name in row}
        desired = make.resource(key, row["desired"], restart_on=tuple(row.get("restartOn", ())), **options)
    agent = make.agent(
        "acme/bot",
        (desired,) if desired else (),
        adopt=row.get("adopt", False),
        lifecycle=Lifecycle(row.get("lifecycle", "Running")),
        deletion=DeletionPolicy(row.get("deletion", "Delete")),
        authority=tuple(row.get("authority", {}).items()),
    )
    base = None
    if row["base"] is not None:
        deletion = DeletionPolicy(row.get("baseDeletion", "Delete"))
        base = make.base(key, row["base"], deletion=deletion, retained=row.get("retained", False))
    live = None
    if row["live"] is not None or "liveReason" in row:
        live = make.live(key, row["live"], Owner(row.get("owner", "Ours")), reason=row.get("liveReason"))
    return Legs(key, agent if row.get("document", True) else None, desired, base, live)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row"])
def test_row(row: dict[str, Any]) -> None:
    legs, expect = legs_of(row), row["expect"]
    assert compare(legs) == expect["difference"]

    plan = make.plan(
        make.snapshot([legs.agent] if legs.agent else [make.agent("other/bot")]),
        [legs.live] if legs.live else [],
        [legs.base] if legs.base else [],
    )
    if "verb" not in expect:
        assert plan.actions == ()
        return
    (action,) = plan.actions
    said = {
        "verb": action.verb,
        "class": action.cls,
        "reason": action.reason,
        "confidence": action.confidence,
        "decision": action.decision,
        "applies": action.desired.value if action.desired else None,
    }
    wanted = {name: value for name, value in expect.items() if name != "difference"}
    assert {name: said[name] for name in wanted} == wanted
    assert action.key == legs.key
    assert action.message.endswith(".")


def test_every_difference_is_in_the_table() -> None:
    assert {row["expect"]["difference"] for row in ROWS} == set(Difference)


def test_retained_and_unsafe_resources_are_reported() -> None:
    for row in ROWS:
        legs = legs_of(row)
        plan = make.plan(
            make.snapshot([legs.agent] if legs.agent else [make.agent("other/bot")]),
            [legs.live] if legs.live else [],
            [legs.base] if legs.base else [],
        )
        silent = row["expect"].get("decision", "repair") == "repair" and row["expect"]["difference"] != "Retained"
        assert [finding.address for finding in plan.findings] == ([] if silent else [str(legs.key)]), row["row"]
