"""Operators steer a fleet beside a running daemon, and approve what a guard stopped: at the machine or by Git."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gitops_agent.source.mirror import APPROVALS
from tests.support.fleet import Fleet, Json, alive, until

TWELVE = tuple("abcdefghijkl")
NINE = TWELVE[3:]


def frozen(fleet: Fleet, name: str) -> Json | None:
    return fleet.condition(fleet.status(), name, "Frozen")


def test_a_freeze_stops_repair_until_it_is_lifted_and_survives_a_restart(fleet: Fleet) -> None:
    sha = fleet.commit(fleet.agents("a", "b"))
    with fleet.running():
        fleet.await_phase(sha, "Converged")
        said = fleet.ask("freeze", "--scope", fleet.key("a"), "--reason", "looking into it")
        assert said["running"]
        lost = fleet.kill("a")
        condition = until(lambda: frozen(fleet, "a"), "a is frozen")
        assert condition is not None
        assert fleet.pids("a") == []
        text = fleet.call("status", "a").out
        assert "looking into it" in text
        assert said["controls"][0]["actor"] in text
        plan = fleet.call("plan")
        assert plan.code == 4
        assert "none of this will happen now: frozen until it is lifted: looking into it" in plan.out
        assert "Next\n  It stays down until the freeze ends." in fleet.call("explain", "a").out

        # What the scope does not cover is repaired as ever.
        other = fleet.kill("b")
        until(lambda: [pid for pid in fleet.pids("b") if pid != other], "b is back")

    with fleet.running():
        other = fleet.kill("b")
        until(lambda: [pid for pid in fleet.pids("b") if pid != other], "b is back after the restart")
        assert fleet.pids("a") == []
        assert frozen(fleet, "a")
        assert fleet.call("unfreeze", "--reason", "done").code == 2, "everything is not frozen, a is"
        fleet.ask("unfreeze", "--scope", fleet.key("a"), "--reason", "seen enough")
        until(lambda: [pid for pid in fleet.pids("a") if pid != lost], "a is back")
        until(lambda: not frozen(fleet, "a"), "a is not frozen any more")


def test_nine_of_twelve_are_lost_only_with_the_right_digest(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents(*TWELVE))
    fleet.once()
    before = fleet.pids()
    bad = fleet.commit({f"{name}.yaml": None for name in NINE}, "Tidy up")
    assert fleet.once(code=4)["phase"] == "Blocked"
    digest = fleet.ask("plan", code=4)["digest"]
    assert digest in fleet.call("plan").out

    wrong = fleet.call("approve", digest[::-1])
    assert wrong.code == 2
    assert digest in wrong.err, "what waits is named"
    answer = fleet.once(code=4)
    assert (answer["phase"], answer["enforced"]) == ("Blocked", good)
    assert fleet.pids() == before

    shown = fleet.call("approve", digest, "--reason", "they moved to another fleet").out
    three = ", ".join(map(fleet.key, NINE[:3]))
    assert shown.startswith(f"approved: 9 deletions: {three} and 6 more\nplan {digest} (")
    said = fleet.ask("approve", digest, "--reason", "they moved to another fleet")
    assert said["controls"][0]["target"] == digest
    assert said["approved"] == [{"agent": fleet.key(name), "verb": "delete"} for name in NINE]
    assert not said["running"]
    answer = fleet.once()
    assert (answer["phase"], answer["enforced"]) == ("Converged", bad)
    assert [len(fleet.pids(name)) for name in TWELVE] == [1] * 3 + [0] * 9

    # The same once more is asked about once more: that approval was for what has been done.
    fleet.revert("HEAD")
    assert fleet.once()["phase"] == "Converged"
    again = fleet.revert("HEAD")
    assert fleet.once(code=4)["phase"] == "Blocked"
    assert len(fleet.pids()) == 12
    shown = fleet.call("workflows").out
    assert "stuck: MassDelete" in shown
    assert "0 of 0" not in shown

    # That it was blocked is not forgotten when a newer commit comes.
    head = fleet.revert("HEAD")
    assert fleet.once()["phase"] == "Converged"
    old = next(each for each in fleet.ask("history")["commits"] if each["commit"] == again)
    why = f"superseded by {head[:10]}; it was Blocked: 9 of 12 agents"
    assert (old["phase"], old["summary"][: len(why)]) == ("Superseded", why)
    assert why in fleet.call("history", COLUMNS="250").out
    assert fleet.note(again).startswith(f"{fleet.instance}: S{why[1:]}")


def by_note(fleet: Fleet, digest: str) -> str:
    head = fleet.head()
    fleet.git("notes", f"--ref={APPROVALS}", "add", "-m", f"Gitops-Approve: {digest}")
    fleet.git("push", "-q", "origin", APPROVALS)
    return head


def by_trailer(fleet: Fleet, digest: str) -> str:
    bob = "Bob <bob@example.com>"
    fleet.git("commit", "-q", "--allow-empty", f"--author={bob}", "-m", f"Approve\n\nGitops-Approve: {digest}")
    fleet.push()
    return fleet.head()


@pytest.mark.parametrize("how", [by_note, by_trailer])
def test_git_alone_approves_while_the_daemon_runs(fleet: Fleet, how: Callable[[Fleet, str], str]) -> None:
    policy = {"p.yaml": fleet.policy(massDelete={"min": 2, "ratio": 0.3})}
    first = fleet.commit(fleet.agents("a", "b", "c") | policy)
    with fleet.running():
        fleet.await_phase(first, "Converged")
        bad = fleet.commit({"a.yaml": None, "b.yaml": None}, "Tidy up")
        fleet.await_phase(bad, "Blocked")
        kept = fleet.pid("c")
        head = how(fleet, fleet.ask("plan", code=4)["digest"])
        fleet.await_phase(head, "Converged")
    assert fleet.pids() == [kept]
    assert alive(kept)
    note = fleet.note(head)
    assert "ApprovedBy" in note
    assert ("bob@example.com" if how is by_trailer else "ada@example.com") in note
