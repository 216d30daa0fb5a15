"""What is known of names that are not ours: asked for once, for half a minute, and again after a write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gitops_agent.drivers.api import AgentKey, NotYet, ResourceKey
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.foreign import KEPT_SECONDS, MAX_SINGLE, ForeignObjects
from gitops_agent.drivers.kubernetes.kinds import CONFIG_MAP
from gitops_agent.drivers.kubernetes.marks import INSTANCE, MANAGER
from gitops_agent.drivers.kubernetes.objects import Target

pytestmark = pytest.mark.unit
APPLIED = [{"manager": MANAGER, "operation": "Apply"}]


class Recording:
    """A client that answers from what is there, and counts what it is asked."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []

    def request(self, _method: str, path: str, **_asked: Any) -> dict[str, Any]:
        """The metadata of one object, or of all."""
        self.asked.append(path)
        name = path.rpartition("/")[2]
        if name == CONFIG_MAP.plural:
            return {"items": [self._object(each) for each in self.there]}
        if name not in self.there:
            raise ApiError(404, "NotFound", name)
        return self._object(name)

    def _object(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **self.there[name]}}


class World:
    """A namespace, the clock, and what is known of its names."""

    def __init__(self) -> None:
        self.client, self.now = Recording(), 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        cluster: Any = SimpleNamespace(client=self.client, instance="prod", clock=clock)
        self.foreign = ForeignObjects(cluster)

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
    world.now += KEPT_SECONDS - 1
    assert world.among(*names) == {"a0": ""}
    for name in names[1:]:
        assert world.foreign.require_free(at(name)) is False
    assert world.requests() == 0
    world.now += 1
    del world.client.there["a0"]
    assert world.among(*names) == {}
    assert world.requests() == (count if count <= MAX_SINGLE else 1)


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
