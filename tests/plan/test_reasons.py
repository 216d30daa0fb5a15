"""Reason codes are stable and documented."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gitops_agent.drivers.plugins import load_plugins
from gitops_agent.model.catalog import Catalog, Reason
from gitops_agent.model.plan import Class
from gitops_agent.plan.reasons import Hold, ReasonCode, class_of, meaning_of

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "reasons.md"


def test_every_code_has_a_meaning() -> None:
    assert all(code.meaning.text.endswith(".") for code in ReasonCode)
    assert all(hold.text.endswith(".") for hold in Hold)


def test_the_page_is_in_step_with_the_code() -> None:
    page = runpy.run_path(str(PAGE.with_name("reasons_table.py")))["page"]()
    assert PAGE.read_text(encoding="utf-8") == page, "write it again: python docs/reasons_table.py"


def test_unknown_reasons_of_a_driver_are_classed_by_presence() -> None:
    assert class_of(None, present=False) is Class.MISSING_EXTERNAL
    assert class_of(None, present=True) is Class.CONFLICTING
    assert class_of(ReasonCode.SPEC_CHANGED.meaning, present=True) is Class.CONFLICTING


def test_a_code_is_read_in_the_terms_of_its_driver_first() -> None:
    catalog = Catalog({("one", "Gone"): Reason("Evicted.", Class.MISSING_EXTERNAL, explained=True)})
    assert meaning_of(catalog, "one", "Gone") == Reason("Evicted.", Class.MISSING_EXTERNAL, explained=True)
    assert meaning_of(catalog, "two", "Gone") is None
    assert meaning_of(catalog, "one", None) is None
    assert meaning_of(catalog, "two", "NotMarked") is ReasonCode.NOT_MARKED.meaning
    assert catalog.explained == {"Gone"}
    installed = load_plugins().catalog
    assert "HostRestarted" in installed.explained
    limit = meaning_of(installed, "process", "MemoryLimit")
    assert limit is not None
    assert limit.restarts
