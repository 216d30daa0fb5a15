"""Commits change the fleet: what they touch, in their order, and nothing else."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.fleet import Fleet, alive, reasons, signal_pid


def overlay(instance: str, *patches: Mapping[str, object], **selector: object) -> str:
    spec = {"instance": instance, "selector": selector, "patches": list(patches)}
    return json.dumps({"apiVersion": "gitops-agent.dev/v1", "kind": "Overlay", "spec": spec})


def test_a_commit_changes_only_the_agent_it_touches(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b", "hot", instructions="One.") | {"hot.yaml": _hot(fleet, "One.")})
    fleet.once()
    before = {name: fleet.pid(name) for name in ("a", "b", "hot")}
    fleet.commit(fleet.agents("a", instructions="Two.") | {"hot.yaml": _hot(fleet, "Two.")}, "Two of three")
    plan = fleet.ask("plan")
    assert reasons(plan) == {
        "a:config/bundle": "SpecChanged",
        "a:runtime/process": "SpecChanged",
        "hot:config/bundle": "SpecChanged",
    }
    patch = next(action["patch"] for action in plan["actions"] if action["resource"].endswith("a:config/bundle"))
    assert {"op": "replace", "path": "/instructions", "value": "Two.", "before": "One."} in patch
    assert fleet.ask("plan", "--commit", "HEAD~1")["actions"] == [], "what is there is what that commit asks for"
    text = fleet.call("plan").out
    assert "SpecChanged" in text
    assert "Two." in text

    answer = fleet.once()
    assert answer["phase"] == "Converged"
    assert fleet.pid("b") == before["b"], "untouched"
    assert fleet.pid("hot") == before["hot"], "runtime.reload: Hot reads its bundle again by itself"
    assert fleet.pid("a") != before["a"]
    assert json.loads((fleet.folder("hot") / "config.json").read_text())["instructions"] == "Two."
    history = fleet.ask("history")["commits"]
    assert [commit["changed"] for commit in history] == [2, 3]


def _hot(fleet: Fleet, words: str) -> str:
    return fleet.agent("hot", instructions=words, runtime={"reload": "Hot"})


def test_commits_of_one_push_are_superseded_but_the_last(fleet: Fleet) -> None:
    fleet.repo = f"file://{fleet.bare}"
    fleet.commit(fleet.agents("a"))
    fleet.once()
    early = [
        fleet.commit(fleet.agents("a", runtime={"replicas": 2}), "Two", push=False),
        fleet.commit(fleet.agents("a", "b"), "And b", push=False),
    ]
    last = fleet.commit(fleet.agents("c"), "And c")
    fleet.once()
    phases = {commit["commit"]: commit["phase"] for commit in fleet.ask("history")["commits"]}
    assert [phases[sha] for sha in (*early, last)] == ["Superseded", "Superseded", "Converged"]
    assert fleet.note(early[0]).startswith(f"{fleet.instance}: Superseded by {last[:10]}")
    assert fleet.note(last).startswith(f"{fleet.instance}: Converged, 3 agents")


def test_lifecycle_and_deletion_policy_decide_what_becomes_of_processes(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("kept", deletionPolicy="Retain") | fleet.agents("gone", "retired", "stays"))
    fleet.once()
    pids = {name: fleet.pid(name) for name in ("kept", "gone", "retired", "stays")}
    fleet.commit({"kept.yaml": None, "gone.yaml": None} | fleet.agents("retired", lifecycle="Retired"))
    planned = {action["resource"].partition("/")[2]: action for action in fleet.ask("plan")["actions"]}
    assert (planned["kept:runtime/process"]["verb"], planned["kept:runtime/process"]["reason"]) == (
        "release",
        "Retained",
    )
    assert planned["gone:runtime/process"]["reason"] == "AgentRemoved"
    assert planned["retired:runtime/process"]["reason"] == "AgentRetired"

    answer = fleet.once()
    assert {name: alive(pid) for name, pid in pids.items()} == {
        "kept": True, "gone": False, "retired": False, "stays": True,
    }  # fmt: skip
    assert {row["agent"]: row["ready"] for row in answer["agents"]} == {
        fleet.key("retired"): True, fleet.key("stays"): True,
    }  # fmt: skip
    signal_pid(pids["kept"])
    fleet.once()
    assert fleet.pids("kept") == [], "retained means left alone, not looked after"
    fleet.commit(fleet.agents("gone"))
    assert fleet.once()["phase"] == "Converged"
    assert fleet.pid("gone")


def test_an_overlay_is_for_its_instance_only(fleet: Fleet, tmp_path: Path) -> None:
    replicas = {"op": "add", "path": "/spec/runtime/replicas", "value": 2}
    level = {"op": "add", "path": "/spec/runtime/env", "value": [{"name": "LEVEL", "value": "debug"}]}
    fleet.commit(
        fleet.agents("gold", metadata={"labels": {"tier": "gold"}})
        | fleet.agents("plain")
        | {
            "overlays/ours.yaml": overlay(fleet.instance, replicas, labels={"tier": "gold"}),
            "overlays/theirs.yaml": overlay("elsewhere", level),
        }
    )
    fleet.once()
    assert (len(fleet.pids("gold")), len(fleet.pids("plain"))) == (2, 1)
    assert all("LEVEL" not in marks for marks in fleet.marked().values())

    wrong = {"op": "replace", "path": "/spec/runtime/replicas", "value": 0}
    fleet.commit({"overlays/ours.yaml": overlay(fleet.instance, wrong, labels={"tier": "gold"})}, "None at all")
    answer = fleet.once(code=3)
    assert answer["findings"][0]["address"].startswith("overlays/ours.yaml:"), "the overlay is to blame"
    assert len(fleet.pids("gold")) == 2


def test_agents_start_in_the_order_of_their_dependencies(fleet: Fleet) -> None:
    stamp = "import time; print(time.time_ns(), flush=True); time.sleep(600)"
    readiness = {"exec": {"command": ["test", "-e", "ready"]}, "period": "200ms"}
    slow = "import time, pathlib; time.sleep(0.4); pathlib.Path('ready').touch(); " + stamp
    fleet.commit(
        {
            "first.yaml": fleet.agent("first", sys.executable, "-c", slow, probes={"readiness": readiness}),
            "next.yaml": fleet.agent(
                "next", sys.executable, "-c", stamp, rollout={"dependsOn": [fleet.key("first")]}
            ),
        }
    )
    plan = fleet.ask("plan")
    (waiting,) = [finding for finding in plan["findings"] if finding["code"] == "WaitingForDependency"]
    assert waiting["address"] == fleet.key("next")
    assert fleet.key("first") in waiting["summary"]
    assert plan["summary"]["held"] > 0
    fleet.once()
    first, then = (int(fleet.ask("logs", name)["logs"][0]["lines"][0]) for name in ("first", "next"))
    assert first < then < time.time_ns()


def test_explain_says_which_dependency_is_waited_for(fleet: Fleet) -> None:
    never = {"readiness": {"exec": {"command": ["false"]}, "period": "200ms"}}
    fleet.commit(
        fleet.agents("base", probes=never) | fleet.agents("top", rollout={"dependsOn": [fleet.key("base")]})
    )
    answer = fleet.once("--timeout", "1s", code=5)
    assert fleet.pids("top") == []
    assert not fleet.row(answer, "base")["ready"]
    text = fleet.call("explain", "top").out
    assert "WaitingForDependency" in text
    assert fleet.key("base") in text


def test_a_new_commit_takes_the_place_of_one_that_cannot_finish(fleet: Fleet) -> None:
    never = {"readiness": {"exec": {"command": ["false"]}, "period": "200ms"}}
    bad = fleet.commit(fleet.agents("a", probes=never))
    fleet.once("--timeout", "1s", code=5)
    good = fleet.commit(fleet.agents("a"), "Without the probe")
    answer = fleet.once()
    assert answer["commit"] == good
    phases = {commit["commit"]: commit["phase"] for commit in fleet.ask("history")["commits"]}
    assert phases == {bad: "Superseded", good: "Converged"}


def test_path_and_branch_select_what_is_read(fleet: Fleet) -> None:
    fleet.branch = "fleet/prod"
    fleet.commit({f"prod/{name}": text for name, text in fleet.agents("a").items()} | {"dev/x.yaml": "kind: ["})
    answer = fleet.once("--path", "prod")
    assert [row["agent"] for row in answer["agents"]] == [fleet.key("a")]
    before = fleet.pid("a")
    fleet.commit({"dev/x.yaml": "kind: [["}, "Elsewhere")
    answer = fleet.once("--path", "prod")
    assert (answer["phase"], answer["commit"]) == ("Converged", fleet.head())
    assert fleet.pid("a") == before
