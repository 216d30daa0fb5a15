"""Where repairing or obeying would do harm: guards hold, say which number tripped, and everything else goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.fleet import Fleet, alive

SIX = ("a", "b", "c", "d", "e", "f")


def test_a_mass_delete_waits_for_people_and_drift_is_repaired_meanwhile(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents(*SIX))
    fleet.once()
    before = fleet.pids()
    bad = fleet.commit({f"{name}.yaml": None for name in SIX[1:]} | fleet.agents("g"), "Tidy up")
    plan = fleet.ask("plan", code=4)
    assert plan["blocked"]
    assert {verdict["guard"] for verdict in plan["verdicts"] if verdict["effect"] == "block"} == {"mass_delete"}

    answer = fleet.once(code=4)
    assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Blocked", bad, good)
    assert fleet.pids() == before, "nothing of the commit is done, not even what it adds"
    (finding, *_) = answer["findings"]
    assert finding["code"] == "MassDelete"
    assert "5 of 6 agents" in finding["summary"]
    assert all(way_out in finding["detail"] for way_out in ("split the commit", "massDelete", "rollback"))
    assert fleet.note(bad).startswith(f"{fleet.instance}: Blocked")

    lost = fleet.kill("b")
    answer = fleet.once(code=4)
    assert fleet.pid("b") != lost
    assert answer["phase"] == "Blocked"
    fleet.revert("HEAD")
    assert fleet.once()["phase"] == "Converged"
    assert len(fleet.pids()) == 6


@pytest.mark.parametrize("how", ["Stopped", "Retired"])
def test_stopping_many_at_once_is_a_mass_delete_too(fleet: Fleet, how: str) -> None:
    fleet.commit(fleet.agents("a", "b") | {"p.yaml": fleet.policy(massDelete={"min": 2, "ratio": 0.5})})
    fleet.once()
    fleet.commit(fleet.agents("a", "b", lifecycle=how))
    assert fleet.once(code=4)["phase"] == "Blocked"
    assert len(fleet.pids()) == 2


def test_an_empty_source_never_deletes(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents("a") | {"p.yaml": fleet.policy(massDelete={"min": 100, "ratio": 1})})
    fleet.once()
    fleet.commit({"a.yaml": None})
    answer = fleet.once(code=4)
    assert (answer["phase"], answer["enforced"]) == ("Blocked", good)
    assert "EmptySource" in [finding["code"] for finding in answer["findings"]]
    assert len(fleet.pids()) == 1


def test_hands_off_agents_are_watched_but_not_repaired(fleet: Fleet) -> None:
    now = datetime.now(UTC)
    past, future = ((now + timedelta(hours=h)).strftime("%Y-%m-%dT%H:%M:%SZ") for h in (-1, 1))
    fleet.commit(fleet.agents("seen", "held", "over", "free"))
    fleet.once()
    pids = {name: fleet.pid(name) for name in ("seen", "held", "over", "free")}
    fleet.commit(
        fleet.agents("seen", reconcile={"mode": "Observe"})
        | fleet.agents("held", reconcile={"paused": True, "until": future, "reason": "looking into it"})
        | fleet.agents("over", reconcile={"paused": True, "until": past, "reason": "was yesterday"}),
        "Hands off",
    )
    assert fleet.once()["phase"] == "Converged"
    assert {name: fleet.pid(name) for name in pids} == pids
    for name in pids:
        fleet.kill(name)

    plan = fleet.ask("plan")
    held = {action["agent"]: action["held"] for action in plan["actions"]}
    assert held == {fleet.key(name): name in ("seen", "held") for name in pids}
    answer = fleet.once()
    assert (fleet.pids("seen"), fleet.pids("held")) == ([], [])
    assert all(fleet.pid(name) != pids[name] for name in ("over", "free"))
    for name in ("seen", "held"):
        drifted = fleet.condition(answer, name, "Drifted")
        assert drifted is not None
        assert not fleet.row(answer, name)["ready"]
    codes = {finding["code"]: finding for finding in answer["findings"]}
    assert "looking into it" in codes["Paused"]["summary"]
    assert codes["ObserveMode"]["address"].startswith(fleet.key("seen"))
    assert "looking into it" in fleet.call("explain", "held").out

    fleet.commit(fleet.agents("seen", "held"), "Hands on")
    assert fleet.once()["phase"] == "Converged"
    assert alive(fleet.pid("seen"))
    assert alive(fleet.pid("held"))


def test_a_new_agent_in_observe_mode_is_not_started_and_holds_nobody_up(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a") | fleet.agents("new", reconcile={"mode": "Observe"}))
    answer = fleet.once()
    assert answer["phase"] == "Converged"
    assert fleet.pids("new") == []
    assert len(fleet.pids("a")) == 1


def test_the_action_cap_is_one_a_minute_also_over_restarts(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b", "c") | {"p.yaml": fleet.policy(actionsPerMinute=2)})
    plan = fleet.ask("plan")
    assert "ActionCap" in [finding["code"] for finding in plan["findings"]]
    for _ in range(2):  # what one life has used up, the next does not have
        answer = fleet.once("--timeout", "1s", code=5)
        assert "ActionCap" in [finding["code"] for finding in answer["findings"]]
        assert len(fleet.pids()) == 1, "a config and a runtime"


def test_unbuilt_parts_of_the_format_are_refused_with_an_address(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", runtime={"driver": "container", "image": "x"}))
    answer = fleet.once(code=3)
    assert answer["findings"][0]["address"].startswith("a.yaml:")
    assert "container" in answer["findings"][0]["summary"] + answer["findings"][0]["detail"]
