"""Hooks in whole passes: when they are called, that they are called once, and what becomes of those that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.control.commands import Operator, OperatorCommands
from gitops_agent.drivers import hook
from gitops_agent.drivers.api import AS_IT_RUNS, Applied, ExecResult, Observation, ObserveRequest, Plugin, RunAs
from gitops_agent.drivers.hook import hook_key
from gitops_agent.errors import UsageError
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Result
from gitops_agent.model.plan import Action
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.faults import Crash, FaultInjector
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key
from tests.support.plugins import a_plugin

from .repository import key
from .world import World

HOOKS = {"onProvisioned": {"command": ["hello"]}, "onRetired": {"command": ["goodbye"]}}
DONE = ExecResult(True, "exit code 0")


class Runs:
    """A runtime driver that only runs commands: it remembers them, and answers as it is told."""

    def __init__(self, live: MemoryDriver) -> None:
        self.live = live
        self.calls: list[tuple[str, str, bool]] = []
        self.keys: list[str] = []
        self.answers: dict[str, ExecResult | Exception] = {}

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        return ()

    def apply(self, action: Action, key: str) -> Applied:
        raise AssertionError("nothing is desired of it")

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        self.calls.append((agent.name, command[0], runtime_key(agent) in self.live.live))
        self.keys.append(how.env["MANAGED_AGENT_HOOK_KEY"])
        answer = self.answers.get(command[0], DONE)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(agent, command) for agent, command, _ in self.calls]


class HookWorld(World):
    """A world with hooks; the runner outlives a crash, like everything live."""

    def plugins(self) -> list[Plugin]:
        self.runs: Runs = getattr(self, "runs", None) or Runs(self.live)
        return [*super().plugins(), a_plugin("process", self.runs), hook.PLUGIN]

    def fleet(self, *names: str, hooks: Mapping[str, Any] = HOOKS, **more: Any) -> str:
        """A commit of agents with hooks, beside one that is always there: an empty source deletes nothing."""
        return self.repository.commit({"z": {}, **{name: {"hooks": hooks, **more} for name in names}})

    def left(self, name: str = "a") -> set[ResourceKey]:
        return {each for each in self.journal.state().reconcile.bases if each.agent == key(name)}

    def shot(self, name: str, which: str = "onProvisioned") -> OneShot | None:
        base = self.journal.state().reconcile.bases.get(hook_key(key(name), which))
        return OneShot.read(base.handle) if base else None

    def retry(self, name: str) -> None:
        self.journal.control(Control(ControlVerb.RETRY, str(key(name)), "ada", self.clock.now()))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[HookWorld]:
    made = HookWorld(tmp_path)
    yield made
    made.shut()


def test_a_hook_is_called_once_when_the_agent_is_ready_and_once_at_its_end(world: HookWorld) -> None:
    sha = world.fleet("a")
    world.converge()
    assert world.phase(sha) is Phase.CONVERGED
    assert world.runs.calls == [("a", "hello", True)]
    world.live.remove(runtime_key(key("a")))
    world.converge()
    world.fleet("a", runtime={"command": ["other"]})
    world.converge()
    assert world.runs.said == [("a", "hello")], "neither a restart nor a change calls it again"
    world.fleet()
    world.converge()
    assert world.runs.calls[1:] == [("a", "goodbye", False)], "when nothing of it runs any more"
    assert not world.left()
    world.fleet("a")
    world.converge()
    assert world.runs.said[2:] == [("a", "hello")], "a new life"
    assert len(set(world.runs.keys)) == 3
    first, end, second = (life.rpartition("/")[0] for life in world.runs.keys)
    assert first == end != second, "both calls of one life tell the same one"


def test_an_end_that_nobody_heard_yet_still_tells_its_life(world: HookWorld) -> None:
    world.fleet("a")
    world.converge()
    world.runs.answers["goodbye"] = ExecResult(False, "did not start", started=False)
    world.fleet()
    for _ in range(3):
        world.run()
    world.clock.advance(400.0)
    world.runs.answers.clear()
    world.converge()
    assert len({life.rpartition("/")[0] for life in world.runs.keys}) == 1
    assert len(world.runs.keys) > 2
    assert not world.left()


def test_a_failed_welcome_does_not_fail_the_commit_that_takes_the_agent_away(world: HookWorld) -> None:
    world.runs.answers["hello"] = ExecResult(False, "exit code 1")
    bad = world.fleet("a", "b")
    world.converge()
    assert world.phase(bad) is Phase.DEGRADED
    undo = world.fleet("b", hooks={"onRetired": {"command": ["goodbye"]}})
    world.converge()
    assert not world.left("a"), "nobody is left to be welcomed"
    assert world.phase(undo) is Phase.CONVERGED
    assert world.condition("b", ConditionType.STALLED) is not None, "b is still there, and its question open"


def test_nothing_is_called_before_the_agent_is_ready_nor_for_one_that_never_was(world: HookWorld) -> None:
    probe = {"readiness": {"exec": {"command": ["false"]}, "period": "1s"}}
    world.fleet("a", probes=probe, rollout={"healthTimeout": "5s"})
    world.converge()
    ready = world.condition("a")
    assert ready is not None
    assert not ready.status
    assert world.runs.calls == []
    world.fleet()
    world.converge()
    assert world.runs.calls == []
    assert not world.left()


def test_an_edited_hook_is_written_down_and_not_called(world: HookWorld) -> None:
    world.fleet("a")
    world.converge()
    world.fleet("a", hooks={"onProvisioned": {"command": ["hi"]}, "onRetired": {"command": ["bye"]}})
    result = world.converge()
    assert result.phase is Phase.CONVERGED
    assert world.runs.said == [("a", "hello")]
    world.fleet("a", hooks={})
    world.converge()
    assert world.runs.said == [("a", "hello")], "a hook that leaves the document is not the end of the agent"
    world.fleet("a", lifecycle="Retired")
    world.converge()
    assert world.runs.said == [("a", "hello")]


def test_a_retired_agent_calls_its_newest_hook(world: HookWorld) -> None:
    world.fleet("a", hooks={"onRetired": {"command": ["bye"]}})
    world.converge()
    world.fleet("a")
    world.converge()
    world.fleet("a", lifecycle="Retired")
    assert world.converge().phase is Phase.CONVERGED
    assert world.runs.said == [("a", "goodbye")], "given to an agent that lived already, hello is not called"


def test_retained_agents_call_nobody(world: HookWorld) -> None:
    world.fleet("a", deletionPolicy="Retain")
    world.converge()
    world.fleet()
    world.converge()
    world.fleet("a", deletionPolicy="Retain")
    world.converge()
    assert world.runs.said == [("a", "hello")], "it lived on, so it is the same life"


def test_a_stopped_agent_is_not_provisioned_until_it_runs(world: HookWorld) -> None:
    world.fleet("a", lifecycle="Stopped")
    assert world.converge().phase is Phase.CONVERGED
    assert world.runs.calls == []
    world.fleet("a")
    world.converge()
    world.fleet("a", lifecycle="Stopped")
    world.converge()
    world.fleet("a")
    world.converge()
    assert world.runs.said == [("a", "hello")]


def test_an_agent_that_is_only_observed_keeps_nobody_waiting(world: HookWorld) -> None:
    world.fleet("a", hooks={})
    world.converge()
    sha = world.fleet("a", hooks={"onRetired": {"command": ["bye"]}}, reconcile={"mode": "Observe"})
    world.converge()
    assert world.phase(sha) is Phase.CONVERGED
    world.fleet("b", reconcile={"mode": "Observe"})
    world.converge()
    world.fleet()
    world.converge()
    assert ("b", "goodbye") not in world.runs.said, "what was never ours has not ended"


def test_a_lost_journal_calls_nobody(world: HookWorld) -> None:
    world.fleet("a")
    world.converge()
    world.shut()
    for path in world.folder.glob("journal*"):
        path.unlink()
    world.boot()
    assert not world.journal.state().reconcile.bases
    world.converge()
    assert world.runs.said == [("a", "hello")], "the agent was found alive: who knows what was called"


@pytest.mark.parametrize(
    ("answer", "reason", "result"),
    [
        (ExecResult(False, "exit code 3: no such customer"), "HookFailed", Result.FAILED),
        (ExecResult(False, "no answer within 30 s", ended=False), "HookUnknown", Result.UNKNOWN),
        (RuntimeError("a bug"), "HookUnknown", Result.UNKNOWN),
    ],
)
def test_what_was_called_and_failed_is_for_people(
    world: HookWorld, answer: ExecResult | Exception, reason: str, result: Result
) -> None:
    world.runs.answers["hello"] = answer
    sha = world.fleet("a")
    world.converge()
    for _ in range(3):
        world.clock.advance(400.0)
        world.converge()
    assert len(world.runs.calls) == 1
    stalled = world.condition("a", ConditionType.STALLED)
    assert stalled is not None
    assert stalled.reason == reason
    assert world.status("a").ready, "the agent itself is well"
    assert world.phase(sha) is Phase.DEGRADED
    shot = world.shot("a")
    assert shot is not None
    assert shot.result is result
    said, *_ = [finding for finding in world.run().findings if finding.code == reason]
    assert "gitops-agent retry acme/a" in said.detail
    later = world.fleet("a", runtime={"command": ["other"]})
    world.converge()
    assert world.phase(later) is Phase.CONVERGED, "a later commit did not call it"
    assert len(world.runs.calls) == 1, "nor does a new spec call it again"
    assert world.condition("a", ConditionType.STALLED) is not None


def test_a_revert_of_a_later_commit_does_not_take_back_one_whose_hook_has_an_unknown_end(world: HookWorld) -> None:
    world.repository.commit({"old": {}}, policy={"rollout": {"onFailure": "Revert"}})
    world.converge()
    world.runs.answers["hello"] = ExecResult(False, "no answer within 30 s", ended=False)
    hooks = {"onProvisioned": {"command": ["hello"]}}
    in_doubt = world.repository.commit({"old": {}, "guest": {"hooks": hooks}})
    assert world.converge().phase is Phase.DEGRADED
    broken = {"probes": {"readiness": {"exec": {"command": ["false"]}}}, "rollout": {"healthTimeout": "2s"}}
    world.runs.answers["false"] = ExecResult(False, "no")
    bad = world.repository.commit({"old": {"runtime": {"command": ["typo"]}, **broken}, "guest": {"hooks": hooks}})
    world.converge()
    back = world.repository.head
    assert back not in (None, bad)
    assert world.record(str(back)).rolls_back_to == in_doubt
    assert runtime_key(key("guest")) in world.live.live


def test_a_person_may_have_it_called_again_under_the_same_key(world: HookWorld) -> None:
    world.runs.answers["hello"] = ExecResult(False, "exit code 1")
    sha = world.fleet("a")
    world.converge()
    world.retry("a")
    world.converge()
    assert len(world.runs.calls) == 2
    assert world.condition("a", ConditionType.STALLED) is not None
    world.runs.answers.clear()
    world.retry("a")
    world.converge()
    world.retry("a")
    world.converge()
    assert len(world.runs.calls) == 3, "what is done is done"
    assert len(set(world.runs.keys)) == 1
    assert world.condition("a", ConditionType.STALLED) is None
    assert not [each for each in world.run().findings if each.code == "HookFailed"], "it is no longer true"
    assert world.phase(sha) is Phase.DEGRADED
    world.journal.control(Control(ControlVerb.RETRY, sha, "ada", world.clock.now()))
    world.converge()
    assert world.phase(sha) is Phase.CONVERGED


def test_a_person_may_leave_it_as_it_is(world: HookWorld) -> None:
    world.runs.answers["hello"] = ExecResult(False, "exit code 1")
    sha = world.fleet("a")
    result = world.converge()
    assert result.record is not None
    result = world.run()
    assert result.record is not None
    world.journal.control(Control(ControlVerb.APPROVE, result.record.plan.digest, "ada", world.clock.now()))
    world.converge()
    assert world.condition("a", ConditionType.STALLED) is None
    assert len(world.runs.calls) == 1
    shot = world.shot("a")
    assert shot is not None
    assert shot.result is Result.DONE
    with pytest.raises(UsageError, match="done already"):
        OperatorCommands(world.journal, world.clock, Operator("ada", "host")).approve(
            result.record.plan.digest, ""
        )
    assert world.phase(sha) is Phase.DEGRADED
    world.clock.advance(61)
    world.converge()
    assert world.phase(sha) is Phase.CONVERGED, "the gate has recovered"


def test_a_hook_that_never_started_is_tried_again(world: HookWorld) -> None:
    world.runs.answers["hello"] = ExecResult(False, "'hello' did not start: no such file", started=False)
    world.fleet("a")
    for _ in range(4):
        world.run()
        world.clock.advance(400.0)
    assert len(world.runs.calls) > 1
    world.runs.answers.clear()
    assert world.converge().state.status.agents[key("a")].ready
    shot = world.shot("a")
    assert shot is not None
    assert shot.result is Result.DONE


def test_the_end_that_failed_stays_on_record_until_people_decide(world: HookWorld) -> None:
    world.fleet("a", "b")
    world.converge()
    world.runs.answers["goodbye"] = ExecResult(False, "exit code 1")
    sha = world.fleet("b")
    world.converge()
    assert world.phase(sha) is Phase.DEGRADED
    assert world.left() == {hook_key(key("a"), "onRetired")}
    status, stalled = world.status("a"), world.condition("a", ConditionType.STALLED)
    assert not status.ready, "it has ended"
    assert {each.state for each in status.resources} == {"Ended"}
    assert stalled is not None
    assert stalled.reason == "HookFailed"
    later = world.fleet("b", runtime={"command": ["other"]})
    world.converge()
    assert world.phase(later) is Phase.CONVERGED, "later commits do not pay for it"
    assert world.runs.said[2:] == [("a", "goodbye")]
    world.runs.answers.clear()
    world.retry("a")
    world.converge()
    assert world.runs.said[2:] == [("a", "goodbye")] * 2
    assert world.runs.keys[2] == world.runs.keys[3]
    assert not world.left()


def test_an_agent_that_comes_back_starts_with_a_clean_sheet(world: HookWorld) -> None:
    world.fleet("a", "b")
    world.converge()
    world.runs.answers["goodbye"] = ExecResult(False, "exit code 1")
    world.fleet("b")
    world.converge()
    world.runs.answers.clear()
    world.fleet("a", "b")
    world.converge()
    world.fleet("b", description="a tree that failed is not tried again")
    world.converge()
    assert [call for call in world.runs.said if call[0] == "a"] == [
        ("a", "hello"),
        ("a", "goodbye"),
        ("a", "hello"),
        ("a", "goodbye"),
    ]
    assert len(set(world.runs.keys)) == len(world.runs.keys)


def lives(world: HookWorld) -> None:
    """One life of one agent, from the first commit to its end."""
    world.fleet("a")
    world.converge()
    world.fleet()
    world.converge()


def test_a_crash_anywhere_calls_nothing_twice(tmp_path: Path) -> None:
    counted = FaultInjector()
    first = HookWorld(tmp_path / "counted")
    first.boot(counted)
    lives(first)
    first.shut()
    around = ("journal.begin:after", "apply:after", "journal.finish:before")
    points = [point for point in counted.points() if point.startswith(around)]
    assert len(points) > 20
    outcomes = set()
    for number, point in enumerate(points):
        world = HookWorld(tmp_path / str(number))
        world.boot(FaultInjector.at(point, _crash))
        try:
            lives(world)
        except Crash:
            world.boot()
            world.converge()
            world.fleet()
            world.converge()
        for command in ("hello", "goodbye"):
            calls = world.runs.said.count(("a", command))
            assert calls <= 1, point
            outcomes.add((command, calls))
        world.shut()
    assert ("goodbye", 1) in outcomes


def _crash() -> None:
    raise Crash


def test_a_call_that_we_were_killed_in_is_not_answered_by_a_revert(world: HookWorld) -> None:
    """Nobody knows whether it failed: that is for people, and the agent that it welcomed is well."""
    back = {"rollout": {"onFailure": "Revert"}}
    world.repository.commit({"z": {}}, policy=back)
    world.converge()
    for answer, phase in (
        (RuntimeError("a bug"), Phase.DEGRADED),
        (ExecResult(False, "exit code 1"), Phase.CONVERGED),
    ):
        world.runs.answers["hello"] = answer
        sha = world.repository.commit({"z": {}, "a": {"hooks": HOOKS, "description": phase}}, policy=back)
        assert world.converge().phase is phase, "what failed for certain is taken back"
        assert (runtime_key(key("a")) in world.live.live) is (phase is Phase.DEGRADED)
        assert bool(world.repository.pushed) is (phase is Phase.CONVERGED)
        if phase is Phase.DEGRADED:
            assert world.phase(sha) is Phase.DEGRADED
            world.repository.commit({"z": {}}, policy=back)
            world.converge()
