from __future__ import annotations

import json
from typing import Any

import pytest

from gitops_agent.drivers.api import Compilation, Context, ObserveRequest, has
from gitops_agent.errors import ApplyError, ObserveError
from gitops_agent.model.agent import Resource
from gitops_agent.model.document import AgentDocument
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import MemoryDriver, config_key, runtime_key

pytestmark = pytest.mark.unit
BOT = AgentKey("acme", "bot")
RUNTIME = runtime_key(BOT)
CONFIG = config_key(BOT)


def a_document(lifecycle: str = "Running", **runtime: Any) -> AgentDocument:
    document = {
        "apiVersion": "gitops-agent.dev/v1",
        "kind": "Agent",
        "metadata": {"name": "bot", "tenant": "acme"},
        "spec": {
            "lifecycle": lifecycle,
            "instructions": "Answer.",
            "runtime": {"driver": "process", "command": ["serve"], **runtime},
        },
    }
    return AgentDocument.model_validate_json(json.dumps(document))


def act(verb: Verb, resource: Resource, live: Fields | None = None) -> Action:
    desired = None if verb is Verb.DELETE else resource.fields
    words = (Class.CHANGE, "Test", "test", Confidence.HIGH, Decision.REPAIR)
    return Action(resource.key, resource.driver, verb, *words, desired=desired, live=live)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def memory(clock: FrozenClock) -> MemoryDriver:
    """A live system in which the bot runs."""
    system = MemoryDriver(clock=clock)
    for resource in system.compile(Compilation(BOT, a_document())):
        system.apply(act(Verb.CREATE, resource), "i0")
    return system


def one(memory: MemoryDriver, key: object = RUNTIME) -> Observation:
    (found,) = [item for item in memory.observe(ObserveRequest()) if item.key == key]
    return found


def test_it_is_a_plugin_that_connects_to_itself(memory: MemoryDriver, clock: FrozenClock) -> None:
    plugin = memory.plugin
    assert (plugin.name, plugin.is_runtime) == ("memory", True)
    driver = plugin.connect(Context("test", "nowhere", clock))
    assert driver.observe(ObserveRequest()) == memory.observe(ObserveRequest())
    assert has(driver, "start")
    assert has(driver, "exec")
    assert not has(driver, "logs")
    assert not has(driver, "claim")


def test_a_document_becomes_a_config_and_a_runtime() -> None:
    config, runtime = MemoryDriver("process").compile(Compilation(BOT, a_document(replicas=2)))
    assert (config.key, config.driver, runtime.key, runtime.driver) == (CONFIG, "process", RUNTIME, "process")
    assert config.fields.value["instructions"] == "Answer."
    assert runtime.fields.value == {
        "command": ["serve"], "env": {}, "replicas": 2, "config": config.fields.digest, "health": None
    }  # fmt: skip
    assert "command" in runtime.restart_on


def test_lifecycle_and_reload_are_heard() -> None:
    memory = MemoryDriver()
    assert memory.compile(Compilation(BOT, a_document("Retired"))) == ()
    assert [item.stopped for item in memory.compile(Compilation(BOT, a_document("Stopped")))] == [False, True]
    assert "config" not in memory.compile(Compilation(BOT, a_document(reload="Hot")))[1].fields.value


def test_what_was_applied_is_observed(memory: MemoryDriver, clock: FrozenClock) -> None:
    clock.advance(5)
    seen = one(memory)
    (_, wanted) = memory.compile(Compilation(BOT, a_document()))
    assert (seen.fields, seen.owner, seen.state, seen.reason) == (wanted.fields, Owner.OURS, "Running", None)
    assert (seen.observed_at, seen.started_at) == (clock.now(), clock.now() - 5)
    assert memory.starts == {RUNTIME: 1, CONFIG: 1}
    assert memory.calls["apply"] == 2


def test_an_update_keeps_the_handle_and_a_restart_changes_it(memory: MemoryDriver) -> None:
    first = one(memory).handle
    (_, wanted) = memory.compile(Compilation(BOT, a_document(replicas=3)))
    updated = memory.apply(act(Verb.UPDATE, wanted), "i1")
    assert one(memory).handle == updated.handle == first
    assert one(memory).fields == wanted.fields
    restarted = memory.apply(act(Verb.RESTART, wanted), "i2")
    assert one(memory).handle == restarted.handle != first
    assert memory.starts[RUNTIME] == 2


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.DELETE])
def test_stop_and_delete_remove_and_may_be_repeated(memory: MemoryDriver, verb: Verb) -> None:
    (_, runtime) = memory.compile(Compilation(BOT, a_document()))
    memory.apply(act(verb, runtime), "i1")
    memory.apply(act(verb, runtime), "i1")
    assert RUNTIME not in memory.live


def test_the_scope_limits_what_is_seen(memory: MemoryDriver) -> None:
    other = AgentKey("acme", "other")
    memory.plant(runtime_key(other), {}, Owner.OURS)
    base = Base(config_key(other), "memory", Fields.of({}), "abc", 1.0)
    assert {item.key.agent for item in memory.observe(ObserveRequest(frozenset({BOT})))} == {BOT}
    assert {item.key for item in memory.observe(ObserveRequest(frozenset({other}), {base.key: base}))} == {
        runtime_key(other),
        config_key(other),
    }


def test_absence_of_what_the_record_has_is_reported(memory: MemoryDriver) -> None:
    memory.remove(RUNTIME)
    base = Base(RUNTIME, "memory", Fields.of({}), "abc", 1.0)
    (gone,) = [item for item in memory.observe(ObserveRequest(None, {RUNTIME: base})) if item.fields is None]
    assert (gone.key, gone.state, gone.reason) == (RUNTIME, "Missing", "Gone")
    stopped = Base(RUNTIME, "memory", Fields.of({"stopped": True}), "abc", 1.0)
    (quiet,) = [item for item in memory.observe(ObserveRequest(None, {RUNTIME: stopped})) if item.fields is None]
    assert (quiet.state, quiet.reason) == ("Stopped", None)


def test_drift_is_seen_and_told(memory: MemoryDriver) -> None:
    told: list[str] = []
    memory.start(lambda agent, reason: told.append(f"{agent} {reason}"))
    memory.edit(RUNTIME, replicas=9, config=None)
    assert one(memory).fields.value["replicas"] == 9  # type: ignore[union-attr]
    assert "config" not in one(memory).fields.value  # type: ignore[union-attr]
    memory.ail(RUNTIME, "MemoryLimit", "Bloated")
    assert (one(memory).reason, one(memory).state) == ("MemoryLimit", "Bloated")
    memory.mark(RUNTIME, Owner.OTHER)
    assert one(memory).owner is Owner.OTHER
    memory.lose([RUNTIME, CONFIG])
    assert memory.observe(ObserveRequest()) == []
    memory.stop()
    memory.plant(RUNTIME, {"command": ["stranger"]})
    assert one(memory).owner is Owner.NONE
    assert told == [
        "acme/bot Edited", "acme/bot MemoryLimit", "acme/bot Marked", "acme/bot Gone", "acme/bot Gone"
    ]  # fmt: skip


def test_the_precheck_compares_with_the_plan(memory: MemoryDriver) -> None:
    (_, runtime) = memory.compile(Compilation(BOT, a_document()))
    assert memory.unchanged(act(Verb.UPDATE, runtime, live=runtime.fields))
    memory.edit(RUNTIME, replicas=9)
    assert not memory.unchanged(act(Verb.UPDATE, runtime, live=runtime.fields))
    memory.remove(RUNTIME)
    assert memory.unchanged(act(Verb.CREATE, runtime, live=None))


def test_failures_are_scripted_by_number_and_by_resource(memory: MemoryDriver) -> None:
    config, runtime = memory.compile(Compilation(BOT, a_document()))
    memory.fail_next(2, "no room", key=RUNTIME)
    for _ in range(2):
        with pytest.raises(ApplyError, match="no room") as caught:
            memory.apply(act(Verb.RESTART, runtime), "i1")
        assert not caught.value.permanent
    memory.apply(act(Verb.UPDATE, config), "i1")
    memory.apply(act(Verb.RESTART, runtime), "i1")
    memory.fail_always("never", permanent=True)
    for _ in range(3):
        with pytest.raises(ApplyError, match="never") as caught:
            memory.apply(act(Verb.UPDATE, config), "i1")
        assert caught.value.permanent
    memory.heal()
    memory.apply(act(Verb.UPDATE, config), "i1")


def test_a_failed_apply_changes_nothing(memory: MemoryDriver) -> None:
    (_, wanted) = memory.compile(Compilation(BOT, a_document(replicas=5)))
    before = dict(memory.live)
    memory.fail_next()
    with pytest.raises(ApplyError):
        memory.apply(act(Verb.UPDATE, wanted), "i1")
    assert memory.live == before


def test_it_can_be_blind_for_a_while(memory: MemoryDriver) -> None:
    memory.unreachable_next(1, "timeout")
    with pytest.raises(ObserveError, match="timeout"):
        memory.observe(ObserveRequest())
    assert len(memory.observe(ObserveRequest())) == 2


def test_commands_run_where_something_runs(memory: MemoryDriver) -> None:
    assert memory.exec(BOT, ["true"], 1.0).ok
    memory.remove(RUNTIME)
    assert not memory.exec(BOT, ["true"], 1.0).ok
