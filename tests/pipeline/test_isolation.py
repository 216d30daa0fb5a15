"""One agent that hangs, and the fleet around it: repaired, followed and frozen as if it were not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from gitops_agent.drivers.api import (
    AS_IT_RUNS,
    AgentKey,
    ExecResult,
    Observation,
    ObserveRequest,
    RunAs,
)
from gitops_agent.model.passes import is_settled
from gitops_agent.model.status import Phase
from gitops_agent.support.daemon_pool import DaemonPool
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key
from tests.support.fleet import until

from .repository import key
from .world import World

pytestmark = pytest.mark.unit
ONE, TWO = runtime_key(key("one")), runtime_key(key("two"))
PROBED = {"probes": {"readiness": {"exec": {"command": ["ask"]}, "timeout": "30s", "period": "10s"}}}


class Hanging(MemoryDriver):
    """A live system in which some calls never end, until the test is over."""

    over: threading.Event
    hung_probes: frozenset[AgentKey] = frozenset()
    hung_looks = False

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        if agent in self.hung_probes:
            self.over.wait(60)
        return super().exec(agent, command, timeout, how)

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        if self.hung_looks:
            self.over.wait(60)
        return super().observe(request)


@pytest.fixture
def hanging(world: World) -> Iterator[Hanging]:
    world.live = Hanging(clock=world.clock)
    world.live.over = threading.Event()
    world.pool = DaemonPool("all", 16)
    world.boot()
    yield world.live
    world.live.over.set()


def ready(world: World, *names: str) -> bool:
    world.run()
    return all(world.status(name).ready for name in names)


def test_a_probe_that_hangs_keeps_nothing_from_being_repaired_or_followed(world: World, hanging: Hanging) -> None:
    hanging.hung_probes = frozenset({key("one")})
    world.repository.commit({"one": PROBED, "two": {}, "three": {}})
    world.run()
    world.clock.advance(2)
    until(lambda: ready(world, "two", "three"), "the others are Ready")
    assert not world.status("one").ready
    hanging.remove(TWO)
    world.run("two")
    assert hanging.starts[TWO] == 2
    sha = world.repository.commit({"one": PROBED, "two": {}, "three": {}, "four": {}})
    world.run()
    assert world.phase(sha) is Phase.RECONCILING
    assert runtime_key(key("four")) in hanging.live


def test_after_a_restart_an_agent_stays_ready_and_once_waits_for_the_first_answer(
    world: World, hanging: Hanging
) -> None:
    world.repository.commit({"one": PROBED, "two": {}})
    world.run()
    world.clock.advance(2)
    until(lambda: ready(world, "one", "two"), "all are Ready")
    until(lambda: is_settled(world.run()), "there is nothing more to do")
    hanging.hung_probes = frozenset({key("one")})
    world.boot()
    result = world.run()
    assert world.status("one").ready, "as it was reported"
    assert not is_settled(result), "but its probe may say otherwise"
    hanging.over.set()
    until(lambda: is_settled(world.run()), "the probe has answered")
    assert world.status("one").ready
