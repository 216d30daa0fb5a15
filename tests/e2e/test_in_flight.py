"""What people read about work that takes its time, and about an agent that is down while it is left alone."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.fleet import GONE, Fleet, until


def section(fleet: Fleet, name: str, title: str) -> str:
    """What ``explain`` says under one heading."""
    return fleet.call("explain", name).out.partition(f"\n{title}\n")[2].partition("\n\n")[0]


def row(fleet: Fleet, name: str) -> str:
    return next(line for line in fleet.call("status").out.split("\n") if line.startswith(fleet.key(name) + " "))


def test_a_probe_that_hangs_is_named_by_explain(fleet: Fleet) -> None:
    probe = {"exec": {"command": ["sleep", "600"]}, "timeout": "1m"}
    fleet.commit(fleet.agents("a", probes={"readiness": probe}, rollout={"healthTimeout": "10m"}))
    with fleet.running():
        until(lambda: "no answer so far" in fleet.call("status").out, "the probe hangs")
        found = section(fleet, "a", "In the way")
        assert re.search(r"Not Ready since \S+ \(.+\): the readiness probe has not passed yet: no answer", found)


def test_a_hook_in_flight_is_named_with_its_beginning(fleet: Fleet, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    hook = {"command": ["sh", "-c", f"touch {begun}; exec sleep 600"], "timeout": "10m"}
    fleet.commit(fleet.agents("a", hooks={"onProvisioned": hook}))
    with fleet.running():
        until(begun.exists, "the hook runs")
        until(lambda: "It is Ready since" in fleet.call("explain", "a").out, "the agent is Ready")
        found = section(fleet, "a", "Next")
        assert re.search(r"The hook onProvisioned has been running since \S+ \(.+\)\.", found)
        assert "Nothing is due" not in found
        answer, text = fleet.ask("workflows"), fleet.call("workflows").out
        flight, agent = answer["workflows"]
        assert (flight["kind"], flight["next"], flight["stuck"]) == ("hook", "onProvisioned", False)
        assert flight["since"] is not None
        assert (agent["next"], agent["message"]) == ("hook/onProvisioned", "under way")
        assert answer["hooks"]["running"] == 1
        assert "Hooks: 1 running." in text
        assert "next create" not in text


def paused_and_dead(fleet: Fleet) -> None:
    """An agent that is paused by the commit that changes it, and then killed."""
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    pause = {"paused": True, "reason": "looking into it"}
    fleet.commit({"a.yaml": fleet.agent("a", "sleep", "601", reconcile=pause)})
    fleet.once()
    fleet.kill("a")
    fleet.call("once", "--timeout", "2s")


def test_drift_lists_an_agent_that_is_down_though_a_change_waits_for_it(fleet: Fleet) -> None:
    paused_and_dead(fleet)
    answer = fleet.ask("drift")
    assert answer["drifted"] == 1
    (drift,) = answer["drifts"]
    assert (drift["agent"], drift["class"], drift["heldBy"]) == (fleet.key("a"), "MissingExternal", ["paused"])
    assert drift["evidence"][0]["source"] == "kernel"
    assert "no longer runs. A change of it waits as well." in fleet.call("drift", "a").out


def test_a_freeze_does_not_hide_why_an_agent_is_down(fleet: Fleet) -> None:
    paused_and_dead(fleet)
    fleet.call("freeze", "--scope", "*", "--reason", "launch day")
    fleet.call("once", "--timeout", "2s")
    shown = row(fleet, "a")
    assert all(code in shown for code in ("Frozen", "Paused"))
    assert any(code in shown for code in GONE)
