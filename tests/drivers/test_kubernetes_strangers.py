"""What another tenant applies in its own namespace, with an agent's labels and our field manager, is not the
agent's: it gets no hook, is no part of the log, and nothing about the agent is told there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gitops_agent.drivers.api import AgentKey, ObserveError, Record, Redactor, ResourceKey, Verb
from gitops_agent.drivers.kubernetes.cache import Entry, keep_raw
from gitops_agent.drivers.kubernetes.commands import Commands
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.events import Events
from gitops_agent.drivers.kubernetes.kinds import CONFIG_MAP, POD, SECRET, STATEFUL_SET, ObjectKind
from gitops_agent.drivers.kubernetes.logs import Logs
from gitops_agent.drivers.kubernetes.marks import MANAGER, labels_of

pytestmark = pytest.mark.unit
BOT = AgentKey("acme", "bot")
STRANGER, OWN = "aaa", "acme"
"""The namespaces of another tenant, which comes first by name, and of the agent's own."""


def entry(kind: ObjectKind, namespace: str, *, applied: bool = True) -> Entry:
    """An object with the agent's labels; pods are those that a StatefulSet keeps."""
    metadata: dict[str, Any] = {"name": "bot", "namespace": namespace, "labels": labels_of("prod", BOT)}
    found: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    if kind is POD:
        metadata |= {
            "name": "bot-0",
            "ownerReferences": [{"kind": "StatefulSet", "name": "bot", "controller": True}],
        }
        found["status"] = {"phase": "Running"}
    elif applied:
        metadata["managedFields"] = [{"manager": MANAGER, "operation": "Apply"}]
    return keep_raw(kind, found)


class World:
    """A cluster in which some namespaces hold what looks like the agent's, and what it was asked."""

    def __init__(self, *entries: Entry) -> None:
        self.asked: list[str] = []
        cache = SimpleNamespace(
            of_agent=lambda _agent, kind: tuple(each for each in entries if each.kind is kind),
            is_of=lambda tenant, namespace: (tenant, namespace) == (BOT.tenant, OWN),
        )
        self.cluster: Any = SimpleNamespace(
            client=self,
            cache=cache,
            instance="prod",
            redactor=Redactor(),
            clock=SimpleNamespace(now=lambda: 0.0),
        )

    def websocket(self, path: str, *_how: Any) -> Any:
        """A command that is refused."""
        self.asked.append(path)
        raise ApiError(403, "Forbidden", "no")

    def stream(self, _method: str, path: str, *_how: Any) -> Any:
        """The log of a container that has not started."""
        self.asked.append(path)
        raise ApiError(400, "BadRequest", "waiting to start")

    def get(self, path: str) -> dict[str, Any]:
        """A Secret without values."""
        self.asked.append(path)
        return {}

    def request(self, _method: str, path: str, **_how: Any) -> None:
        """An event that is posted."""
        self.asked.append(path)

    def namespaces(self) -> list[str]:
        """Where it was asked for something."""
        return [path.split("/namespaces/")[1].split("/")[0] for path in self.asked]


@pytest.fixture
def world() -> World:
    return World(*(entry(kind, where) for where in (STRANGER, OWN) for kind in (STATEFUL_SET, POD, SECRET)))


def event(key: ResourceKey, *, ok: bool = True) -> Record:
    action: Any = SimpleNamespace(key=key, verb=Verb.UPDATE, message="", reason="SpecChanged")
    return Record(action, "0" * 40, ok=ok, message="")


def test_a_hook_runs_in_the_agents_own_pod(world: World) -> None:
    Commands(world.cluster).exec(BOT, ["true"], 5.0)
    assert world.namespaces() == [OWN]


def test_a_pod_that_is_named_is_the_agents_own(world: World) -> None:
    Commands(world.cluster).exec(BOT, ["true"], 5.0, "bot-0")
    assert world.namespaces() == [OWN]


def test_the_secrets_that_are_hidden_are_the_agents_own(world: World) -> None:
    assert Commands(world.cluster).knows_secrets(BOT)
    assert world.namespaces() == [OWN]


def test_the_log_is_of_the_agents_own_pods(world: World) -> None:
    assert len(list(Logs(world.cluster).read(BOT, 10))) == 1
    assert world.namespaces() == [OWN]


def test_an_event_is_told_where_the_agent_is(world: World) -> None:
    events = Events(world.cluster)
    events.record(event(ResourceKey(BOT, "runtime", "kubernetes")))
    events.close(wait=5)
    assert world.namespaces() == [OWN]


def test_without_the_agents_own_there_is_nothing_to_use() -> None:
    copied = entry(CONFIG_MAP, OWN, applied=False)
    world = World(entry(STATEFUL_SET, STRANGER), entry(POD, STRANGER), entry(SECRET, STRANGER), copied)
    commands, events = Commands(world.cluster), Events(world.cluster)
    assert not commands.exec(BOT, ["true"], 5.0).started
    assert commands.knows_secrets(BOT)
    with pytest.raises(ObserveError, match="there is no pod of acme/bot"):
        Logs(world.cluster).read(BOT, 10)
    events.record(event(ResourceKey(BOT, "config", "kubernetes"), ok=False))
    events.close(wait=5)
    assert world.asked == []
