"""What is known of names that are not ours: asked for once, for half a minute, and again after a write."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from gitops_agent.drivers.api import AgentKey, NotYet, ResourceKey
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.foreign import (
    ASKED_AT_ONCE,
    FAILED_SECONDS,
    KEPT_SECONDS,
    MAX_SINGLE,
    TAKEN_SECONDS,
    ForeignObjects,
)
from gitops_agent.drivers.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, SECRET
from gitops_agent.drivers.kubernetes.marks import INSTANCE, MANAGER
from gitops_agent.drivers.kubernetes.objects import Target

pytestmark = pytest.mark.unit
APPLIED = [{"manager": MANAGER, "operation": "Apply"}]


def answers(_path: str) -> None:
    """What a server does that is well."""


class Recording:
    """A client that answers from what is there, and counts what it is asked. ``before``: what happens before."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.before: Callable[[str], None] = answers

    def request(self, _method: str, path: str, **_asked: Any) -> dict[str, Any]:
        """The metadata of one object, or of all."""
        self.asked.append(path)
        self.before(path)
        name = path.rpartition("/")[2]
        if name in (CONFIG_MAP.plural, NAMESPACE.plural):
            return {"items": [self._object(each) for each in self.there]}
        if name not in self.there:
            raise ApiError(404, "NotFound", name)
        return self._object(name)

    def _object(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **self.there[name]}}


class World:
    """A cluster, the clock, and what is known of its names. ``watched``: the namespaces that our watches show."""

    def __init__(self) -> None:
        self.client, self.now, self.watched = Recording(), 1000.0, {"acme"}
        cluster: Any = SimpleNamespace(
            client=self.client,
            cache=SimpleNamespace(get=lambda _kind, _place, name: name if name in self.watched else None),
            settings=SimpleNamespace(namespaces=()),
            instance="prod",
            clock=SimpleNamespace(monotonic=lambda: self.now),
        )
        self.foreign = ForeignObjects(cluster)

    def look(
        self, tenants: int, kinds: tuple[Any, ...] = (CONFIG_MAP,), agents: int = 1
    ) -> dict[ResourceKey, str]:
        """Look for the objects of some agents of each tenant, who has a namespace."""
        wanted = {
            ResourceKey(AgentKey(f"t{tenant}", f"a{number}"), kind.resource, "kubernetes"): Target(
                kind, f"t{tenant}", f"a{number}"
            )
            for tenant in range(tenants)
            for number in range(agents)
            for kind in kinds
        }
        return self.foreign.among(wanted)

    def among(self, *names: str) -> dict[str, str]:
        wanted = {ResourceKey(AgentKey("acme", name), "config", "kubernetes"): at(name) for name in names}
        return {key.agent.name: mark for key, mark in self.foreign.among(wanted).items()}

    def requests(self) -> int:
        """How many there were since the last look."""
        made, self.client.asked = len(self.client.asked), []
        return made


def at(name: str) -> Target:
    return Target(CONFIG_MAP, "acme", name)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("count", [1, MAX_SINGLE, MAX_SINGLE + 1, 50])
def test_an_agent_that_waits_costs_requests_once_in_a_while(world: World, count: int) -> None:
    names = [f"a{number}" for number in range(count)]
    world.client.there["a0"] = {}
    assert world.among(*names) == {"a0": ""}
    assert world.requests() == (count if count <= MAX_SINGLE else 1)
    world.now += TAKEN_SECONDS - 1
    assert world.among(*names) == {"a0": ""}
    world.now += KEPT_SECONDS - TAKEN_SECONDS
    for name in names[1:]:
        assert world.foreign.require_free(at(name)) is False
    assert world.requests() == 0
    world.now += 1
    del world.client.there["a0"]
    assert world.among(*names) == {}
    assert world.requests() == (count if count <= MAX_SINGLE else 1)


def test_a_way_that_was_cleared_is_seen_within_seconds(world: World) -> None:
    world.client.there["a0"] = {}
    assert world.among("a0", "a1") == {"a0": ""}
    assert world.requests() == 2
    del world.client.there["a0"]
    world.now += TAKEN_SECONDS
    assert world.among("a0", "a1") == {}
    assert world.requests() == 1, "the name that was free is not asked for again"


def test_creating_many_costs_one_list(world: World) -> None:
    names = [f"a{number}" for number in range(50)]
    world.among(*names)
    for name in names:
        assert world.foreign.require_free(at(name)) is False
        world.client.there[name] = {"managedFields": APPLIED}
        world.foreign.forget(at(name))
    assert world.requests() == 1


def test_what_we_wrote_is_asked_for_anew(world: World) -> None:
    """It is ours and lost its label, or it was made by another since: neither is what was known."""
    world.among("a", "b")
    world.client.there |= {"a": {"managedFields": APPLIED}, "b": {}}
    for name in ("a", "b"):
        world.foreign.forget(at(name))
    assert world.foreign.require_free(at("a")) is True
    with pytest.raises(NotYet, match="is not ours"):
        world.foreign.require_free(at("b"))


@pytest.mark.parametrize(
    ("metadata", "whose"),
    [
        ({}, {"a": ""}),
        ({"labels": {INSTANCE: "prod"}}, {"a": ""}),
        ({"labels": {INSTANCE: "prod"}, "managedFields": APPLIED}, {}),
        ({"managedFields": APPLIED}, {}),
        ({"labels": {INSTANCE: "test"}, "managedFields": APPLIED}, {"a": "test"}),
    ],
)
def test_ours_is_what_we_applied(world: World, metadata: dict[str, Any], whose: dict[str, str]) -> None:
    world.client.there["a"] = metadata
    assert world.among("a") == whose
    if whose == {"a": ""}:
        assert world.foreign.require_adoptable(at("a")) == {"uid": "uid-a", "resourceVersion": "7"}
    else:
        with pytest.raises(NotYet):
            world.foreign.require_adoptable(at("a"))


def test_what_cannot_be_adopted_is_seen_by_the_next_plan(world: World) -> None:
    world.client.there["a"] = {}
    assert world.among("a") == {"a": ""}
    world.client.there["a"] = {"labels": {INSTANCE: "test"}}
    with pytest.raises(NotYet, match="by now"):
        world.foreign.require_adoptable(at("a"))
    assert world.among("a") == {"a": "test"}


def test_what_no_longer_counts_is_dropped(world: World) -> None:
    for number in range(100):
        target = Target(CONFIG_MAP, f"t{number}", "a")
        world.foreign.require_free(target)
        world.now += KEPT_SECONDS
    assert len(world.foreign._known) <= 2


def test_a_first_commit_of_many_tenants_asks_once_which_namespaces_there_are(world: World) -> None:
    """Where there is no namespace there is nothing in it; the few that are there are looked into."""
    kinds = (CONFIG_MAP, SECRET, DEPLOYMENT)
    world.client.there = {"t0": {}}
    assert world.look(40, kinds, agents=3) == {}
    assert world.requests() == 1 + 3 * len(kinds)
    world.now += KEPT_SECONDS - 1
    assert world.look(40, kinds, agents=3) == {}
    assert world.requests() == 0


def test_a_namespace_that_was_made_since_is_looked_into(world: World) -> None:
    world.look(40)
    world.client.there |= {"t0": {}, "a0": {}}
    world.now += KEPT_SECONDS
    assert [str(key.agent) for key in world.look(40)] == ["t0/a0"]


def test_many_places_are_asked_for_side_by_side(world: World) -> None:
    """One request after the other, on a slow line, takes longer than their answers are kept."""
    world.watched = {f"t{number}" for number in range(ASKED_AT_ONCE)}
    together = Barrier(ASKED_AT_ONCE)

    def waits_for_the_others(_path: str) -> None:
        together.wait(10)

    world.client.before = waits_for_the_others
    world.look(ASKED_AT_ONCE)
    assert world.requests() == ASKED_AT_ONCE


def test_a_refusal_in_one_namespace_is_kept_for_a_moment_and_hides_no_other(world: World) -> None:
    def refuses_t0(path: str) -> None:
        if "/t0/" in path:
            raise ApiError(403, "Forbidden", "no")

    world.watched, world.client.there = {"t0", "t1"}, {"a0": {}}
    world.client.before = refuses_t0
    assert [str(key.agent) for key in world.look(2)] == ["t1/a0"]
    assert world.requests() == 2
    world.look(2)
    assert world.requests() == 0
    world.now += FAILED_SECONDS
    world.client.before = answers
    assert [str(key.agent) for key in world.look(2)] == ["t0/a0", "t1/a0"]
    assert world.requests() == 2, "t0 anew, and what was in the way in t1"


def test_a_server_that_asks_for_patience_is_given_it_by_every_look(world: World) -> None:
    def is_busy(_path: str) -> None:
        raise ApiError(429, "TooManyRequests", "later", retry_after=20)

    world.client.before = is_busy
    assert world.among("a") == {}
    world.now += 19
    assert world.look(2) == {}
    assert world.requests() == 1
    with pytest.raises(NotYet, match="asks to wait 20 s"):  # a write is not made without knowing
        world.foreign.require_free(at("a"))
    world.now += 1
    world.client.before = answers
    world.client.there["a"] = {}
    assert world.among("a") == {"a": ""}
