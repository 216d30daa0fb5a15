"""Health as a resource: there when something is asked, equal to our record, recorded by an apply."""

from __future__ import annotations

from typing import Any

import pytest
from gitops_agent.drivers.health import driver as health_driver
from gitops_agent.drivers.health.spec import health_key

from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Verb
from gitops_agent.ports import DriverContext
from tests.drivers.conftest import RealClock, action, agent_document

pytestmark = pytest.mark.unit

AGENT = AgentKey("acme", "bot")
DRIVER = health_driver(DriverContext("me", "/nowhere"), RealClock())


def fields(spec: dict[str, Any] | None = None, **runtime: Any) -> dict[str, Any] | None:
    found = DRIVER.compile(AGENT, agent_document(AGENT, spec=spec, command=["bot"], **runtime))
    return found[0].fields.value if found else None


def test_nothing_asked_is_no_resource() -> None:
    assert fields() is None
    assert fields({"lifecycle": "Retired", "heartbeat": {}}) is None


def test_what_is_asked_is_kept_as_written() -> None:
    assert fields({"heartbeat": {"staleAfter": "5s"}}) == {
        "probes": {"readiness": None, "liveness": None},
        "heartbeat": {"staleAfter": "5s", "onStale": "Restart"},
        "minUptime": "1s",
    }
    found = fields({"probes": {"readiness": {"http": {"port": 80}}}}, minUptime="3s")
    assert found is not None
    assert found["minUptime"] == "3s"
    assert found["probes"]["readiness"]["http"] == {"port": 80, "path": "/"}
    assert found["probes"]["readiness"]["failureThreshold"] == 3


def test_live_is_our_own_record_and_applying_is_recording() -> None:
    (resource,) = DRIVER.compile(AGENT, agent_document(AGENT, command=["bot"], minUptime="3s"))
    step = action(health_key(AGENT), Verb.CREATE, desired=resource.fields)
    assert DRIVER.applier.unchanged(step)
    assert DRIVER.applier.apply(step, "intent").message
    base = Base(resource.key, "health", resource.fields, "c0ffee", 0.0)
    (seen,) = DRIVER.observer.observe(None, {resource.key: base})
    assert seen.fields == resource.fields
    assert DRIVER.observer.observe(frozenset(), {resource.key: base}) == []
    assert DRIVER.observer.observe(None, {}) == []
