"""What is said of agents that wait, rest or are gone, and that everybody who asks is told the same."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.fleet import Fleet, Json, until

ALONE = "No gitops-agent is running, so nothing is noticed or done until one is: gitops-agent run (or once)."


def findings(answer: Json) -> list[Any]:
    return [tuple(finding.values()) for finding in answer["findings"]]


def turned_down(fleet: Fleet) -> Mapping[str, str | None]:
    return {"a.yaml": fleet.agent("a", lifecylce="Running")}


def blocked(fleet: Fleet) -> Mapping[str, str | None]:
    return {**dict.fromkeys([f"{name}.yaml" for name in "bcdef"]), "gitops-agent.yaml": fleet.policy()}


@pytest.mark.parametrize(("change", "code", "phase"), [(turned_down, 3, "Invalid"), (blocked, 4, "Blocked")])
def test_status_and_explain_keep_the_way_out_that_once_gave(
    fleet: Fleet, change: Any, code: int, phase: str
) -> None:
    fleet.commit(fleet.agents(*"abcdef", lifecycle="Running"))
    fleet.once()
    good = fleet.head()[:10]
    fleet.commit(change(fleet))
    told = fleet.once(code=code)
    assert told["phase"] == phase
    assert all(finding["detail"] for finding in told["findings"])
    assert findings(fleet.ask("status")) == findings(told)
    (first, *_) = told["findings"]
    explained = fleet.call("explain", "a").out.partition("In the way\n")[2]
    assert f"is {phase}: nothing it asks for is done, and {good} stays in force." in explained
    assert first["summary"] in explained
    assert first["detail"].split("\n")[0] in explained
    assert f"{phase}, enforcing {good}" in fleet.call("status").out


def test_a_source_that_is_silent_is_told_with_its_hint(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    fleet.bare.rename(fleet.bare.with_suffix(".away"))
    told = fleet.once(code=6)
    assert findings(fleet.ask("status")) == findings(told)
    assert told["findings"][0]["detail"] in fleet.call("explain", "a").out.partition("In the way\n")[2]


def test_what_holds_an_agent_is_told_where_people_look(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("seen", "held", "free", "free-2", "parked"))
    fleet.once()
    hands_off = {"mode": "Observe"}, {"paused": True, "reason": "looking into it"}
    rest = json.loads(fleet.agent("parked", lifecycle="Stopped"))
    fleet.commit(
        fleet.agents("seen", reconcile=hands_off[0])
        | fleet.agents("held", reconcile=hands_off[1])
        | {"parked.yaml": json.dumps(rest)}
    )
    fleet.once()
    for name in ("seen", "held"):
        fleet.kill(name)
    fleet.call("once", "--timeout", "2s")
    status = fleet.call("status").out
    for name, code, way_out in (("seen", "ObserveMode", "mode: Enforce"), ("held", "Paused", "paused: false")):
        row = next(line for line in status.split("\n") if line.startswith(fleet.key(name) + " "))
        assert code in row
        in_the_way = fleet.call("explain", name).out.partition("In the way\n")[2].partition("\nNext")[0]
        assert code in in_the_way
        assert way_out in in_the_way
        assert "ProcessGone" not in in_the_way, "that it is down is said under Live"
    assert f"Next\n  It stays down while it is paused.\n  {ALONE}" in fleet.call("explain", "held").out
    observed = "It stays down because its document asks to observe it only."
    assert f"Next\n  {observed}\n  {ALONE}" in fleet.call("explain", "seen").out
    assert f"Next\n  {ALONE}" in fleet.call("explain", "free").out, "nothing is repaired while none runs"
    assert "3 of 5 ready; 1 stopped, 1 paused, 1 only observed" in status
    assert "In the way\n  Nothing." in fleet.call("explain", "free").out
    conditions = {name: fleet.condition(fleet.status(), name) for name in ("free", "parked")}
    moments = [condition["lastTransitionTime"] for condition in conditions.values() if condition]
    assert moments[0] <= moments[1], "stopped since it was stopped, not since it was first Ready"


def test_an_agent_that_keeps_ending_is_explained_by_its_own_words(fleet: Fleet) -> None:
    crash = fleet.agent("crash", "sh", "-c", "echo no such model; exit 3", rollout={"healthTimeout": "2s"})
    fleet.commit({"crash.yaml": crash})
    fleet.once(code=5)
    told = fleet.call("explain", "crash").out
    assert f"gitops-agent logs {fleet.key('crash')}):\n    | no such model" in told
    assert "exited with code 3" in told
    assert f"Next\n  {ALONE}" in told, "it is not tried again while none runs"
    with fleet.running():
        until(lambda: "Next\n  It is tried again " in fleet.call("explain", "crash").out, "tried again")
    assert fleet.ask("explain", "crash")["lastOutput"][-1] == "no such model"


def test_an_orphan_is_explained_by_the_name_that_its_finding_prints(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("stays", "lost"))
    fleet.once()
    fleet.commit({"lost.yaml": None})
    shutil.rmtree(fleet.state)
    answer = fleet.once()
    (orphan,) = (finding for finding in answer["findings"] if finding["code"] == "Orphan")
    told = fleet.call("explain", orphan["address"])
    assert (told.code, told.err) == (0, "")
    assert f"No document declares {fleet.key('lost')}, and something of it is there:" in told.out
    assert str(fleet.pid("lost")) in told.out
    assert "and something of it is there" in fleet.call("status", fleet.key("lost")).out
    for text in (told.out, orphan["detail"]):
        assert "If this instance also runs with another state directory, it may belong to that one." in text


def test_what_comes_next_is_said_of_agents_that_rest_and_of_those_on_their_way(fleet: Fleet) -> None:
    fleet.commit(
        fleet.agents("crm", runtime={"minUptime": "5m"}, rollout={"healthTimeout": "10m"})
        | fleet.agents("bot", rollout={"dependsOn": [fleet.key("crm")]})
        | fleet.agents("gone", lifecycle="Retired")
        | fleet.agents("rests", lifecycle="Stopped")
    )
    with fleet.running():
        until(lambda: any(each["code"] == "WaitingForDependency" for each in fleet.status()["findings"]), "a pass")
        for name, coming in (
            ("crm", "It is on its way, and is looked at until it is Ready."),
            ("bot", "It goes on as soon as what it depends on is Ready."),
            ("gone", "Nothing is due; it stays retired."),
            ("rests", "Nothing is due; it stays stopped, and is stopped again when it is started elsewhere."),
        ):
            assert fleet.call("explain", name).out.endswith(f"Next\n  {coming}\n")
        assert "It was never started: what that commit asks of it waits." in fleet.call("explain", "bot").out


def test_what_comes_next_is_said_of_agents_that_a_rollout_has_not_reached(fleet: Fleet) -> None:
    names = ("a", "b", "c")
    first = fleet.commit(fleet.agents(*names) | {"p.yaml": fleet.policy(rollout={"bake": "5m"})})

    def behind() -> list[str]:
        """Agents that keep the first commit, once another has been released to one of them."""
        status = fleet.status()
        kept = [each["agent"] for each in status["agents"] if each["observedCommit"] == first]
        return kept if status["rollout"] and len(kept) == 2 else []

    with fleet.running():
        fleet.await_phase(first, "Converged")
        slow = fleet.commit(fleet.agents(*names, runtime={"command": ["sleep", "601"]}))
        waiting = until(behind, "the canary alone follows")[0]
        told = fleet.call("explain", waiting).out
        assert told.endswith(
            f"Next\n  It follows {slow[:10]} in a later wave, once those before are Ready and stay so.\n"
        )
        bad = fleet.commit(fleet.agents(*names, runtime={"command": ["sh", "-c", "exit 3"]}))
        fleet.await_phase(bad, "Degraded")
        told = fleet.call("explain", waiting).out
        assert (
            f"The newest commit {bad[:10]} is Degraded and is not enforced here.\n  That commit failed its gate: "
            in told
        )
        assert told.endswith(
            "Next\n  It keeps what it runs, and is repaired by that, until the rollout goes on.\n"
        )
        for text in (told, fleet.call("status").out, fleet.call("workflows").out):
            assert ".;" not in text


def test_an_agent_that_was_deleted_is_remembered(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("stays") | {"goes.yaml": fleet.agent("goes", "sh", "-c", "echo hello; sleep 600")})
    fleet.once()
    until(lambda: "hello" in fleet.call("logs", "goes").out, "its first words")
    fleet.commit({"goes.yaml": None})
    fleet.once()
    said = f"{fleet.key('goes')} was deleted by commit {fleet.head()[:10]} at 20"
    for verb in ("explain", "status"):
        answer = fleet.call(verb, "goes")
        assert (answer.code, answer.err) == (0, "")
        assert said in answer.out
    logs = fleet.call("logs", "goes")
    assert (logs.code, logs.out) == (0, "hello\n")
    assert said in logs.err
    assert fleet.ask("explain", fleet.key("goes"))["status"] is None
    assert fleet.call("explain", "never-there").code == 2


def test_run_says_that_agents_outlive_it(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    with fleet.running() as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        daemon.send_signal(signal.SIGINT)
        assert daemon.wait(20) == 0
    assert "agents keep running" in fleet.daemon_log()
    assert fleet.pids("a")


def test_once_on_a_terminal_leaves_its_result_and_nothing_else(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    shown = fleet.on_terminal("once", TERM="xterm", COLUMNS="150", NO_COLOR="1")
    *_, last = shown.split("\x1b[2K")
    assert last.count(fleet.key("a")) == 1, "the table once, after the live view has gone"
    assert "Converged; 1 of 1 ready" in last
    assert "changed" not in last
