"""The one table of confidence, row by row, and how signals are read from an observation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitops_agent.model.observation import Evidence, Owner
from gitops_agent.model.plan import Verb
from gitops_agent.plan.confidence import FRESH_SECONDS, Signals, judge, read_signals
from tests.plan import make

pytestmark = pytest.mark.unit

ROWS: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(Path(__file__).parent / "tables" / "confidence.yaml")
ORDINARY = {
    "owner_clear": True, "sources": 1, "kernel": False, "fresh": True, "destructive": False, "repeated": False,
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_row(row: dict[str, Any]) -> None:
    signals = {name: value for name, value in row.items() if name not in ("case", "expect")}
    assert judge(Signals(**{**ORDINARY, **signals})) == row["expect"]


def read(owner: Owner = Owner.OURS, *, adopted: bool = False, age: float = 0.0, sources: Any = ()) -> Signals:
    evidence = tuple(Evidence(source, "gone", make.NOW) for source in sources)
    seen = make.live(make.key("t/a"), {"a": 1}, owner, observed_at=make.NOW - age, evidence=evidence)
    return read_signals(seen, Verb.UPDATE, adopted=adopted, repeated=False, now=make.NOW)


def test_owners() -> None:
    assert read().owner_clear
    assert not read(Owner.NONE).owner_clear
    assert read(Owner.NONE, adopted=True).owner_clear
    assert not read(Owner.OTHER, adopted=True).owner_clear
    absent = make.live(make.key("t/a"), None, Owner.NONE)
    assert read_signals(absent, Verb.CREATE, adopted=False, repeated=False, now=make.NOW).owner_clear


def test_freshness_at_its_edge_and_when_the_clock_jumped_back() -> None:
    assert read(age=FRESH_SECONDS).fresh
    assert not read(age=FRESH_SECONDS + 1).fresh
    assert read(age=-10_000).fresh


def test_sources_are_counted_once_and_the_kernel_is_known() -> None:
    assert (read().sources, read().kernel) == (1, False)
    assert read(sources=["file", "file", "api"]).sources == 2
    assert read(sources=["kernel"]).kernel
