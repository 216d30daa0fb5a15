"""Who is judged, and by which spec: the one last applied, or the desired one before that."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_agent.model.agent import Agent, Lifecycle, Origin, Resource
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Observation, Owner
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.observe.health.monitor import DEFAULTS, Subject
from gitops_agent.observe.health.targets import subjects
from gitops_agent.testing.memory_driver import MemoryDriver, config_key, runtime_key

from .make import ONE, SHA, TWO, base

pytestmark = pytest.mark.unit
OLD, NEW = Fields.of({"minUptime": "1s"}), Fields.of({"minUptime": "9s"})
LIVE = MemoryDriver()


def health_key(agent: AgentKey) -> ResourceKey:
    return ResourceKey(agent, "health", "probes")


def agent(key: AgentKey, *, health: bool = True, dormant: bool = False, **more: Any) -> Agent:
    resources = [Resource(config_key(key), "memory", Fields.of({}))]
    if health:
        resources.append(Resource(health_key(key), "health", NEW))
    resources.append(Resource(runtime_key(key), "memory", Fields.of({"replicas": 3}), dormant=dormant))
    return Agent(key, Origin("x.yaml", 1, "b"), tuple(resources), **more)


def judged(*agents: Agent, seen: Any = None, bases: Any = (), scope: Any = None) -> dict[AgentKey, Subject]:
    snapshot = Snapshot(Revision(SHA, "t", (), "", 0, 0, ""), {a.key: a for a in agents}, PolicySpec())
    known = {each.key: each for each in bases}
    return {each.agent: each for each in subjects(snapshot, seen or {}, known, scope, [LIVE.driver])}


def test_before_anything_was_applied_the_desired_spec_counts() -> None:
    found = judged(agent(ONE))[ONE]
    assert (found.spec, found.fields.value) == (NEW.value, {"replicas": 3})
    assert (found.runtime, found.dormant, found.runner) == (None, False, LIVE)


def test_what_was_applied_last_counts_until_the_new_spec_is() -> None:
    bases = [base(health_key(ONE), OLD), base(runtime_key(ONE), Fields.of({"replicas": 1}))]
    found = judged(agent(ONE), bases=bases)[ONE]
    assert (found.spec, found.fields.value) == (OLD.value, {"replicas": 1})


def test_without_a_health_resource_the_defaults_count() -> None:
    assert judged(agent(ONE, health=False))[ONE].spec is DEFAULTS


def test_a_stopped_agent_is_judged_by_what_is_desired_now() -> None:
    found = judged(agent(ONE, dormant=True), bases=[base(runtime_key(ONE), Fields.of({"replicas": 1}))])[ONE]
    assert found.dormant
    assert found.fields.value == {"replicas": 3}


def test_scope_and_agents_without_a_runtime() -> None:
    retired = Agent(TWO, Origin("y.yaml", 1, "b"), (), lifecycle=Lifecycle.RETIRED)
    brain_only = Agent(TWO, Origin("y.yaml", 1, "b"), (Resource(config_key(TWO), "memory", Fields.of({})),))
    assert set(judged(agent(ONE), retired)) == {ONE}
    assert set(judged(agent(ONE), brain_only)) == {ONE}
    assert set(judged(agent(ONE), agent(TWO), scope=frozenset({TWO, AgentKey("acme", "gone")}))) == {TWO}


def test_the_observation_of_the_runtime_is_what_is_judged() -> None:
    seen = Observation(runtime_key(ONE), "memory", Owner.OURS, Fields.of({}), "Running", 0.0)
    other = Observation(config_key(ONE), "memory", Owner.OURS, Fields.of({}), "Present", 0.0)
    assert judged(agent(ONE), seen={seen.key: seen, other.key: other})[ONE].runtime is seen
