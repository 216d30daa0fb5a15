"""A driver that could not be asked: nothing is concluded about what it hides, and its agents are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import Health, HealthState
from tests.plan import make

pytestmark = pytest.mark.unit

CONFIG, RUNTIME = make.key("t/a", "config", "bundle"), make.key("t/a")
BLIND = frozenset({"process"})


def two_drivers() -> Any:
    """One agent with a config we can see and a runtime of the driver ``process``."""
    config, runtime = make.resource(CONFIG, {"m": 1}), replace(make.resource(RUNTIME, {"a": 1}), driver="process")
    agent = make.agent("t/a", [config, runtime])
    bases = [make.base(CONFIG, {"m": 1}), replace(make.base(RUNTIME, {"a": 1}), driver="process")]
    return agent, bases


@pytest.mark.parametrize("scope", [None, frozenset({AgentKey("t", "a"), AgentKey("t", "dead")})])
def test_what_was_not_seen_is_not_taken_for_gone(scope: Any) -> None:
    agent, bases = two_drivers()
    dead, recorded, _ = make.running("t/dead", {"a": 1})
    snapshot, seen = make.snapshot([agent, dead]), [make.live(CONFIG, {"m": 1})]
    trusting = make.plan(snapshot, seen, [*bases, recorded], scope=scope)
    assert make.verbs(trusting) == [("create", "t/a:runtime/process"), ("create", "t/dead:runtime/process")]
    careful = make.plan(snapshot, seen, [*bases, recorded], scope=scope, unreachable=BLIND)
    assert make.verbs(careful) == [("create", "t/dead:runtime/process")]


def test_nothing_else_of_such_an_agent_is_touched() -> None:
    agent, bases = two_drivers()
    sick = {agent.key: Health(HealthState.STUCK, "LivenessFailed", "no answer.", restart=True)}
    edited = [make.live(CONFIG, {"m": 9})]
    assert make.plan(make.snapshot([agent]), edited, bases, sick, unreachable=BLIND).actions == ()


def test_a_first_start_waits_until_the_driver_can_be_asked() -> None:
    agent, _ = two_drivers()
    assert make.plan(make.snapshot([agent]), unreachable=BLIND).actions == ()


@pytest.mark.parametrize("left", [True, False], ids=["document left", "resources left"])
def test_nothing_is_forgotten_or_pruned_unseen(left: bool) -> None:
    agent, bases = two_drivers()
    kept = [make.agent("t/other")] if left else [replace(agent, resources=())]
    plan = make.plan(make.snapshot(kept), [make.live(CONFIG, {"m": 1})], bases, unreachable=BLIND)
    assert plan.actions == ()
