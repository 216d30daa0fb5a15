"""What is asked of an agent's health is a field of its runtime: only when asked, and no reason to restart."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_agent.drivers.process import PLUGIN
from gitops_agent.journal.version_5 import fold_health_bases
from gitops_agent.model.fields import Fields
from gitops_agent.model.health import HEALTHY, Health, HealthState, worst
from gitops_agent.model.health_spec import DEFAULTS, read_health
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from tests.drivers.conftest import agent_document
from tests.support.plugins import compiled

pytestmark = pytest.mark.unit

AGENT = AgentKey("acme", "bot")
OTHER = AgentKey("acme", "other")


def fields(spec: dict[str, Any] | None = None, **runtime: Any) -> Fields:
    (resource,) = compiled(PLUGIN, AGENT, agent_document(AGENT, spec=spec, command=["bot"], **runtime))
    return resource.fields


def test_nothing_asked_is_no_field() -> None:
    assert "health" not in fields().value
    assert read_health(fields()) is DEFAULTS


def test_what_is_asked_is_kept_as_written() -> None:
    assert read_health(fields({"heartbeat": {"staleAfter": "5s"}})) == {
        "probes": {"readiness": None, "liveness": None},
        "heartbeat": {"staleAfter": "5s", "onStale": "Restart"},
        "minUptime": "1s",
    }
    found = read_health(fields({"probes": {"readiness": {"http": {"port": 80}}}}, minUptime="3s"))
    assert found["minUptime"] == "3s"
    assert found["probes"]["readiness"]["http"] == {"port": 80, "path": "/"}
    assert found["probes"]["readiness"]["failureThreshold"] == 3


def test_a_word_in_a_command_asks_nothing() -> None:
    assert read_health(Fields.of({"command": ['{"health":1}']})) == DEFAULTS


def base(agent: AgentKey, kind: str, identity: str, content: dict[str, Any]) -> Base:
    return Base(ResourceKey(agent, kind, identity), kind, Fields.of(content), "c0ffee", 7.0)


def test_an_older_record_becomes_what_the_same_document_asks_today() -> None:
    """Upgrading differs in nothing, so nothing is done."""
    spec = {"probes": {"liveness": {"exec": {"command": ["alive"]}}}}
    wanted = fields(spec, minUptime="3s")
    older = {name: value for name, value in wanted.value.items() if name != "health"}
    config = base(AGENT, "config", "bundle", {"name": "bot"})
    before = [
        config,
        base(AGENT, "health", "probes", wanted.value["health"]),
        base(AGENT, "runtime", "process", older),
        base(OTHER, "runtime", "process", {**older, "dormant": True}),
    ]
    after = {each.key: each for each in fold_health_bases(before)}
    assert len(after) == 3
    assert after[config.key] is config
    runtime = after[ResourceKey(AGENT, "runtime", "process")]
    assert (runtime.fields, runtime.applied_at, runtime.commit) == (wanted, 7.0, "c0ffee")
    assert after[ResourceKey(OTHER, "runtime", "process")].fields == Fields.of({**older, "stopped": True})
    assert fold_health_bases(after.values()) == list(after.values()), "a second time changes nothing"


def health(state: HealthState, reason: str = "") -> Health:
    return Health(state, reason, "")


def test_the_worst_health_decides_and_the_first_of_equals() -> None:
    starting, sick = health(HealthState.STARTING), health(HealthState.UNHEALTHY)
    assert worst([HEALTHY, starting, sick, health(HealthState.UNKNOWN)]) is sick
    assert worst([HEALTHY, starting]) is starting
    first = health(HealthState.UNHEALTHY, "first")
    assert worst([first, sick]) is first
    stopped = health(HealthState.STOPPED)
    assert worst([stopped, HEALTHY]) is stopped
    assert worst([sick, health(HealthState.STUCK, "stuck")]) == health(HealthState.STUCK, "stuck")
