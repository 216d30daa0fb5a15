"""What is reported after the verdict: the newest commit says how the fleet stands now, and what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops_agent.cli.exit_codes import exit_code
from gitops_agent.cli.progress import _level, _summary
from gitops_agent.daemon.liveness import Liveness
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.quantity import clock, iso
from gitops_agent.model.status import MAX_EVENTS, CommitRecord, ConditionType, Phase
from gitops_agent.report.json_shapes import status_shape
from gitops_agent.report.sinks.git_notes import parse_note, render_note
from gitops_agent.report.status_text import status_text
from gitops_agent.testing.memory_driver import config_key, runtime_key

from .repository import key
from .test_stops import TakesTime
from .world import World

ONE = runtime_key(key("one"))


def record(world: World, sha: str) -> CommitRecord:
    found = world.journal.commit_record(sha)
    assert found is not None
    return found


def note(world: World, sha: str) -> tuple[str, dict[str, Any]]:
    """The note as it was delivered last: its first line, and the rest."""
    change = [each for each in world.sink.changes if each.record.sha == sha][-1]
    text = render_note("prod-eu", change)
    body = parse_note(text)
    assert body is not None
    return text.partition("\n")[0], body


def shown(world: World) -> str:
    """What ``status`` prints first."""
    state = world.journal.state()
    return status_text(status_shape("prod-eu", state, state.status.agents.values(), ())).partition("\n")[0]


def kinds(world: World, sha: str) -> list[tuple[str, str]]:
    return [(each.kind.value, each.subject) for each in record(world, sha).since_verdict]


def control(world: World, verb: ControlVerb, reason: str, scope: str = "*") -> None:
    world.journal.control(Control(verb, scope, "ada@host", world.clock.now(), reason))


def test_an_agent_that_dies_and_stays_down_is_in_the_note_until_it_is_back(world: World) -> None:
    sha = world.commit("one", "two", "three")
    world.converge()
    at = record(world, sha).finished_at or 0.0
    world.clock.advance(600)
    world.live.fail_always("no such file", key=ONE, permanent=True)
    world.live.remove(ONE)
    result = world.run()
    line, body = note(world, sha)
    down = f"Degraded since {clock(world.clock.now())} (Converged {clock(at)}), 2 of 3 ready: acme/one CannotApply"
    assert line == f"prod-eu: {down}"
    assert body["phase"] == "Converged", "the verdict on the commit stays"
    now = {"phase": "Degraded", "since": iso(world.clock.now()), "ready": 2, "total": 3}
    assert body["now"] == now | {"cause": "acme/one CannotApply"}
    assert [(each["kind"], each["subject"]) for each in body["sinceVerdict"]] == [("Died", "acme/one")]
    assert [each["ready"] for each in body["agents"]] == [False, True, True], "the agents are those of now"
    assert exit_code(result) == 5
    assert (_level(result), _summary(result)) == ("warning", "acme/one CannotApply")
    assert "Degraded since" in shown(world)
    assert "(the commit was Converged): acme/one CannotApply; 2 of 3 ready" in shown(world)
    liveness = Liveness(world.clock, 1.0)
    liveness.pass_ended(result)
    assert f"commit: Degraded since {iso(world.clock.now())} (the commit was Converged)" in liveness.ready()[1]

    told = len(world.sink.changes)
    for _ in range(5):
        world.clock.advance(30)
        world.run()
    assert len(world.sink.changes) == told, "nothing new, and nothing in it that moves by itself"

    world.live.heal()
    world.clock.advance(400)
    world.converge()
    world.clock.advance(400)
    result = world.run()
    line, body = note(world, sha)
    assert line.startswith("prod-eu: Converged since ")
    assert line.endswith(", 3 agents, 3 changed, 1.0 s")
    assert kinds(world, sha)[0] == ("Recovered", "acme/one")
    assert (exit_code(result), _level(result)) == (0, "info")


def test_what_is_repaired_is_listed_and_does_not_change_how_the_fleet_stands(world: World) -> None:
    sha = world.commit("one", "two")
    world.converge()
    before = record(world, sha).now
    world.live.remove(ONE)
    world.converge()
    assert record(world, sha).now == before
    assert kinds(world, sha) == [("Repaired", "acme/one")]
    assert note(world, sha)[0] == "prod-eu: Converged, 2 agents, 2 changed, 1.0 s"


def test_a_count_in_the_note_is_of_its_moment_and_a_restart_alone_does_not_rewrite_it(world: World) -> None:
    slow = {"runtime": {"minUptime": "20s"}}
    sha = world.repository.commit({"one": slow, "two": {}, "three": {}})
    world.run()
    world.clock.advance(21)
    world.converge()
    world.live.remove(ONE)
    world.run()
    line, body = note(world, sha)
    assert line.endswith(", 2 of 3 ready, 1 on its way"), "it was written, for the repair, while one was not Ready"
    assert (body["now"]["ready"], body["now"]["onTheirWay"]) == (2, 1)
    assert "Converged; 2 of 3 ready, 1 on its way" in shown(world)

    world.clock.advance(21)
    world.run()
    line, body = note(world, sha)
    assert "ready" not in line
    assert (body["now"]["ready"], "onTheirWay" in body["now"]) == (3, False)

    # One that fails again and again: said when it begins, and not with each of its restarts.
    counts = []
    for _ in range(12):
        world.live.remove(ONE)
        world.run("one", fetch=False)
        world.clock.advance(21)
        world.run("one", fetch=False)
        counts.append((world.journal.state().status.agents.ready, len(world.sink.changes)))
        world.clock.advance(279)
    assert {ready for ready, _ in counts[6:]} >= {3}, "it is Ready for a moment, again and again"
    assert len({written for _, written in counts[6:]}) == 1, counts


def test_of_a_long_time_the_newest_events_are_kept(world: World) -> None:
    sha = world.commit("one", "two")
    world.converge()
    for number in range(MAX_EVENTS):
        world.live.remove(ONE)
        world.converge()
        world.clock.advance(900)
        world.run()
        assert len(kinds(world, sha)) == number + 1
    world.live.remove(runtime_key(key("two")))
    world.converge()
    assert len(kinds(world, sha)) == MAX_EVENTS
    assert kinds(world, sha)[0] == ("Repaired", "acme/two"), "newest first"


def test_many_that_are_repaired_at_once_are_one_event(world: World) -> None:
    names = [f"bot-{number}" for number in range(20)]
    sha = world.commit(*names)
    world.converge()
    for name in names[:4]:
        world.live.edit(config_key(key(name)), instructions="Be rude.")
    world.converge()
    [event] = record(world, sha).since_verdict
    assert (event.kind.value, event.subject) == ("Repaired", "*")
    assert event.text == "4 agents (acme/bot-0, acme/bot-1, acme/bot-2 and 1 more): FieldsDiffer"


def test_a_crash_loop_is_told_once_and_not_with_every_restart(world: World) -> None:
    sha = world.commit("one", "two")
    world.converge()
    for _ in range(12):
        world.live.remove(ONE)
        world.run("one", fetch=False)
        world.clock.advance(300)
    told = kinds(world, sha)
    assert told[0][0] in ("Died", "Held")
    assert len(told) <= 4, told
    now = record(world, sha).now
    assert now is not None
    assert (now.phase, now.ready) == (Phase.DEGRADED, 1)


def test_a_freeze_is_in_the_note_and_so_is_its_end(world: World) -> None:
    sha = world.commit("one", "two")
    world.converge()
    control(world, ControlVerb.FREEZE, "audit")
    result = world.run()
    line, _ = note(world, sha)
    assert line == "prod-eu: Converged, 2 agents, 2 changed, 1.0 s, frozen (*): audit"
    assert (exit_code(result), _level(result)) == (0, "warning"), "no work waits, but people should know"
    assert "frozen (*): audit" in shown(world)

    world.live.remove(ONE)
    world.clock.advance(60)
    result = world.run()
    line, body = note(world, sha)
    assert line.startswith(f"prod-eu: Blocked since {clock(world.clock.now())} (Converged ")
    assert line.endswith("1 of 2 ready: acme/one Frozen; frozen (*): audit")
    assert body["now"]["frozen"] == ["*"]
    assert exit_code(result) == 4

    control(world, ControlVerb.UNFREEZE, "done")
    world.converge()
    assert {kind for kind, _ in kinds(world, sha)[:-2]} >= {"Thawed", "Recovered"}
    assert kinds(world, sha)[-2:] == [("Held", "acme/one"), ("Frozen", "*")]
    now = record(world, sha).now
    assert now is not None
    assert (now.phase, now.cause, now.frozen) == (Phase.CONVERGED, "", ())


def test_a_freeze_while_agents_are_still_starting_does_not_speak_of_work(world: World) -> None:
    never = {"probes": {"readiness": {"exec": {"command": ["false"]}, "period": "1s"}}}
    sha = world.repository.commit({"one": never, "two": {}})
    world.run()
    control(world, ControlVerb.FREEZE, "audit")
    world.clock.advance(5)
    assert exit_code(world.run()) == 4
    assert (world.phase(sha), record(world, sha).summary) == (Phase.BLOCKED, "frozen before 1 agent was Ready")

    world.live.remove(ONE)
    world.run()
    assert record(world, sha).summary == "frozen with work waiting"


def test_a_commit_that_is_not_valid_is_logged_as_an_error_and_one_that_a_guard_stops_as_a_warning(
    world: World,
) -> None:
    world.commit(*(f"bot-{number}" for number in range(10)))
    assert _level(world.converge()) == "info"
    world.commit("bot-0")
    blocked = world.converge()
    assert (blocked.phase, _level(blocked)) == (Phase.BLOCKED, "warning")
    world.repository.commit(broken="not a fleet")
    invalid = world.converge()
    assert (invalid.phase, _level(invalid)) == (Phase.INVALID, "error")


def test_mass_drift_stops_work_and_the_note_says_so(world: World) -> None:
    names = [f"bot-{number}" for number in range(8)]
    sha = world.commit(*names)
    world.converge()
    for name in names[:6]:
        world.live.edit(config_key(key(name)), instructions="Be rude.")
    result = world.run()
    line, _ = note(world, sha)
    assert line.startswith("prod-eu: Blocked since ")
    assert "frozen (*)" in line
    assert exit_code(result) == 4
    assert ("Frozen", "*") in kinds(world, sha)


def test_drift_that_keeps_coming_back_is_held_and_the_note_says_so_until_it_is_repaired(tmp_path: Path) -> None:
    world = World(tmp_path / "state", TakesTime)
    sha = world.commit("one", "two", "three")
    world.converge()
    for _ in range(5):
        world.live.edit(config_key(key("one")), instructions="Be rude.")
        world.run()
        world.clock.advance(90)
        world.run()  # each repair has lasted long enough to be no failure
    world.live.edit(config_key(key("one")), instructions="Be rude.")
    result = world.run()
    line, body = note(world, sha)
    assert line.startswith(f"prod-eu: Degraded since {clock(world.clock.now())} (Converged ")
    assert line.endswith("3 of 3 ready: acme/one RepeatedDrift")
    assert (body["phase"], body["sinceVerdict"][0]["kind"]) == ("Converged", "Held")
    assert (exit_code(result), _level(result)) == (5, "warning")

    world.clock.advance(600)  # the window has moved on
    assert exit_code(world.converge()) == 0
    assert ("Recovered", "acme/one") in kinds(world, sha)[:2]
    assert note(world, sha)[0].startswith("prod-eu: Converged since ")
    world.shut()


def test_an_older_commit_keeps_its_verdict_and_the_newest_one_says_what_holds(world: World) -> None:
    first = world.commit("one", "two")
    world.converge()
    second = world.commit("one", "two", "three")
    world.converge()
    world.live.fail_always("no such file", key=ONE, permanent=True)
    world.live.remove(ONE)
    world.run()
    assert record(world, first).now is None
    assert note(world, first)[0] == "prod-eu: Converged, 2 agents, 2 changed, 1.0 s"
    assert note(world, second)[0].startswith("prod-eu: Degraded since ")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"reconcile": {"paused": True, "reason": "audit", "until": "2030-01-31T18:00:00Z"}},
            "paused until 2030-01-31T18:00:00Z: audit",
        ),
        ({"reconcile": {"mode": "Observe"}}, "only observed (mode: Observe)"),
    ],
    ids=["paused", "observed"],
)
def test_a_commit_that_changes_only_an_agent_that_is_not_acted_on_says_so(
    world: World, settings: dict[str, Any], words: str
) -> None:
    world.commit("one", "two")
    world.converge()
    sha = world.repository.commit({"one": {"runtime": {"command": ["new"]}} | settings, "two": {}})
    world.converge()
    assert (record(world, sha).phase, record(world, sha).changed) == (Phase.CONVERGED, 0)
    line, body = note(world, sha)
    assert line.endswith(f"2 agents, 0 changed, 0.0 s, nothing done: acme/one is {words}")
    mine = next(each for each in body["agents"] if each["agent"] == "acme/one")
    assert mine.keys() >= {"pause"} or mine["mode"] == "Observe"
    assert "1 paused" in shown(world) or "1 only observed" in shown(world)
    state = world.journal.state()
    row = status_text(status_shape("x", state, [state.status.agents[key("one")]], ()))
    assert words in row


def test_what_was_asked_and_not_done_is_not_counted_as_changed(world: World) -> None:
    """Blocked: nothing. Held at the canary: one."""
    names = [f"bot-{number}" for number in range(10)]
    world.commit(*names)
    world.converge()
    blocked = world.commit(names[0])
    world.converge()
    assert (world.phase(blocked), record(world, blocked).changed) == (Phase.BLOCKED, 0)
    probe = {"readiness": {"exec": {"command": ["false"]}, "period": "1s"}}
    broken = {"runtime": {"command": ["new"]}, "probes": probe, "rollout": {"healthTimeout": "5s"}}
    held = world.repository.commit(dict.fromkeys(names, broken))
    world.converge()
    assert (world.phase(held), record(world, held).changed) == (Phase.DEGRADED, 1)
    assert ", 10 agents, 1 changed, " in note(world, held)[0]


def test_stops_that_mass_delete_holds_when_pauses_end_are_blocked_and_not_converged(world: World) -> None:
    names = [f"bot-{number}" for number in range(10)]
    world.commit(*names)
    world.converge()
    end = world.clock.now() + 3600.0
    paused = {"lifecycle": "Stopped", "reconcile": {"paused": True, "reason": "move", "until": iso(end)}}
    sha = world.repository.commit(dict.fromkeys(names[:9], paused) | {names[9]: {}})
    assert exit_code(world.converge()) == 0
    world.clock.advance(3700.0)
    result = world.converge()
    assert exit_code(result) == 4
    now = record(world, sha).now
    assert now is not None
    assert (now.phase, "MassDelete" in now.cause) == (Phase.BLOCKED, True)
    assert "Blocked since" in shown(world)
    assert len({resource.agent for resource in world.running}) == 10, "nothing was stopped"


def test_actions_in_the_note_say_who_why_how_sure_and_what_moved(world: World) -> None:
    first = {"instructions": "Be kind.", "runtime": {"reload": "Hot"}}
    world.repository.commit({"one": first})
    world.converge()
    sha = world.repository.commit({"one": first | {"instructions": "Be brief."}})
    world.converge()
    _, body = note(world, sha)
    moved = next(each for each in body["actions"] if each["resource"] == "acme/one:config/bundle")
    assert (moved["actor"], moved["confidence"]) == ("test", "high")
    assert moved["before"]["instructions"] != moved["after"]["instructions"]


def test_since_and_state_of_agents_that_ended(world: World) -> None:
    policy = {"provisioning": {"deadline": "1m", "onTimeout": "Compensate"}}
    world.commit("one", "two", policy=policy)
    world.converge()
    world.clock.advance(5000)
    world.repository.commit({"one": {"lifecycle": "Retired"}, "two": {}}, policy=policy)
    world.converge()
    ready = world.condition("one", ConditionType.READY)
    assert ready is not None
    assert world.clock.now() - ready.last_transition_at < 60, "since it was retired, not since it first ran"

    never = {"probes": {"readiness": {"exec": {"command": ["false"]}, "period": "1s"}}}
    world.repository.commit({"two": {}, "new": never}, policy=policy)
    for _ in range(10):
        world.run()
        world.clock.advance(10)
    state = world.journal.state()
    status = state.status.agents[key("new")]
    assert status.find(ConditionType.STALLED) is not None
    text = status_text(status_shape("x", state, [status], ()))
    assert "Absent" in text
    assert "Running" not in text.partition("\n")[2]


def test_many_that_are_gone_at_once_are_in_the_note_until_the_last_is_back(world: World) -> None:
    slow = {"runtime": {"minUptime": "60s"}, "rollout": {"healthTimeout": "5m"}}
    names = [f"bot-{number:02}" for number in range(12)]
    sha = world.repository.commit(dict.fromkeys(names, slow))
    world.run()
    world.clock.advance(61)
    world.converge()
    for name in names[:8]:
        world.live.remove(runtime_key(key(name)))
    seen = set()
    for _ in range(60):
        result = world.run()
        line, body = note(world, sha)
        ready = world.journal.state().status.agents.ready
        assert body["now"]["phase"] == ("Converged" if ready == 12 else "Degraded"), ready
        assert ("Degraded since" in line) is (ready < 12)
        assert ("MassAbsence" in line) is (ready < 12)
        assert ("Degraded since" in shown(world)) is (ready < 12)
        seen.add(ready)
        if ready == 12:
            break
        world.clock.advance(result.wait or 1.0)
    assert ready == 12
    assert min(seen) == 4
    assert world.converge().phase is Phase.CONVERGED
    died, recovered = (
        [text for kind, text in kinds(world, sha) if kind == word] for word in ("Died", "Recovered")
    )
    assert died == ["*"], "once, for all of them"
    assert recovered
