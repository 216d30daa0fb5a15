"""Whole passes while a source lies, and while a commit brings a probe that is wrong."""

from __future__ import annotations

from typing import Any

from gitops_agent.model.plan import Decision
from gitops_agent.model.status import ConditionType
from gitops_agent.testing.faults import LyingDriver, says_suspended
from gitops_agent.testing.memory_driver import runtime_key
from tests.support.decisions import decided

from .repository import key
from .world import World

ONE = runtime_key(key("one"))


def probes(**commands: str) -> dict[str, Any]:
    return {"probes": {name: {"exec": {"command": [word]}, "period": "1s"} for name, word in commands.items()}}


def passes(world: World, seconds: int = 15) -> None:
    for _ in range(seconds):
        world.clock.advance(1)
        world.run()


def test_a_process_table_that_lies_is_contradicted_shown_and_not_followed(world: World) -> None:
    world.repository.commit({"one": probes(liveness="true", readiness="true")})
    world.converge()
    applied = list(world.live.applied)
    world.driver = LyingDriver(world.live, says_suspended)
    world.boot()
    passes(world)
    assert world.live.applied == applied
    ready, stalled = world.condition("one"), world.condition("one", ConditionType.STALLED)
    assert ready is not None
    assert stalled is not None
    assert (ready.status, ready.reason, stalled.reason) == (False, "SourcesDisagree", "SourcesDisagree")
    found = decided(world.journal, agent=key("one"))[0]
    assert (found.decision, found.reason) == (Decision.ALERT, "SourcesDisagree")
    heard = {evidence.source for evidence in found.evidence}
    assert heard == {"memory", "memory driver", "liveness probe", "readiness probe"}

    world.driver = None
    world.boot()
    world.run()
    assert [said.type for said in world.status("one").conditions] == [ConditionType.READY]


def test_a_wrong_liveness_probe_is_seen_by_the_gate_and_restarts_nobody(world: World) -> None:
    """Not even after gitops-agent was started again, and remembers nothing of how well the agent was before."""
    world.repository.commit({"one": {**probes(liveness="true"), "rollout": {"healthTimeout": "10s"}}})
    world.converge()
    starts = world.live.starts[ONE]
    world.clock.advance(100)
    world.repository.commit({"one": {**probes(liveness="false"), "rollout": {"healthTimeout": "10s"}}})
    for _ in range(2):
        passes(world)
        ready = world.condition("one")
        assert ready is not None
        assert (ready.status, ready.reason) == (False, "NotLiveYet")
        world.boot()
    assert world.live.starts[ONE] == starts
    world.repository.commit({"one": {**probes(liveness="true"), "rollout": {"healthTimeout": "10s"}}})
    world.converge()
    assert world.status("one").ready
    assert world.live.starts[ONE] == starts
