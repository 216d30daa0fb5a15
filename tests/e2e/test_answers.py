"""One converged fleet, and what every verb answers about it: these tests only read."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from tests.support.fleet import GONE, Fleet, Json, all_pids

ESCAPES = "\x1b]0;owned\x07\x1b[31m"
TELLER = "import os, time; print('listening ' + os.environ['LEVEL'], '\\x1b[2Jgone', flush=True); time.sleep(600)"


@dataclasses.dataclass
class Story:
    """A fleet that was brought up, lost a process and was healed, with what was said on the way."""

    fleet: Fleet
    first: Json
    drifted: Json
    healed: Json
    lost: int


@pytest.fixture(scope="module")
def story(settled: Fleet) -> Story:
    fleet = settled
    env = [{"name": "LEVEL", "value": "info"}]
    web = fleet.agent("web", "python3", "-c", TELLER, runtime={"env": env, "replicas": 2}, instructions="Be kind.")
    worker = fleet.agent(
        "worker", rollout={"dependsOn": [fleet.key("web")]}, metadata={"labels": {"tier": "gold"}}
    )
    parked = fleet.agent("parked", lifecycle="Stopped")
    fleet.commit(
        {"agents/web.yaml": f"# the face of it all\n{web}", "agents/rest.yaml": f"{worker}---\n{parked}"},
        f"A fleet of three {ESCAPES}",
    )
    first = fleet.once()
    lost = fleet.kill("worker")
    drifted = fleet.ask("plan")
    assert not fleet.pids("worker"), "plan changes nothing"
    return Story(fleet, first, drifted, fleet.once(), lost)


def test_once_answers_with_the_whole_state_of_the_fleet(story: Story) -> None:
    answer = story.first
    head = story.fleet.head()
    assert (answer["instance"], answer["phase"]) == (story.fleet.instance, "Converged")
    assert answer["commit"] == answer["enforced"] == head
    assert [row["agent"] for row in answer["agents"]] == [story.fleet.key(n) for n in ("parked", "web", "worker")]
    assert all(row["ready"] and row["observedCommit"] == head for row in answer["agents"])


def test_the_pids_in_the_answer_are_those_of_the_kernel(story: Story) -> None:
    runtime = story.fleet.row(story.healed, "web")["resources"][-1]
    assert sorted(replica["pid"] for replica in runtime["live"]["replicas"]) == story.fleet.pids("web")
    assert (runtime["driver"], runtime["state"], runtime["health"]) == ("process", "Running", "Healthy")


def test_stopped_is_desired_not_degraded(story: Story) -> None:
    row = story.fleet.row(story.healed, "parked")
    assert (row["ready"], row["lifecycle"], row["conditions"][0]["reason"]) == (True, "Stopped", "Stopped")
    assert story.fleet.pids("parked") == []


def test_plan_shows_drift_with_reason_confidence_and_patch(story: Story) -> None:
    plan = story.drifted
    (action,) = plan["actions"]
    assert action["resource"] == f"{story.fleet.key('worker')}:runtime/process"
    assert (action["verb"], action["class"]) == ("create", "MissingExternal")
    assert action["reason"] in GONE
    assert (action["confidence"], action["decision"]) == ("high", "repair")
    assert plan["summary"]["create"] == 1
    assert plan["commit"] == story.fleet.head()
    assert action["patch"], "the difference from nothing to what is desired"


def test_once_heals_what_was_killed_and_nothing_else(story: Story) -> None:
    before = {row["agent"]: _pids(row) for row in story.first["agents"]}
    after = {row["agent"]: _pids(row) for row in story.healed["agents"]}
    worker = story.fleet.key("worker")
    assert before[worker] == [story.lost] != after[worker]
    assert {key: pids for key, pids in before.items() if key != worker} == {
        key: pids for key, pids in after.items() if key != worker
    }


def _pids(row: Json) -> list[int]:
    return [replica["pid"] for resource in row["resources"] for replica in resource["live"].get("replicas", [])]


def test_plan_of_a_converged_fleet_is_empty(story: Story) -> None:
    plan = story.fleet.ask("plan")
    assert (plan["actions"], plan["findings"], plan["blocked"]) == ([], [], False)
    text = story.fleet.call("plan")
    assert (text.code, "nothing to do" in text.out.lower()) == (0, True)


def test_status_reads_the_journal_and_says_how_old_it_is(story: Story) -> None:
    fleet = story.fleet
    answer = fleet.ask("status")
    age, running = answer.pop("journalAgeSeconds"), answer.pop("running")
    assert (age > 0, running) == (True, False)
    assert answer == {key: value for key, value in story.healed.items() if key in answer}
    text = fleet.call("status").out
    assert re.search(r"3 of 3 ready; 1 stopped .*as of .* ago", text)
    assert re.search(rf"{fleet.key('parked')}\s+-\s+Stopped\s+-\s+Stopped", text)


def test_status_of_one_agent_by_key_or_by_name(story: Story) -> None:
    for name in ("web", story.fleet.key("web")):
        answer = story.fleet.ask("status", name)
        assert [row["agent"] for row in answer["agents"]] == [story.fleet.key("web")]
    text = story.fleet.call("status", "web").out
    assert ", ".join(map(str, story.fleet.pids("web"))) in text
    assert "/logs/*.log" in text


@pytest.mark.parametrize("verb", ["status", "explain", "logs"])
def test_an_unknown_agent_is_wrong_usage_and_the_known_ones_are_named(story: Story, verb: str) -> None:
    answer = story.fleet.call(verb, "wbe", "-o", "json")
    assert (answer.code, answer.out) == (2, "")
    assert "'wbe'" in answer.err
    assert story.fleet.key("web") in answer.err


def test_explain_answers_the_six_questions(story: Story) -> None:
    fleet = story.fleet
    text = fleet.call("explain", "worker").out
    head = fleet.head()[:10]
    assert f"Running at agents/rest.yaml:1, as of commit {head}" in text, "what is desired: file, line, commit"
    assert f"pid {fleet.pid('worker')}" in text, "what is live"
    assert re.search(r"It is Ready since \d{4}-\d\d-\d\dT", text), "since when"
    assert re.search(rf"create runtime/process because .*\[({'|'.join(GONE)})\], commit .*: Done", text), (
        "done, and why"
    )
    assert re.search(r"create runtime/process because .*\[AgentAdded\]", text)
    assert "In the way\n  Nothing." in text, "what blocks it: not a repair that worked"
    assert "Next" in text, "when it is tried again"


def test_explain_as_json_has_the_facts_behind_the_prose(story: Story) -> None:
    answer = story.fleet.ask("explain", "worker")
    newest = answer["actions"][0]
    assert newest["reason"] in GONE
    assert (newest["actor"], newest["result"]) == ("once", "Done")
    assert newest["planDigest"] == story.drifted["digest"], "the plan that was shown is the plan that was done"
    assert answer["enforced"]["commit"] == story.fleet.head()


def test_history_has_one_line_per_commit(story: Story) -> None:
    answer = story.fleet.ask("history")
    (commit,) = answer["commits"]
    assert (commit["commit"], commit["phase"], commit["changed"]) == (story.fleet.head(), "Converged", 3)
    assert commit["startedAt"] <= commit["finishedAt"]
    assert "A fleet of three" in story.fleet.call("history").out


def test_logs_are_those_of_all_replicas(story: Story) -> None:
    answer = story.fleet.ask("logs", "web")
    assert answer["agent"] == story.fleet.key("web")
    assert [log["lines"][0].startswith("listening info") for log in answer["logs"]] == [True, True]
    assert story.fleet.call("logs", "web", "-n", "1").out.count("listening info") == 2


def test_the_note_on_the_commit_reads_well(story: Story) -> None:
    fleet, head = story.fleet, story.fleet.head()
    line, empty, *rest = fleet.note(head).splitlines()
    assert re.fullmatch(rf"{fleet.instance}: Converged, 3 agents, 3 changed, [\d.]+ (ms|s)", line)
    assert empty == ""
    assert "kind: ConvergenceStatus" in rest
    log = fleet.git("log", f"--notes=gitops-agent/{fleet.instance}", "-1")
    assert f"Notes (gitops-agent/{fleet.instance}):\n    {line}" in log


def test_doctor_finds_nothing_to_mend_and_prints_the_settings(story: Story) -> None:
    before = sorted(
        path for path in story.fleet.state.rglob("*") if "-wal" not in path.name and "-shm" not in path.name
    )
    answer = story.fleet.ask("doctor")
    assert answer["ok"]
    assert {check["name"] for check in answer["checks"]} >= {
        "git",
        "state directory",
        "source",
        "journal",
        "drivers",
    }
    assert answer["settings"]["instance"] == story.fleet.instance
    said = story.fleet.call("doctor").out
    assert f"instance: {story.fleet.instance}" in said
    assert "sentryDsn: none" in said
    after = sorted(
        path for path in story.fleet.state.rglob("*") if "-wal" not in path.name and "-shm" not in path.name
    )
    assert before == after


@pytest.mark.parametrize("verb", [("status",), ("plan",), ("explain", "web"), ("history",), ("logs", "web")])
def test_text_of_the_repository_and_of_agents_is_inert(story: Story, verb: tuple[str, ...]) -> None:
    for output in ((), ("-o", "json")):
        answer = story.fleet.call(*verb, *output)
        assert answer.code == 0
        control = [char for char in answer.out + answer.err if not char.isprintable() and char != "\n"]
        assert control == [], "no escape sequence, neither ours (not a terminal) nor theirs"


def test_colour_is_for_terminals_and_never_against_no_color(story: Story) -> None:
    fleet = story.fleet
    assert "\x1b[32m" in fleet.on_terminal("status", TERM="xterm")
    assert "\x1b" not in fleet.on_terminal("status", TERM="xterm", NO_COLOR="1")
    shown = fleet.on_terminal("history", TERM="xterm")
    assert "owned" in shown
    assert "\x1b]0" not in shown, "our colours, not theirs"


def test_agents_get_their_environment_and_nothing_else(story: Story) -> None:
    (first, second) = story.fleet.marked("web").values()
    names = {"PATH", "HOME", "LANG", "LEVEL"} | {
        f"MANAGED_AGENT_{what}" for what in ("OWNER", "REPLICA", "SPEC", "CONFIG", "HEARTBEAT")
    }
    assert first.keys() == second.keys() == names
    assert {first["MANAGED_AGENT_REPLICA"], second["MANAGED_AGENT_REPLICA"]} == {"0", "1"}
    assert json.loads(Path(first["MANAGED_AGENT_CONFIG"]).read_text())["instructions"] == "Be kind."
    assert story.fleet.head() not in first["MANAGED_AGENT_SPEC"]


def test_nothing_but_agents_is_left_running(story: Story) -> None:
    marked = set(story.fleet.pids())
    ours = [
        pid
        for pid in all_pids()
        if pid not in marked and str(story.fleet.state).encode() in _command_line(pid).replace(b"\0", b" ")
    ]
    assert ours == []


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
