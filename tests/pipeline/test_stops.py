"""Guards in whole passes: what trips is written down, survives a restart, and is released as its finding says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.control.commands import Operator, OperatorCommands
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.observation import Observation
from gitops_agent.model.outcome import Applied
from gitops_agent.model.passes import PassResult
from gitops_agent.model.plan import Action, Verb
from gitops_agent.model.quantity import iso
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key

from .repository import key
from .world import World

TEN = tuple(f"bot-{number}" for number in range(10))
FREEZE = {"massDrift": {"absence": "Freeze"}}  # what is gone is drift like any other


def said(world: World, verb: ControlVerb, target: str) -> None:
    world.journal.control(Control(verb, target, "ann", world.clock.now(), "looked at it"))


def codes(result: PassResult) -> set[str]:
    return {finding.code for finding in result.findings}


def kill(world: World, *names: str) -> None:
    for name in names:
        del world.live.live[runtime_key(key(name))]


def alive(world: World) -> int:
    return sum(resource.kind == "runtime" for resource in world.live.live)


@pytest.fixture
def ten(world: World) -> World:
    world.commit(*TEN, policy=FREEZE)
    assert world.converge().phase is Phase.CONVERGED
    return world


def test_mass_drift_freezes_for_good_and_who_lifts_it_approves_exactly_that_plan(ten: World) -> None:
    kill(ten, *TEN[:6])
    tripped = ten.run()
    assert "MassDrift" in codes(tripped)
    assert (alive(ten), tripped.frozen) == (4, True)
    ten.boot()
    again = ten.run()
    assert "Frozen" in codes(again)
    assert alive(ten) == 4
    assert ten.condition("bot-0", ConditionType.FROZEN) is not None
    (freeze,) = [control for control in ten.journal.state().control.controls if control.verb is ControlVerb.FREEZE]
    assert (freeze.target, freeze.actor) == ("*", "guard mass_drift")
    said(ten, ControlVerb.UNFREEZE, "*")
    ten.converge()
    assert alive(ten) == 10


def test_a_tripped_plan_can_be_let_through_and_the_freeze_stays(ten: World) -> None:
    kill(ten, *TEN[:6])
    tripped = ten.run()
    assert tripped.record is not None
    said(ten, ControlVerb.APPROVE, tripped.record.plan.digest)
    ten.converge()
    assert alive(ten) == 10
    kill(ten, "bot-9")
    assert "Frozen" in codes(ten.run())
    assert alive(ten) == 9


def test_a_few_that_drift_are_simply_repaired(ten: World) -> None:
    kill(ten, *TEN[:4])
    ten.converge()
    assert alive(ten) == 10


class Rebooted(MemoryDriver):
    """What is gone went with the host."""

    def observe(self, *args: Any, **kwargs: Any) -> list[Observation]:
        seen = super().observe(*args, **kwargs)
        return [replace(each, reason="HostRestarted") if each.fields is None else each for each in seen]


def test_after_a_reboot_the_fleet_comes_back_by_itself_at_a_bounded_rate(tmp_path: Any) -> None:
    world = World(tmp_path / "state", Rebooted)
    world.commit(*TEN, policy={"hostRestart": {"atOnce": 3}})
    world.converge()
    world.clock.advance(3600)
    kill(world, *TEN)
    world.boot()
    made, back = list[int](), 0
    for _ in range(40):
        result = world.run()
        made.append(sum(action.verb is Verb.CREATE for action, _ in result.executed))
        back = alive(world)
        assert not codes(result) & {"MassDrift", "Frozen"}
        if back == 10:
            break
        world.clock.advance(1.0)
    assert (max(made), back) == (3, 10)
    assert next(filter(None, made)) == 1, "one first"
    assert world.converge().phase is Phase.CONVERGED
    world.shut()


def test_a_mass_delete_is_approved_by_its_digest(ten: World) -> None:
    sha = ten.commit(*TEN[6:])
    blocked = ten.run()
    assert (blocked.phase, alive(ten)) == (Phase.BLOCKED, 10)
    (digest,) = {record.plan for record in ten.journal.commits() if record.sha == sha}
    said(ten, ControlVerb.APPROVE, "0" * 32)
    assert ten.run().phase is Phase.BLOCKED
    said(ten, ControlVerb.APPROVE, digest)
    assert ten.converge().phase is Phase.CONVERGED
    assert alive(ten) == 4


def test_a_fleet_whose_commits_never_converge_is_guarded_all_the_same(world: World) -> None:
    """One agent is always broken; the other thirty run, and their loss is one."""
    broken = {"probes": {"readiness": {"exec": {"command": ["false"]}}}, "rollout": {"healthTimeout": "5s"}}
    thirty: dict[str, Any] = {f"bot-{number:02}": {} for number in range(30)}
    world.repository.commit({"broken": broken})
    assert world.converge().phase is Phase.DEGRADED
    world.repository.commit({"broken": broken, **thirty})
    assert world.converge().phase is Phase.DEGRADED
    world.repository.commit({"broken": broken}, message="take it back")
    result = world.converge()
    assert (result.phase, alive(world)) == (Phase.BLOCKED, 31)
    assert "30 of 31 agents of the fleet would be stopped or deleted" in {each.summary for each in result.findings}


def test_stops_that_waited_for_a_pause_are_asked_about_when_it_ends(ten: World) -> None:
    """A commit passed them by while they were paused; their end is no smaller for that."""
    until = iso(ten.clock.now() + 3600)
    paused = {"lifecycle": "Stopped", "reconcile": {"paused": True, "until": until, "reason": "looking"}}
    ten.repository.commit({**dict.fromkeys(TEN[:9], paused), TEN[9]: {}})
    assert not ten.converge().frozen
    assert alive(ten) == 10
    ten.clock.advance(3601)
    result = ten.run()
    assert alive(ten) == 10
    assert result.record is not None
    (held,) = [each for each in result.record.plan.verdicts if each.guard == "mass_delete" and each.held]
    assert held.for_people
    assert "9 of 10 agents of the fleet would be stopped or deleted" in {each.summary for each in result.findings}
    said(ten, ControlVerb.APPROVE, result.record.plan.digest)
    for _ in range(60):
        ten.clock.advance(max(0.25, ten.run().wait or 1.0))
    assert alive(ten) == 1


class TakesTime(MemoryDriver):
    """What takes no time at all is taken for something that a crash left and a look settled."""

    def apply(self, action: Action, intent: str) -> Applied:
        assert isinstance(self.clock, FrozenClock)
        self.clock.advance(0.01)
        return super().apply(action, intent)


def test_a_stopped_commit_is_approved_also_when_an_invalid_one_lies_on_top(ten: World) -> None:
    stopped = ten.commit(*TEN[:2])
    blocked = ten.converge()
    assert blocked.phase is Phase.BLOCKED
    ten.commit(*TEN[:3], broken="not YAML")
    result = ten.run()
    assert (result.phase, alive(ten)) == (Phase.INVALID, 10)
    assert blocked.record is not None
    plan = blocked.record.decision.blocked
    assert plan is not None
    OperatorCommands(ten.journal, ten.clock, Operator("ann", "host")).approve(plan.digest, "meant")
    ten.converge()
    assert alive(ten) == 2
    assert ten.journal.state().rollout.enforced == stopped


def test_a_resource_that_keeps_drifting_is_left_alone_until_its_window_has_moved_on(tmp_path: Any) -> None:
    ten = World(tmp_path / "state", TakesTime)
    ten.commit(*TEN)
    ten.converge()
    for _ in range(5):
        kill(ten, "bot-0")
        ten.converge()
        assert alive(ten) == 10
        ten.clock.advance(30)
    kill(ten, "bot-0")
    held = ten.run()
    assert "RepeatedDrift" in codes(held)
    assert alive(ten) == 9
    said(ten, ControlVerb.RETRY, "acme/bot-0")
    ten.run()
    assert alive(ten) == 10
    ten.shut()


def test_a_driver_that_fails_for_one_agent_after_the_other_rests(world: World) -> None:
    world.live.fail_always("no answer")
    world.commit(*TEN)
    world.run()
    calls = world.live.calls["apply"]
    world.clock.advance(5)  # past the pause of each resource, not past the rest of the driver
    assert "BreakerOpen" in codes(world.run())
    assert world.live.calls["apply"] == calls
    world.clock.advance(26)
    world.run()
    assert world.live.calls["apply"] == calls + 1, "one action, to prove that it works again"
    world.live.heal()
    assert world.converge().phase is Phase.CONVERGED


def test_the_policy_says_how_long_a_failure_rests(world: World) -> None:
    world.repository.commit({"bot": {}}, policy={"backoff": {"first": "40m", "longest": "2h"}})
    world.live.fail_always("no answer")
    world.run()
    assert world.live.calls["apply"] == 1
    for seconds in (600.0, 590.0):
        world.clock.advance(seconds)
        result = world.run()
        assert (world.live.calls["apply"], "Backoff" in codes(result)) == (1, True)
        assert world.status("bot").next_try_at is not None
    assert result.wait is not None
    assert result.wait <= 1200.0, "woken when it is due, and not only by the next look at everything"
    world.live.heal()
    world.clock.advance(1210.0)
    world.run()
    assert alive(world) == 1


def test_a_longer_rest_is_cut_short_by_a_clock_that_was_set_back(world: World) -> None:
    world.repository.commit({"bot": {}}, policy={"backoff": {"first": "40m", "longest": "1h"}})
    world.live.fail_next(message="no answer")
    world.run()
    world.clock.jump(-7200.0)
    assert world.converge().phase is Phase.CONVERGED


def test_what_was_retried_is_forgotten_with_its_agent(world: World) -> None:
    world.commit("bot", "other")
    world.converge()
    for name in ("bot", "other"):
        said(world, ControlVerb.RETRY, str(key(name)))
    world.run()
    world.commit("other")
    assert world.converge().phase is Phase.CONVERGED
    kept = [key(name) in world.journal.state().control.retried_at for name in ("bot", "other")]
    assert kept == [False, True]


def test_what_was_repaired_of_an_earlier_spec_does_not_count_against_a_new_one(world: World) -> None:
    world.repository.commit({"a": {}}, policy={"oscillation": {"repairs": 2}})
    world.converge()
    died, history = world.clock.now() + 1.0, world.journal.repairs
    world.journal.repairs = (  # type: ignore[method-assign]
        lambda resource, since: [at for at in (died, died + 1.0) if at >= since] or history(resource, since)
    )
    world.clock.advance(5)
    world.live.lose([runtime_key(key("a"))])
    world.run()
    assert runtime_key(key("a")) not in world.live.live, "repaired twice before, and held"
    world.repository.commit({"a": {"runtime": {"command": ["mended"]}}})
    assert world.converge().phase is Phase.CONVERGED
    world.clock.advance(5)
    world.live.lose([runtime_key(key("a"))])
    world.run()
    assert runtime_key(key("a")) in world.live.live, "one death of the new program is repaired at once"
