"""Which agents are asked for their health, and by which spec: the one last applied, or else the desired one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.agent import Agent, Lifecycle, Origin, Resource
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.health import Health, HealthState
from gitops_agent.model.health_spec import DEFAULTS
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import AgentInstance, Observation, Owner
from gitops_agent.model.passes import Live, Observed
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.observe.health.targets import HealthTarget, health_targets
from gitops_agent.testing.memory_driver import MemoryDriver, config_key, runtime_key
from tests.reconcile.make import ONE, SHA, TWO, base
from tests.support.plugins import connect

pytestmark = pytest.mark.unit
OLD, NEW = {"minUptime": "1s"}, {"minUptime": "9s"}
LIVE = MemoryDriver()
DRIVERS = connect([LIVE.plugin])


def runtime(replicas: int, health: Any = None) -> Fields:
    return Fields.of({"replicas": replicas, **({"health": health} if health else {})})


def agent(key: AgentKey, *, health: bool = True, stopped: bool = False, **more: Any) -> Agent:
    resources = [Resource(config_key(key), "memory", Fields.of({}))]
    resources.append(Resource(runtime_key(key), "memory", runtime(3, NEW if health else None), stopped=stopped))
    return Agent(key, Origin("x.yaml", 1, "b"), tuple(resources), **more)


def judged(*agents: Agent, seen: Any = None, bases: Any = (), scope: Any = None) -> dict[AgentKey, HealthTarget]:
    snapshot = Snapshot(Revision(SHA, "t", (), "", 0, 0, ""), {a.key: a for a in agents}, PolicySpec())
    known = {each.key: each for each in bases}
    live = Live(Observed(seen or {}, {}), {}, scope)
    return {each.agent: each for each in health_targets(snapshot, live, known, DRIVERS)}


def running(**more: Any) -> Observation:
    return Observation(runtime_key(ONE), "memory", Owner.OURS, Fields.of({}), "Running", 0.0, **more)


def test_before_anything_was_applied_the_desired_spec_counts() -> None:
    found = judged(agent(ONE))[ONE]
    assert found.spec == NEW
    assert (found.runtime, found.stopped, found.asked_since) == (None, False, None)


def test_commands_are_run_by_the_driver_of_what_runs() -> None:
    assert judged(agent(ONE))[ONE].executing is None
    assert judged(agent(ONE), seen={runtime_key(ONE): running()})[ONE].executing is LIVE


def test_what_was_applied_last_counts_until_the_new_spec_is() -> None:
    found = judged(agent(ONE), bases=[base(runtime_key(ONE), runtime(1, OLD))])[ONE]
    assert found.spec == OLD
    assert found.asked_since is not None


def test_where_nothing_is_asked_the_defaults_count() -> None:
    assert judged(agent(ONE, health=False))[ONE].spec is DEFAULTS


def test_a_stopped_agent_is_only_asked_whether_it_stopped() -> None:
    found = judged(agent(ONE, stopped=True), bases=[base(runtime_key(ONE), runtime(1))])[ONE]
    assert (found.stopped, found.spec) == (True, DEFAULTS)


def test_a_driver_that_finds_a_live_agent_stuck_starts_a_cross_check() -> None:
    for reason, expected in (("Suspended", "Suspended"), ("MemoryLimit", None), ("Unheard", None), (None, None)):
        seen = running(reason=reason)
        assert judged(agent(ONE), seen={seen.key: seen})[ONE].suspicion == expected
    gone = replace(running(reason="Suspended"), fields=None)
    assert judged(agent(ONE), seen={gone.key: gone})[ONE].suspicion is None


def test_the_health_of_other_resources_comes_along() -> None:
    slow = Health(HealthState.STARTING, "Propagating", "2 of 3 servers know it")
    seen = Observation(config_key(ONE), "memory", Owner.OURS, Fields.of({}), "Present", 0.0, health=slow)
    found = judged(agent(ONE), seen={seen.key: seen})[ONE]
    assert found.others == (slow,)
    assert judged(agent(ONE), seen={runtime_key(ONE): running(health=slow)})[ONE].others == ()


def test_probes_go_to_each_address_once_or_to_that_of_the_runtime() -> None:
    def addresses(*own: str, whole: str = "") -> tuple[str, ...]:
        instances = tuple(AgentInstance(str(n), 1.0, address=each) for n, each in enumerate(own))
        seen = running(instances=instances, address=whole)
        return judged(agent(ONE), seen={seen.key: seen})[ONE].addresses

    assert addresses("10.0.0.1", "10.0.0.2", "10.0.0.1") == ("10.0.0.1", "10.0.0.2")
    assert addresses("", whole="svc.example") == ("svc.example",)
    assert addresses("") == ()


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
