"""What Git, ``status`` and the exit code say of a fleet in which something is down: the same, and the truth."""

from __future__ import annotations

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
