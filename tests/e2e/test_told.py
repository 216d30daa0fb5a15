"""What is said of agents that wait, rest or are gone, and that everybody who asks is told the same."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.fleet import Fleet, Json, until


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
    assert "Next\n  It is tried again " in told
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
