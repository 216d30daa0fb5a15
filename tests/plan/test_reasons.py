"""Reason codes are stable and documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_agent.model.plan import Class
from gitops_agent.plan.reasons import HOLDS, MEANINGS, Hold, ReasonCode, drift_class, markdown, restarts

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "reasons.md"


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Reason)
    assert set(HOLDS) == set(Hold)
    assert all(meaning.text.endswith(".") for meaning in MEANINGS.values())


def test_the_page_is_in_step_with_the_code() -> None:
    command = 'python -c "from gitops_agent.plan.reasons import markdown; print(markdown(), end=str())"'
    assert PAGE.read_text(encoding="utf-8") == markdown(), f"write the page again: {command} > docs/reasons.md"


def test_unknown_reasons_of_a_driver_are_judged_by_presence() -> None:
    assert drift_class("PodEvicted", present=False) is Class.MISSING_EXTERNAL
    assert drift_class("PodEvicted", present=True) is Class.CONFLICTING
    assert drift_class("SpecChanged", present=True) is Class.CONFLICTING
    assert not restarts("PodEvicted")
    assert not restarts(None)
    assert restarts("MemoryLimit")
