"""The stops: what nobody can have meant is not done, is shown whole, and goes through with the right approval.

And their other side: what explains itself is not stopped.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from typing import Any

from gitops_agent.journal.store import open_journal
from gitops_agent.model.fields import Fields
from gitops_agent.source.mirror import APPROVALS
from tests.support.fleet import GONE, Fleet, Json, alive, signal_pid, until

TWELVE = tuple("abcdefghijkl")
NINE = TWELVE[3:]
BOB = "Bob <bob@example.com>"


def removed(*names: str) -> dict[str, str | None]:
    return {f"{name}.yaml": None for name in names}


def codes(answer: Json) -> set[str]:
    return {finding["code"] for finding in answer["findings"]}


def finding(answer: Json, code: str) -> Json:
    found: list[Json] = [each for each in answer["findings"] if each["code"] == code]
    (only,) = found
    return only


def blocked(fleet: Fleet, number: str, way_out: str) -> str:
    """The newest commit is stopped: nothing is lost, and every verb says which number tripped and how to go on."""
    before = fleet.pids()
    answer = fleet.once(code=4)
    assert answer["phase"] == "Blocked"
    plan = fleet.ask("plan", code=4)
    digest: str = plan["digest"]
    assert fleet.pids() == before
    assert all(action["held"] for action in plan["actions"])
    for shown in (fleet.call("plan").out, fleet.call("status").out, fleet.note(fleet.head())):
        words = " ".join(shown.split())
        assert number in words
        assert f"{way_out} {digest}" in words
    return digest


def approve_by_trailer(fleet: Fleet, digest: str, *, author: str = BOB) -> str:
    fleet.git("commit", "-q", "--allow-empty", f"--author={author}", "-m", f"Yes\n\nGitops-Approve: {digest}")
    fleet.push()
    return fleet.head()


def approve_by_note(fleet: Fleet, digest: str) -> None:
    fleet.git("notes", f"--ref={APPROVALS}", "add", "-f", "-m", f"Gitops-Approve: {digest}")
    fleet.git("push", "-q", "origin", APPROVALS)


def test_nothing_is_lost_without_the_right_approval(fleet: Fleet) -> None:
    waves = {"p.yaml": fleet.policy(rollout={"second": "90%", "pause": "1s"})}
    good = fleet.commit(fleet.agents(*TWELVE) | waves)
    fleet.once()
    everybody = fleet.pids()

    # Running becomes Stopped everywhere.
    fleet.commit(fleet.agents(*TWELVE, lifecycle="Stopped"), "A typo in a template")
    stopping = blocked(fleet, "12 of 12 agents of the fleet would be stopped or deleted", "gitops-agent approve")
    fleet.git("revert", "--no-edit", "HEAD")

    # Nine of twelve go. What was approved of another plan, mistyped, or said by the author, approves nothing.
    nine = fleet.commit(removed(*NINE), "Tidy up")
    digest = blocked(fleet, "9 of 12 agents of the fleet would be stopped or deleted", "gitops-agent approve")
    assert digest != stopping
    for wrong in (stopping, digest[::-1], digest[:7]):
        assert fleet.call("approve", wrong).code == 2
    approve_by_trailer(fleet, digest, author="Ada <ada@example.com>")
    assert "ApprovalRejected" in codes(fleet.once(code=4))
    approve_by_trailer(fleet, stopping)
    assert fleet.once(code=4)["enforced"] == good

    # The digest of nine, and then a tenth is removed: it says nothing about that.
    fleet.ask("approve", digest)
    fleet.commit(removed("c"), "One more")
    assert fleet.once(code=4)["enforced"] == good
    assert fleet.pids() == everybody
    fleet.revert("HEAD")

    # Live moves under an approval: somebody edits what was to be deleted. It is as it was before anything is lost.
    bundle = fleet.folder("d") / "config.json"
    was = bundle.read_bytes()
    bundle.write_bytes(b"{}")
    assert fleet.once(code=4)["enforced"] == good
    assert (fleet.pids(), bundle.read_bytes()) == (everybody, was)

    # Now it holds for what is there. We are killed in the middle of the waves, and nobody is asked again.
    with fleet.running() as daemon:
        until(lambda: len(fleet.pids()) < 12, "the canary went")
        signal_pid(daemon.pid, signal.SIGKILL)
        daemon.wait()
    assert len(fleet.pids()) == 11
    answer = fleet.once()
    assert (answer["phase"], answer["commit"]) == ("Converged", fleet.head())
    assert [len(fleet.pids(name)) for name in TWELVE] == [1] * 3 + [0] * 9
    assert set(fleet.pids()) <= set(everybody), "and the others were left alone"
    assert nine in fleet.git("log", "--format=%H")


def test_a_folder_that_is_gone_and_one_that_is_empty_delete_nothing(fleet: Fleet) -> None:
    fleet.environment["GITOPS_AGENT_PATH"] = "fleet"
    generous = {"fleet/p.yaml": fleet.policy(massDelete={"min": 99, "ratio": 1})}
    good = fleet.commit({f"fleet/{name}": text for name, text in fleet.agents("a", "b").items()} | generous)
    fleet.once()
    before = fleet.pids()
    for gone, code, phase, why in (
        (["fleet/a.yaml", "fleet/b.yaml", "fleet/p.yaml"], 6, "Refused", "PathMissing"),
        (["fleet/a.yaml", "fleet/b.yaml"], 4, "Blocked", "EmptySource"),
    ):
        fleet.commit(dict.fromkeys(gone), "Clean up")
        answer = fleet.once(code=code)
        assert (answer["phase"], answer["enforced"]) == (phase, good)
        assert why in codes(answer)
        assert why in fleet.call("status").out
        assert fleet.pids() == before
        lost = fleet.kill("a")
        fleet.once(code=code)
        assert fleet.pid("a") != lost, "what is in force is still repaired"
        before = fleet.pids()
        good = fleet.revert("HEAD")
        assert fleet.once()["phase"] == "Converged"
        assert fleet.pids() == before


def test_no_commit_loosens_the_guard_that_should_have_stopped_it(fleet: Fleet) -> None:
    six = TWELVE[:6]
    strict: Json = {"massDelete": {"min": 2, "ratio": 0.3}, "massChange": {"min": 3, "ratio": 0.4}}
    loose = {"p.yaml": fleet.policy(massDelete={"min": 99, "ratio": 1}, massChange={"min": 99, "ratio": 1})}
    fleet.commit(fleet.agents(*six) | {"p.yaml": fleet.policy(**strict)})
    fleet.once()
    fleet.commit(removed("a", "b") | loose, "Just this once")
    blocked(fleet, "massDelete allows fewer than 2 agents", "gitops-agent approve")
    fleet.revert("HEAD")
    fleet.once()
    fleet.commit(fleet.agents(*six, instructions="New.") | {"p.yaml": fleet.policy()}, "No limits")
    digest = blocked(fleet, "massChange allows fewer than 3 agents", "gitops-agent approve")
    before = fleet.pids()
    approve_by_note(fleet, digest)
    assert fleet.once()["phase"] == "Converged"
    assert not set(before) & set(fleet.pids()), "with the right digest everybody follows"
    # Converged: from now on the looser numbers hold.
    fleet.commit(fleet.agents(*six, instructions="Newer."))
    assert fleet.once()["phase"] == "Converged"


def test_a_freeze_by_git_is_lifted_by_a_commit_that_does_nothing_else(fleet: Fleet) -> None:
    freeze = {"p.yaml": fleet.policy(freeze={"reason": "the fair"})}
    fleet.commit(fleet.agents("a", "b") | freeze)
    assert fleet.once(code=4)["phase"] == "Blocked"
    assert fleet.pids() == [], "frozen from the first commit on"
    fleet.commit({"p.yaml": fleet.policy()}, "Open")
    fleet.once()
    fleet.commit(freeze, "Freeze")
    assert fleet.once()["phase"] == "Converged"
    lost, other = fleet.kill("a"), fleet.pid("b")

    waiting = fleet.commit(fleet.agents("b", instructions="New."), "A change that waits")
    answer = fleet.once(code=4)
    assert (answer["phase"], fleet.pids()) == ("Blocked", [other])
    assert "the fair" in finding(answer, "Frozen")["summary"]
    assert fleet.condition(answer, "a", "Frozen")
    assert fleet.condition(answer, "a", "Drifted"), "still seen"

    both = fleet.commit(fleet.agents("a", instructions="New.") | {"p.yaml": fleet.policy()}, "Lift and change")
    answer = fleet.once(code=3)
    assert (answer["commit"], answer["phase"]) == (both, "Invalid")
    assert fleet.key("a") in finding(answer, "FreezeLiftedWithChanges")["summary"]
    assert fleet.pids() == [other], "the freeze stays"
    assert "Frozen" in codes(answer)

    fleet.commit(fleet.agents("a"), "Only the Policy is different now")
    assert fleet.once()["phase"] == "Converged"
    assert fleet.pid("a") != lost
    assert fleet.pid("b") != other, "what waited has come"
    assert waiting in fleet.git("log", "--format=%H")


def test_where_the_policy_freezes_absence_people_look_first_when_half_the_fleet_dies(fleet: Fleet) -> None:
    fleet.commit(fleet.agents(*TWELVE) | {"p.yaml": fleet.policy(massDrift={"absence": "Freeze"})})
    fleet.once()
    half = TWELVE[:6]
    for name in half:
        fleet.kill(name)
    answer = fleet.once(code=4)
    assert "6 of 12 agents of the fleet drifted" in finding(answer, "MassDrift")["summary"]
    plan = fleet.ask("plan", code=4)
    assert all(action["held"] for action in plan["actions"])
    frozen = finding(fleet.once(code=4), "Frozen")
    assert plan["digest"] in frozen["detail"]
    assert "gitops-agent unfreeze --scope '*' --reason" in frozen["detail"]
    assert len(fleet.pids()) == 6, "nothing is repaired"
    fleet.ask("unfreeze", "--reason", "the test did it")
    assert fleet.once()["phase"] == "Converged"
    assert [len(fleet.pids(name)) for name in TWELVE] == [1] * 12

    # Once more, beside a daemon that hears of one death after the other: at most four are back before it stops.
    with fleet.running():
        lost = fleet.kill("l")
        until(lambda: fleet.pids("l") not in ([], [lost]), "one that dies alone is back")
        for pid in [fleet.pid(name) for name in half]:
            signal_pid(pid)
        until(lambda: "Frozen" in codes(fleet.status()), "frozen again: that approval is spent")
        assert 6 <= len(fleet.pids()) <= 10
        fleet.ask("unfreeze", "--reason", "the test did it again")
        until(lambda: len(fleet.pids()) == 12, "all are back")


def restart_host(fleet: Fleet) -> None:
    """Everything is gone, and what is on record is from another life of the machine."""
    for pid in fleet.pids():
        signal_pid(pid)
    until(lambda: not fleet.pids(), "all of it is gone")
    journal = open_journal(fleet.state)
    bases = [base for key, base in journal.state().reconcile.bases.items() if key.kind == "runtime"]
    journal.finish(
        (), bases=[replace(base, handle=Fields.of({**base.handle.value, "boot": "earlier"})) for base in bases]
    )
    journal.close()


def test_after_a_reboot_the_fleet_comes_back_by_itself_a_few_at_a_time(fleet: Fleet) -> None:
    policy = {"p.yaml": fleet.policy(hostRestart={"atOnce": 4})}
    fleet.commit(fleet.agents(*TWELVE) | policy)
    fleet.once()
    restart_host(fleet)
    plan = fleet.ask("plan")
    assert {action["reason"] for action in plan["actions"]} == {"HostRestarted"}
    assert sum(not action["held"] for action in plan["actions"]) == 1, "one first"
    answer = fleet.once()
    assert answer["phase"] == "Converged"
    assert [len(fleet.pids(name)) for name in TWELVE] == [1] * 12
    assert not codes(answer) & {"MassDrift", "Frozen"}
    sizes = rounds(fleet, "HostRestarted")
    assert (sum(sizes), sizes[0], max(sizes)) == (12, 1, 4)


def rounds(fleet: Fleet, *reasons: str) -> list[int]:
    """How many agents came back with each plan, the first plan first."""
    journal = open_journal(fleet.state, read_only=True)
    entries = [entry for entry in journal.entries(limit=200) if entry.reason in reasons]
    journal.close()
    return list(Counter(entry.plan for entry in reversed(entries)).values())


def test_eight_of_twelve_that_die_at_once_come_back_unasked_one_first(fleet: Fleet) -> None:
    fleet.commit(fleet.agents(*TWELVE) | {"p.yaml": fleet.policy(hostRestart={"atOnce": 4})})
    fleet.once()
    eight = TWELVE[2:10]
    for name in eight:
        fleet.kill(name)
    answer = fleet.once()
    assert answer["phase"] == "Converged"
    assert [len(fleet.pids(name)) for name in TWELVE] == [1] * 12
    sizes = rounds(fleet, *GONE)
    assert (sum(sizes), sizes[0]) == (8, 1)
    assert max(sizes) <= 4
    assert not codes(answer) & {"MassDrift", "Frozen"}

    # Once more, beside a daemon that hears of one death after the other.
    with fleet.running():
        for pid in [fleet.pid(name) for name in eight]:
            signal_pid(pid)
        until(lambda: len(fleet.pids()) == 12 and not fleet.status()["findings"], "all are back, unasked")
    assert "Frozen" not in fleet.daemon_log()


def test_taking_back_half_the_fleet_asks_only_if_it_was_ever_ready(fleet: Fleet) -> None:
    old, new = TWELVE[:6], TWELVE[6:]
    start = fleet.commit(fleet.agents(*old))
    fleet.once()
    never: dict[str, Any] = {
        "probes": {"readiness": {"exec": {"command": ["false"]}}},
        "rollout": {"healthTimeout": "1s"},
    }
    fleet.commit(fleet.agents(*new, **never), "Six more, all of them broken")
    assert fleet.once(code=5)["phase"] == "Degraded"
    assert len(fleet.pids()) == 12
    back = fleet.revert("HEAD")
    assert fleet.once()["enforced"] == back
    assert [len(fleet.pids(name)) for name in TWELVE] == [1] * 6 + [0] * 6

    fleet.commit(fleet.agents(*new), "Six more")
    fleet.once()
    fleet.ask("rollback", "--to", start, "--yes")
    fleet.git("pull", "-q", "--ff-only", "origin", "main")
    digest = blocked(fleet, "6 of 12 agents of the fleet would be stopped or deleted", "gitops-agent approve")
    fleet.ask("approve", digest, "--reason", "they moved")
    assert fleet.once()["phase"] == "Converged"
    assert [len(fleet.pids(name)) for name in TWELVE] == [1] * 6 + [0] * 6
    assert all(alive(pid) for pid in fleet.pids())
