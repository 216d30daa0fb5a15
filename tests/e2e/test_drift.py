"""Drift reports: on demand while others work, on schedule to a file and a note; nothing is ever changed by one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.fleet import GONE, Fleet, until

OBSERVE = {"reconcile": {"mode": "Observe"}}


def test_the_first_week_only_looks(fleet: Fleet) -> None:
    assert "once first" in fleet.call("drift").err, "before anything is in force there is nothing to compare with"
    fleet.commit(fleet.agents("seen", "well"))
    fleet.once()
    fleet.commit(fleet.agents("seen", "well", **OBSERVE), "Only look")
    fleet.once()
    quiet = fleet.ask("drift", "--exit-code")
    assert (quiet["drifted"], quiet["agents"], quiet["drifts"]) == (0, 2, [])

    fleet.kill("seen")
    fleet.once()
    report = fleet.ask("drift")
    assert report["drifted"] == 1
    assert report["summary"]["MissingExternal"] == 1
    (drift,) = report["drifts"]
    assert (drift["agent"], drift["class"], drift["confidence"]) == (fleet.key("seen"), "MissingExternal", "high")
    assert drift["reason"] in GONE
    assert (drift["verb"], drift["decision"], drift["heldBy"]) == ("create", "alert", ["observe_mode"])
    assert drift["evidence"][0]["source"] == "kernel"
    assert fleet.pids("seen") == [], "looking changes nothing"

    again = fleet.ask("drift", "--tenant", fleet.tenant)["drifts"][0]
    assert again["since"] == drift["since"], "it drifted once, and not again with every look"
    assert fleet.ask("drift", "well")["drifts"] == []
    assert fleet.call("drift", "nobody").code == 2
    people = fleet.call("drift", "seen", "--exit-code")
    assert people.code == 5
    assert "1 of 2 agents drifted" in people.out
    assert "held by observe mode" in people.out
    assert "kernel reported at" in people.out


def test_it_looks_at_what_is_in_force_and_not_at_the_newest_commit(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents("a"))
    fleet.once()
    fleet.commit({"a.yaml": "kind: [broken"}, "Broken")
    fleet.once(code=3)
    fleet.kill("a")
    report = fleet.ask("drift")
    assert report["commit"] == good
    assert report["drifts"][0]["decision"] == "repair"


def test_reports_on_schedule(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "reports" / "drift.json"
    fleet.commit(fleet.agents("a", "b", **OBSERVE) | fleet.agents("c"))
    head = fleet.head()
    fleet.once()
    environment = {
        "GITOPS_AGENT_DRIFT_REPORT": str(path),
        "GITOPS_AGENT_DRIFT_NOTE": "true",
        "GITOPS_AGENT_DRIFT_INTERVAL": "300ms",
    }

    def report(drifted: int) -> bool:
        return path.exists() and json.loads(path.read_text())["drifted"] == drifted

    ref = f"refs/notes/gitops-agent-drift/{fleet.instance}"

    def note() -> str:
        return fleet.git("notes", f"--ref={ref}", "show", head, where=fleet.bare, check=False)

    with fleet.running(**environment):
        until(lambda: report(0), "the first report")
        until(lambda: "no drift" in note(), "the first note")
        fleet.commit(fleet.agents("c", **OBSERVE), "Only look")
        fleet.await_phase(fleet.head(), "Converged")
        fleet.kill("c")
        until(lambda: report(1), "a report on what drifted")
        head = fleet.head()
        until(lambda: "1 of 3 agents drifted" in note(), "a note on it")
        assert fleet.ask("drift")["drifted"] == 1, "and on demand, beside the daemon"
    assert "kind: DriftReport" in note()
