"""What a pass makes of agents and commits: phases, conditions, and who must be Ready for what."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gitops_agent.cli.exit_codes import exit_code
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.memory_driver import config_key, runtime_key

from .repository import key
from .world import World, verbs

ONE, TWO = runtime_key(key("one")), runtime_key(key("two"))


def test_pending_reconciling_converged(world: World) -> None:
    sha = world.commit("one", "two")
    first = world.run()
    assert first.phase is Phase.RECONCILING
    assert first.busy
    assert first.wait == 1.0, "the default minimum uptime"
    world.clock.advance(1)
    assert world.run().phase is Phase.CONVERGED
    assert world.sink.phases == [(sha, Phase.PENDING), (sha, Phase.RECONCILING), (sha, Phase.CONVERGED)]
    record = world.journal.commit_record(sha)
    assert record is not None
    assert (record.changed, record.agents) == (2, 2)
    assert record.finished_at == world.clock.now()


def test_a_quiet_pass_does_nothing_and_tells_nobody(world: World) -> None:
    world.commit("one", "two")
    world.converge()
    told, applied, entries = len(world.sink.changes), world.live.calls["apply"], len(world.journal.entries())
    result = world.run()
    assert (result.executed, result.record.plan.actions if result.record else None, result.wait) == ([], (), None)
    assert (len(world.sink.changes), world.live.calls["apply"]) == (told, applied)
    assert len(world.journal.entries()) == entries


def test_a_commit_is_degraded_when_an_agent_had_its_time(world: World) -> None:
    world.live.fail_always("command not found", key=ONE, permanent=True)
    sha = world.repository.commit({"one": {"rollout": {"healthTimeout": "30s"}}, "two": {}})
    assert world.run().phase is Phase.RECONCILING
    world.clock.advance(29)
    assert world.run().phase is Phase.RECONCILING
    world.clock.advance(2)
    result = world.run()
    assert result.phase is Phase.DEGRADED
    record = world.journal.commit_record(sha)
    assert record is not None
    assert "acme/one is not Ready" in record.summary
    assert "command not found" in record.summary
    assert world.status("two").ready


def test_degraded_stays_while_the_agent_has_only_just_recovered(world: World) -> None:
    """How things are now is in the conditions; the gate waits for `rollout.recovery`."""
    world.live.fail_always("no room", key=ONE)
    sha = world.repository.commit({"one": {"rollout": {"healthTimeout": "30s"}}})
    world.run()
    world.clock.advance(31)
    world.run()
    world.live.heal()
    world.clock.advance(400)
    world.run()
    world.clock.advance(2)
    world.run()
    assert world.phase(sha) is Phase.DEGRADED
    assert world.status("one").ready


def test_a_readiness_probe_that_never_passes_degrades(world: World) -> None:
    probe = {"exec": {"command": ["false"]}, "period": "1s"}
    world.repository.commit({"one": {"probes": {"readiness": probe}, "rollout": {"healthTimeout": "10s"}}})
    world.run()
    world.clock.advance(11)
    result = world.run()
    assert result.phase is Phase.DEGRADED
    stalled = world.condition("one", ConditionType.STALLED)
    assert stalled is not None
    assert stalled.reason in ("HealthTimeout", "Backoff")


def test_a_failing_agent_stops_none_of_its_siblings(world: World) -> None:
    world.live.fail_always("broken", key=config_key(key("one")))
    world.commit("one", "two", "three")
    world.run()
    world.clock.advance(1)
    world.run()
    assert [world.status(name).ready for name in ("one", "two", "three")] == [False, True, True]


def test_failures_back_off_stall_and_are_tried_for_ever(world: World) -> None:
    world.live.fail_always("no room", key=ONE)
    world.commit("one")
    tries = []
    for _ in range(140):
        result = world.run()
        if result.executed and any(action.key == ONE for action, _ in result.executed):
            tries.append(world.clock.now())
        world.clock.advance(30)
    gaps = [after - before for before, after in pairwise(tries)]
    assert len(tries) >= 12, "it never gives up"
    assert gaps == sorted(gaps) or max(gaps[-5:]) <= 330
    assert 150 <= gaps[-1] <= 330
    stalled = world.condition("one", ConditionType.STALLED)
    assert stalled is not None
    assert "no room" in stalled.message
    assert (world.status("one").next_try_at or 0) > world.clock.now() - 40


def test_a_new_commit_gives_its_agents_a_fresh_start(world: World) -> None:
    world.live.fail_next(3, "no room", key=ONE)
    world.repository.commit({"one": {}, "two": {}})
    for _ in range(3):
        world.run()
        world.clock.advance(10)
    assert world.journal.state().reconcile.attempts[ONE].failures == 3
    world.repository.commit({"one": {"runtime": {"command": ["other"]}}, "two": {}})
    assert ("create", str(ONE)) in verbs(world.run().executed)
    assert ONE not in world.journal.state().reconcile.attempts


def test_a_crash_loop_backs_off_and_is_forgiven_after_a_quiet_time(world: World) -> None:
    world.commit("one")
    world.converge()
    for _ in range(3):
        world.live.remove(ONE)
        world.clock.advance(10)
        world.run("one", fetch=False)
    assert world.journal.state().reconcile.attempts[ONE].failures == 3
    assert world.condition("one", ConditionType.STALLED) is not None
    world.clock.advance(400)
    world.run()
    assert ONE not in world.journal.state().reconcile.attempts
    assert world.condition("one", ConditionType.STALLED) is None
    assert world.status("one").ready


def test_drift_that_waits_for_its_time_is_still_on_its_way(world: World) -> None:
    """Otherwise once would end, and say that all is well, with a repair owed."""
    good = world.repository.commit({"one": {"instructions": "Be kind.", "runtime": {"reload": "Hot"}}})
    world.converge()
    for _ in range(2):
        world.live.edit(config_key(key("one")), instructions="Be rude.")
        result = world.run()
    assert (result.phase, result.executed) == (Phase.CONVERGED, [])
    assert result.state.status.agents[key("one")].ready
    assert result.busy
    reconciling = world.condition("one", ConditionType.RECONCILING)
    assert reconciling is not None
    assert reconciling.reason == "FieldsDiffer"
    world.converge()
    assert world.running == world.wanted(good)


# -- who counts


def test_a_commit_on_top_of_a_failed_agent_says_who_and_since_which_commit(world: World) -> None:
    """Its own changes are in: its gate is open, its policy counts, nothing is reverted. The fleet is not well."""
    world.live.fail_always("command not found", key=ONE, permanent=True)
    policy = {"rollout": {"onFailure": "Revert"}, "massDelete": {"min": 7, "ratio": 0.5}}
    first = world.repository.commit({"one": {"rollout": {"healthTimeout": "30s"}}, "two": {}})
    assert world.converge().phase is Phase.DEGRADED
    commands = {"two": {"runtime": {"command": ["new"]}}, "one": {"rollout": {"healthTimeout": "30s"}}}
    second = world.repository.commit(commands, policy=policy)
    result = world.converge()
    record = world.journal.commit_record(second)
    assert record is not None
    assert (record.phase, record.cause, record.changed) == (Phase.DEGRADED, "Inherited", 1)
    assert record.summary == f"1 changed; inherited: acme/one CannotApply since {first[:10]}"
    assert [each.code for each in record.findings if each.severity == "warning"] == ["Inherited"]
    assert exit_code(result) == 5
    rollout = world.journal.state().rollout
    assert (rollout.converged, rollout.rollout and rollout.rollout.failed) == (second, "")
    assert rollout.converged_policy is not None
    assert rollout.converged_policy.mass_delete.min == 7, "its policy counts for the next commit"
    assert world.repository.head == second, "nothing is reverted for it"

    world.live.heal()
    world.clock.advance(400)
    assert world.run().phase is Phase.DEGRADED, "it has just been started"
    world.clock.advance(1)
    assert exit_code(world.run()) == 0
    record = world.journal.commit_record(second)
    assert record is not None
    assert (record.phase, record.cause, record.summary) == (Phase.CONVERGED, "", "1 changed")
    assert not [each for each in record.findings if each.code == "Inherited"]


def test_an_agent_on_its_way_back_is_waited_for(world: World) -> None:
    world.commit("one", "two")
    world.converge()
    world.live.remove(ONE)
    head = world.repository.commit({"one": {}, "two": {"runtime": {"command": ["new"]}}})
    world.converge()
    assert (world.phase(head), world.status("one").ready) == (Phase.CONVERGED, True)


@pytest.mark.parametrize("between", ["", "broken"])
def test_agents_of_a_superseded_commit_count_for_its_successor(world: World, between: str) -> None:
    """Otherwise a commit could be left out of every judgement by pushing another one quickly."""
    world.commit("one")
    world.converge()
    world.live.fail_always("broken", key=TWO)
    world.commit("one", "two")
    assert world.run().phase is Phase.RECONCILING
    if between:
        world.repository.commit(broken=between)
        assert world.run().phase is Phase.INVALID
    world.commit("one", "two", "three")
    world.run()
    world.clock.advance(1)
    assert world.run().phase is Phase.RECONCILING, "two is still not there"
    world.live.heal()
    assert world.converge().phase is Phase.CONVERGED


@pytest.mark.parametrize("between", ["", "broken"])
def test_agents_applied_by_a_superseded_commit_must_become_ready_too(world: World, between: str) -> None:
    world.commit("one")
    world.converge()
    world.repository.commit({"one": {}, "two": {"runtime": {"minUptime": "60s"}}})
    assert world.run().phase is Phase.RECONCILING
    if between:
        world.repository.commit(broken=between)
        world.run()
    world.repository.commit({"one": {}, "two": {"runtime": {"minUptime": "60s"}}, "three": {}})
    world.run()
    world.clock.advance(2)
    assert world.run().phase is Phase.RECONCILING, "three is Ready, two is not yet"
    world.clock.advance(60)
    assert world.run().phase is Phase.CONVERGED


def test_removed_agents_leave_the_status_when_they_are_gone(world: World) -> None:
    world.commit("one", "two")
    world.converge()
    world.live.fail_always("busy", key=TWO)
    sha = world.commit("one")
    assert world.run().phase is Phase.RECONCILING, "its runtime is still there"
    assert key("two") in world.journal.state().status.agents
    assert world.phase(sha) is Phase.RECONCILING
    world.live.heal()
    assert world.converge().phase is Phase.CONVERGED
    assert list(world.journal.state().status.agents) == [key("one")]
    assert world.running == world.wanted(sha)


def test_a_retained_agent_leaves_the_status_and_stays_alive(world: World) -> None:
    world.repository.commit({"one": {}, "two": {"deletionPolicy": "Retain"}})
    world.converge()
    world.commit("one")
    assert world.converge().phase is Phase.CONVERGED
    assert list(world.journal.state().status.agents) == [key("one")]
    assert TWO in world.live.live


def test_stopped_stays_stopped_and_is_ready(world: World) -> None:
    world.commit("one")
    world.converge()
    world.repository.commit({"one": {"lifecycle": "Stopped"}})
    assert world.converge().phase is Phase.CONVERGED
    assert ONE not in world.live.live
    for _ in range(3):
        world.clock.advance(400)
        result = world.run()
        assert result.executed == []
        assert result.wait is None, "nothing is to be done about it, so nobody is to be woken"
    assert world.status("one").ready
    world.live.plant(ONE, {"command": ["by hand"]})
    world.live.mark(ONE, world.live.live[config_key(key("one"))].owner)
    world.run()
    assert ONE not in world.live.live


def test_a_paused_agent_is_left_alone_and_holds_up_no_commit(world: World) -> None:
    world.commit("one", "two")
    world.converge()
    world.repository.commit({"one": {"reconcile": {"paused": True}, "runtime": {"command": ["new"]}}, "two": {}})
    before = world.live.live[ONE]
    assert world.converge().phase is Phase.CONVERGED
    assert world.live.live[ONE] == before


def test_drift_of_a_paused_agent_is_reported_and_not_repaired(world: World) -> None:
    world.repository.commit({"one": {"reconcile": {"paused": True}}})
    world.repository.commit({"one": {}})
    world.converge()
    world.repository.commit({"one": {"reconcile": {"paused": True}}})
    assert world.converge().phase is Phase.CONVERGED
    world.live.remove(ONE)
    world.clock.advance(60)
    result = world.run()
    assert (result.executed, result.wait) == ([], None)
    assert ONE not in world.live.live
    assert world.condition("one", ConditionType.DRIFTED) is not None
    assert not world.status("one").ready


def test_dependencies_are_ready_first_and_waiting_costs_no_time_of_one_s_own(world: World) -> None:
    slow = {"runtime": {"minUptime": "60s"}}
    after = {"rollout": {"dependsOn": ["acme/one"], "healthTimeout": "20s"}}
    world.repository.commit({"one": slow, "two": after})
    world.run()
    for _ in range(5):
        world.clock.advance(11)
        assert world.run().phase is Phase.RECONCILING
        assert TWO not in world.live.live
    world.clock.advance(6)
    world.run()
    world.clock.advance(0.25)
    world.run()
    assert TWO in world.live.live
    world.clock.advance(1)
    assert world.run().phase is Phase.CONVERGED


def test_a_failed_commit_names_the_agent_that_failed_before_one_that_waits_for_it(world: World) -> None:
    slow = {"runtime": {"minUptime": "60s"}, "rollout": {"healthTimeout": "20s"}}
    sha = world.repository.commit({"app": {"rollout": {"dependsOn": ["acme/db"]}}, "db": slow})
    world.converge()
    assert world.phase(sha) is Phase.DEGRADED
    assert world.record(sha).summary.startswith("acme/db is not Ready: ")


# -- blocked by a guard


def test_a_blocked_commit_changes_nothing_and_the_last_good_one_is_repaired(world: World) -> None:
    fleet = [f"agent-{number}" for number in range(8)]
    good = world.commit(*fleet)
    world.converge()
    blocked = world.commit(fleet[0])
    gone = runtime_key(key(fleet[5]))
    world.live.remove(gone)
    world.clock.advance(60)
    result = world.run()
    assert (result.phase, result.state.rollout.enforced) == (Phase.BLOCKED, good)
    assert world.phase(blocked) is Phase.BLOCKED
    assert world.running == world.wanted(good)
    assert any("would be stopped or deleted" in finding.summary for finding in result.findings)
    world.boot()
    assert world.run().phase is Phase.BLOCKED
    # A smaller commit on top of it is judged on its own.
    smaller = world.commit(*fleet[1:])
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(smaller)
    assert world.phase(blocked) is Phase.SUPERSEDED


def test_an_empty_commit_deletes_nothing(world: World) -> None:
    good = world.commit("one", "two")
    world.converge()
    world.repository.commit({})
    assert world.run().phase is Phase.BLOCKED
    assert world.running == world.wanted(good)


# -- scoped passes


def test_an_event_repairs_its_agent_and_looks_at_no_other(world: World) -> None:
    good = world.commit("one", "two", "three")
    world.converge()
    world.run()
    world.live.lose([ONE, TWO])
    world.clock.advance(60)
    result = world.run("one", fetch=False)
    assert verbs(result.executed) == [("create", str(ONE))]
    assert TWO not in world.live.live
    world.run()
    assert world.running == world.wanted(good)


def test_a_scoped_pass_with_a_new_commit_looks_at_what_it_moves(world: World) -> None:
    world.commit("one", "two", "three")
    world.converge()
    world.repository.commit({"one": {}, "two": {"runtime": {"command": ["new"]}}})
    result = world.run("one")
    assert {(verb, resource) for verb, resource in verbs(result.executed) if "runtime" in resource} == {
        ("restart", str(TWO)),
    }
    world.converge()
    assert runtime_key(key("three")) not in world.live.live


def test_what_is_pre_empted_goes_on_with_the_next_pass(world: World) -> None:
    sha = world.commit("one", "two")
    asked = iter([False])
    world.interrupted = lambda: next(asked, True)
    result = world.run()
    assert {action.key.kind for action, _ in result.executed} == {"config"}
    assert result.phase is Phase.RECONCILING
    assert result.wait is not None
    world.interrupted = lambda: False
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(sha)
    assert set(world.live.starts.values()) == {1}
