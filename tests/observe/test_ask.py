"""A driver is asked for its own, in scope, and for nothing else; and only when something asks for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.drivers.api import ObserveRequest, Plugin
from gitops_agent.model.agent import Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.observe.observer import ask_drivers as observe
from gitops_agent.observe.observer import split_requests
from gitops_agent.support.bounded_calls import BoundedCalls
from gitops_agent.support.daemon_pool import DaemonPool
from tests.support.fleet import until
from tests.support.plugins import a_plugin, connect

pytestmark = pytest.mark.unit
ONE, TWO = AgentKey("acme", "one"), AgentKey("acme", "two")
NOTHING = Fields.of({})


def base(agent: AgentKey, driver: str) -> Base:
    return Base(ResourceKey(agent, "runtime", driver), driver, NOTHING, "c0ffee", 1.0)


def wanted(agent: AgentKey, driver: str) -> Resource:
    return Resource(ResourceKey(agent, "runtime", driver), driver, NOTHING)


def test_each_driver_gets_its_own_bases_and_claims_in_scope() -> None:
    known = {each.key: each for each in (base(ONE, "a"), base(TWO, "a"), base(ONE, "b"))}
    desired = [wanted(ONE, "a"), wanted(ONE, "c")]
    everything = split_requests(None, known, desired)
    assert set(everything) == {"a", "b", "c"}
    assert set(everything["a"].bases) == {base(ONE, "a").key, base(TWO, "a").key}
    assert (everything["a"].claims, dict(everything["c"].claims)) == ({}, {wanted(ONE, "c").key: wanted(ONE, "c")})
    some = split_requests(frozenset({TWO}), known, [])
    assert some == {"a": ObserveRequest(frozenset({TWO}), {base(TWO, "a").key: base(TWO, "a")})}


class Remote:
    def __init__(self) -> None:
        self.requests: list[ObserveRequest] = []

    def observe(self, request: ObserveRequest) -> list[Any]:
        self.requests.append(request)
        return []


def remote(name: str, driver: Remote, connects: list[str]) -> Plugin:
    def connected(_context: Any) -> Any:
        connects.append(name)
        return driver

    made = a_plugin(name, driver)
    return Plugin(name, made.kinds, made.compile, connected)


def test_a_driver_is_connected_once_and_asked_while_something_names_it() -> None:
    connects: list[str] = []
    asked, idle = Remote(), Remote()
    drivers = connect([remote("asked", asked, connects), remote("idle", idle, connects)])
    with ThreadPoolExecutor(2) as pool:
        assert observe(drivers, None, {}, BoundedCalls(pool)).unreachable == {}
        assert connects == []
        observe(drivers, None, {}, BoundedCalls(pool), [wanted(ONE, "asked")])
        assert connects == ["asked"]
        observe(drivers, frozenset({TWO}), {}, BoundedCalls(pool))
        assert len(asked.requests) == 2, "others are there: what is looked at may be an orphan"
        observe(drivers, None, {}, BoundedCalls(pool))
        observe(drivers, frozenset({TWO}), {}, BoundedCalls(pool))
        assert len(asked.requests) == 2, "nothing is there any more: it may have been taken down"
        observe(drivers, None, {}, BoundedCalls(pool), [wanted(ONE, "asked")])
    assert connects == ["asked"]
    assert (len(asked.requests), len(idle.requests)) == (3, 0)


def test_a_driver_that_is_gone_hides_its_own_and_nothing_else() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = observe(connect([]), None, {each.key: each for each in (base(ONE, "lost"),)}, BoundedCalls(pool))
    said = "the driver lost is not installed; install it; there are: none"
    assert found.unreachable == {"lost": said}, "what is wrong, and the way out"


def test_a_driver_that_cannot_connect_is_tried_again() -> None:
    tries: list[int] = []

    def refuses(_context: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionRefusedError("no route")
        return Remote()

    plugin = a_plugin("far", None)
    drivers = connect([Plugin("far", plugin.kinds, plugin.compile, refuses)])
    with ThreadPoolExecutor(2) as pool:
        first = observe(drivers, None, {}, BoundedCalls(pool), [wanted(ONE, "far")])
        again = observe(drivers, None, {}, BoundedCalls(pool), [wanted(ONE, "far")])
    assert "cannot connect" in first.unreachable["far"]
    assert again.unreachable == {}


class Hanging(Remote):
    """A driver whose answer comes when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def observe(self, request: ObserveRequest) -> list[Any]:
        super().observe(request)
        self.go_on.wait(60)
        return []


def test_a_driver_that_hangs_is_unreachable_alone_and_waited_for_once() -> None:
    far, near = Hanging(), Remote()
    plugins = [replace(a_plugin("far", far), observe_timeout=0.05), a_plugin("near", near)]
    drivers, calls = connect(plugins), BoundedCalls[Any](DaemonPool("observe", 4))
    both = [wanted(ONE, "far"), wanted(TWO, "near")]
    for _ in range(3):
        found = observe(drivers, None, {}, calls, both)
        assert list(found.unreachable) == ["far"]
        assert "does not answer" in found.unreachable["far"]
    assert (len(far.requests), len(near.requests)) == (1, 3), "it is not asked again before it has answered"
    far.go_on.set()
    until(lambda: observe(drivers, None, {}, calls, both).unreachable == {}, "it is asked again")
