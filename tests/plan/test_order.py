"""Order: dependencies, kinds, teardown backwards; the same whatever the order of input."""

from __future__ import annotations

import random

import pytest

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.plan import Verb
from gitops_agent.plan.order import depths, order_actions
from tests.plan import make

pytestmark = pytest.mark.unit

KINDS = tuple(kind for kind in Kind if kind != Kind.HOOK)  # hooks are called at moments of their own


def test_bring_up_follows_kinds_and_dependencies() -> None:
    agents = [
        make.agent(
            name,
            [make.resource(make.key(name, kind, "x"), {"a": 1}) for kind in reversed(KINDS)],
            depends_on=tuple(AgentKey.parse(other) for other in needs),
        )
        for name, needs in (("a/late", ("z/first",)), ("m/middle", ()), ("z/first", ()))
    ]
    plan = make.plan(make.snapshot(agents))
    assert [str(action.key) for action in plan.actions] == [
        f"{name}:{kind}/x" for name in ("m/middle", "z/first", "a/late") for kind in KINDS
    ]


def test_teardown_runs_backwards_and_first() -> None:
    retired = [
        make.agent("t/a", lifecycle=Lifecycle.RETIRED),
        make.agent("t/b", lifecycle=Lifecycle.RETIRED, depends_on=(AgentKey("t", "a"),)),
    ]
    keys = [make.key(f"t/{name}", kind, "x") for name in ("a", "b") for kind in KINDS]
    plan = make.plan(
        make.snapshot([*retired, make.agent("t/new", {"a": 1})]),
        [make.live(key, {"a": 1}) for key in keys],
        [make.base(key, {"a": 1}) for key in keys],
    )
    assert make.verbs(plan) == [
        *(("delete", f"t/{name}:{kind}/x") for name in ("b", "a") for kind in reversed(KINDS)),
        ("create", "t/new:runtime/process"),
    ]


def test_a_hook_for_the_end_is_called_between_the_runtime_and_the_config() -> None:
    keys = [
        make.key("t/a", kind, identity)
        for kind, identity in (("config", "x"), ("runtime", "x"), ("hook", "onRetired"))
    ]
    plan = make.plan(
        make.snapshot([make.agent("t/b", {"a": 1})]),
        [make.live(key, {"a": 1}) for key in keys],
        [make.base(key, {"a": 1}) for key in keys],
    )
    ended = [str(action.key) for action in plan.actions if action.verb is Verb.DELETE]
    assert ended == ["t/a:runtime/x", "t/a:hook/onRetired", "t/a:config/x"]


def test_a_moved_agent_is_started_before_it_is_stopped_unless_it_is_exclusive() -> None:
    old = make.key("t/a", "config", "pm2"), make.key("t/a", identity="pm2")
    live, bases = [make.live(each, {"a": 1}) for each in old], [make.base(each, {"a": 1}) for each in old]
    build = [("create", "t/a:runtime/process")]
    end = [("delete", "t/a:runtime/pm2"), ("delete", "t/a:config/pm2")]
    for exclusive, order in ((False, build + end), (True, end + build)):
        agent = make.agent("t/a", {"a": 1}, exclusive=exclusive)
        assert make.verbs(make.plan(make.snapshot([agent]), live, bases)) == order


def test_a_restart_comes_after_the_config_is_written() -> None:
    config, runtime = make.key("t/a", "config", "bundle"), make.key("t/a")
    agent = make.agent(
        "t/a", [make.resource(runtime, {"spec": 2}, restart_on=("spec",)), make.resource(config, {"m": 2})]
    )
    plan = make.plan(
        make.snapshot([agent]),
        [make.live(runtime, {"spec": 1}), make.live(config, {"m": 1})],
        [make.base(runtime, {"spec": 1}), make.base(config, {"m": 1})],
    )
    assert make.verbs(plan) == [("update", "t/a:config/bundle"), ("restart", "t/a:runtime/process")]


def test_cycles_and_unknown_dependencies_do_not_matter_to_termination() -> None:
    a, b = AgentKey("t", "a"), AgentKey("t", "b")
    agents = {
        a: make.agent("t/a", depends_on=(b, a, AgentKey("no", "where"))),
        b: make.agent("t/b", depends_on=(a,)),
    }
    assert depths({a, b}, agents).keys() == {a, b}


def test_a_chain_may_be_as_long_as_the_fleet_and_a_fan_as_wide() -> None:
    keys = [AgentKey("t", f"{number:05}") for number in range(5000)]
    agents = {
        key: make.agent(str(key), depends_on=(keys[number - 1],) if number else ())
        for number, key in enumerate(keys)
    }
    hub = AgentKey("t", "hub")
    agents[hub] = make.agent("t/hub", depends_on=tuple(keys))
    found = depths({hub}, agents)
    assert (found[keys[0]], found[keys[-1]], found[hub]) == (0, 4999, 5000)


def test_input_order_does_not_matter() -> None:
    agents = [
        make.agent(f"t/{n}", {"a": 1}, depends_on=(AgentKey("t", str(n // 2)),) if n > 1 else ())
        for n in range(30)
    ]
    plan = make.plan(make.snapshot(agents))
    shuffled = list(plan.actions)
    random.Random(7).shuffle(shuffled)
    assert order_actions(shuffled, make.snapshot(agents).agents) == plan.actions
