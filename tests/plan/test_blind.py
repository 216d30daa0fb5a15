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


# -- an agent in two places, of which one cannot be asked

HERE, AWAY = make.key("t/a", identity="here"), make.key("t/a", identity="away")


def two_places(*, runs: bool = True) -> tuple[list[Any], list[Any]]:
    """An agent runs here and away, and has a config with a third driver: what is on record, and what is seen."""
    drivers = {HERE: "here", AWAY: "away", CONFIG: "files"}
    bases = [replace(make.base(each, {"a": 1}), driver=driver) for each, driver in drivers.items()]
    seen = [
        replace(make.live(each, {"a": 1}), driver=drivers[each]) for each in ([HERE, CONFIG] if runs else [CONFIG])
    ]
    return bases, seen


def test_of_an_agent_that_ends_only_what_can_be_seen_to_run_goes() -> None:
    bases, seen = two_places()
    others = make.snapshot([make.agent("t/other")])
    made = make.plan(others, seen, bases, unreachable={"away"})
    assert make.verbs(made) == [("delete", str(HERE))], "the one that is away may need the config"
    assert make.verbs(make.plan(others, [], bases[1:], unreachable={"away"})) == []


def test_a_claim_that_was_given_up_is_no_place_where_it_runs() -> None:
    bases, seen = two_places()
    bases[0] = replace(bases[0], retained=True)
    made = make.plan(make.snapshot([make.agent("t/other")]), seen, bases, unreachable={"away"})
    assert made.actions == ()


def moves_to(identity: str, **more: Any) -> Any:
    runtime = replace(make.resource(make.key("t/a", identity=identity), {"a": 1}), driver=identity)
    config = replace(make.resource(CONFIG, {"a": 1}), driver="files")
    return make.snapshot([make.agent("t/a", [config, runtime], **more)])


def test_on_its_way_out_of_sight_it_is_kept_up_where_it_can_be_seen() -> None:
    bases, seen = two_places(runs=False)
    target = moves_to("away")
    assert make.verbs(make.plan(target, seen, bases, unreachable={"away"})) == [("create", str(HERE))]
    assert make.plan(target, two_places()[1], bases, unreachable={"away"}).actions == (), "it runs"
    assert make.plan(target, [], bases, unreachable={"away", "files"}).actions == (), "on an unknown config"
    for doubt in ({"unseen": {HERE.agent}}, {"busy": {HERE.agent}}):
        assert make.plan(target, seen, bases, unreachable={"away"}, **doubt).actions == ()
    exclusive = moves_to("away", exclusive=True)
    assert make.plan(exclusive, seen, bases, unreachable={"away"}).actions == ()


def test_what_it_leaves_on_its_way_to_a_third_place_is_kept_up_too() -> None:
    bases, seen = two_places(runs=False)
    made = make.plan(moves_to("third"), seen, bases, unreachable={"away"})
    assert make.verbs(made) == [("create", str(HERE)), ("create", "t/a:runtime/third")]
