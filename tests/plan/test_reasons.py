"""Reason codes are stable and documented."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from gitops_agent.drivers import kubernetes
from gitops_agent.drivers.plugins import load_plugins
from gitops_agent.model.catalog import Catalog, Reason
from gitops_agent.model.plan import Class
from gitops_agent.plan.reasons import Hold, ReasonCode, class_of, meaning_of
from tests.plan import make

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


def advice(code: str) -> str:
    """What people are told to do where a driver reports a code of Kubernetes and nothing is done by itself."""
    catalog = Catalog({("fake", each): meant for each, meant in kubernetes.PLUGIN.reasons.items()})
    declared, recorded, seen = make.running("shop/pay", {"replicas": 3})
    observed = replace(seen, reason=code)
    [finding] = make.plan(make.snapshot([declared]), [observed], [recorded], catalog=catalog).findings
    assert finding.code == code
    return finding.detail


def test_nobody_is_told_to_delete_an_object_of_ours_of_which_another_took_a_field() -> None:
    told = advice("TakenOver")
    assert "The object is ours" in told
    assert all(way in told for way in ("let go of", "authority: {runtime.replicas: live}", "overwrite: All"))
    assert "Remove it" not in told


def test_a_secret_of_kubernetes_that_was_rotated_does_not_ask_for_a_restart_that_changes_nothing() -> None:
    told = advice("SecretRotated")
    assert "The Secret in the cluster keeps the old value" in told
    assert "runtime.onSecretChange: Restart" in told
    assert "Restart it when it suits" not in told
