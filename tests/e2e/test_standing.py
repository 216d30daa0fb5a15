"""What Git, ``status`` and the exit code say of a fleet in which something is down: the same, and the truth."""

from __future__ import annotations

from tests.e2e.test_metrics import speaking
from tests.support.fleet import Fleet, until

BROKEN = {"runtime": {"command": ["sh", "-c", "exit 3"]}, "rollout": {"healthTimeout": "2s"}}


def test_the_commit_after_a_failed_one_names_who_is_down_until_it_is_mended(fleet: Fleet) -> None:
    bad = fleet.commit(fleet.agents("a") | fleet.agents("broken", **BROKEN))
    assert fleet.once(code=5)["phase"] == "Degraded"
    later = fleet.commit(fleet.agents("b"), "Another agent")
    answer = fleet.once(code=5)
    assert (answer["phase"], answer["now"]["phase"], answer["now"]["ready"]) == ("Degraded", "Degraded", 2)
    assert answer["now"]["cause"] == f"{fleet.key('broken')} ProcessGone since {bad[:10]}"
    first, *rest = fleet.note(later).splitlines()
    assert "Degraded, 3 agents, 1 changed" in first
    assert f"since {bad[:10]}" in first
    assert "cause: Inherited" in rest
    assert f"1 changed; inherited: {fleet.key('broken')}" in fleet.call("history").out

    mended = fleet.commit(fleet.agents("broken"), "Mend it")
    assert fleet.once()["now"]["phase"] == "Converged"
    assert fleet.note(mended).startswith(f"{fleet.instance}: Converged, 3 agents, 1 changed")


def test_an_agent_that_goes_down_later_is_in_the_note_of_the_newest_commit(fleet: Fleet) -> None:
    ready = fleet.work / "may-run"
    ready.touch()
    script = f"test -e {ready} && exec sleep 600"
    sha = fleet.commit(fleet.agents("a") | fleet.agents("b", runtime={"command": ["sh", "-c", script]}))
    with fleet.running():
        fleet.await_phase(sha, "Converged")
        ready.unlink()
        fleet.kill("b")
        down = f"1 of 2 ready: {fleet.key('b')} ProcessGone"
        until(lambda: down in fleet.note(sha).partition("\n")[0], "the note says that b is down")
        line, _, body = fleet.note(sha).partition("\n")
        assert line.startswith(f"{fleet.instance}: Degraded since ")
        assert "(Converged " in line
        assert "phase: Converged" in body, "the verdict stays"
        assert fleet.status()["now"]["phase"] == "Degraded"
        assert "warning" in fleet.daemon_log()
        fleet.ask("freeze", "--reason", "night")
        until(lambda: "frozen (*): night" in fleet.note(sha).partition("\n")[0], "the freeze is in the note")
        fleet.ask("unfreeze", "--reason", "morning")
        until(lambda: "kind: Thawed" in fleet.note(sha), "and so is its end")


def test_ready_is_one_count_wherever_it_is_asked_for_while_agents_come_back(fleet: Fleet) -> None:
    sha = fleet.commit(fleet.agents("a", runtime={"minUptime": "5s"}) | fleet.agents("b", "c"))
    with speaking(fleet) as voice:
        fleet.await_phase(sha, "Converged")
        fleet.kill("a")
        until(lambda: fleet.status()["now"]["onTheirWay"], "a is on its way back")
        words = "2 of 3 ready, 1 on its way"
        shown = fleet.call("status").out.partition("\n")[0]
        assert f"Converged; {words}" in shown
        assert f"agents: {words}\n" in voice.ask("/readyz")[1]
        assert voice.value("gitops_agent_agents{Ready}") == 2
        assert words in fleet.call("status", "b").out.partition("\n")[0], "of the fleet, not of the one"
        newest = fleet.ask("history")["commits"][0]["now"]
        assert (newest["phase"], newest["ready"], newest["total"], newest["onTheirWay"]) == ("Converged", 2, 3, 1)
        line = until(lambda: words in (first := fleet.note(sha).partition("\n")[0]) and first, "the note says it")
        assert line.startswith(f"{fleet.instance}: Converged, 3 agents")
        until(lambda: fleet.status()["now"]["ready"] == 3, "a is back")
        until(
            lambda: "way" not in (note := fleet.note(sha)).partition("\n")[0] and "ready: 3\n" in note,
            "so it says",
        )


def test_the_commit_of_an_agent_is_the_one_that_it_runs(fleet: Fleet) -> None:
    first = fleet.commit(fleet.agents("a", "b", "off"))
    fleet.once()
    fleet.ask("freeze", "--scope", fleet.key("a"), "--reason", "looking")
    paused = {"reconcile": {"paused": True, "reason": "audit"}}
    new = {"runtime": {"command": ["sleep", "601"]}}
    second = fleet.commit(fleet.agents("a", "b", **new) | fleet.agents("off", **new, **paused) | fleet.agents("n"))
    fleet.ask("freeze", "--scope", fleet.key("n"), "--reason", "not yet")
    answer = fleet.once(code=4)
    applied = {row["agent"].partition("/")[2]: row["appliedCommit"] for row in answer["agents"]}
    assert applied == {"a": first, "b": second, "off": first, "n": ""}
    rows = {line.split()[0]: line for line in fleet.call("status", COLUMNS="250").out.split("\n") if "/" in line}
    assert first[:10] in rows[fleet.key("a")]
    assert second[:10] in rows[fleet.key("b")]
    assert f"commit    {first[:10]}; what {second[:10]} asks of it waits" in fleet.call("status", "a").out
    fleet.ask("unfreeze", "--all", "--reason", "go")
    applied = {row["agent"].partition("/")[2]: row["appliedCommit"] for row in fleet.once()["agents"]}
    assert applied == {"a": second, "b": second, "off": first, "n": second}
