"""Two gitops-agents by mistake: same repository, same name, two state directories. One acts, the other waits."""

from __future__ import annotations

import copy
import re
import signal
import sys
from typing import Any

from tests.support.fleet import Fleet, Json, alive, state, until

SINGULAR = """
import fcntl, signal, sys
seat = open(sys.argv[1], "a")
try:
    fcntl.flock(seat, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(sys.argv[1] + ".twice", "a").close()
signal.pause()
"""
"""An agent that tells when it is not the only one of its name, however short the time."""


def singular(fleet: Fleet, *names: str, **spec: Any) -> dict[str, str]:
    seats = fleet.state.parent
    return {
        f"{name}.yaml": fleet.agent(name, sys.executable, "-c", SINGULAR, str(seats / f"seat-{name}"), **spec)
        for name in names
    }


def twin(fleet: Fleet) -> Fleet:
    """The same fleet in the eyes of somebody who gave another state directory."""
    other = copy.copy(fleet)
    other.state = fleet.state.parent / "elsewhere" / "state"
    other.state.parent.mkdir()
    return other


def refusals(fleet: Fleet) -> dict[str, Json]:
    """Why this one waits, by agent."""
    return {found["address"]: found for found in fleet.status()["findings"] if found["code"] == "LeaseHeld"}


def test_the_second_waits_and_takes_over_when_the_first_is_killed(fleet: Fleet) -> None:
    second = twin(fleet)
    fleet.commit(singular(fleet, "a", "b"))
    with fleet.running() as first:
        fleet.await_phase(fleet.head(), "Converged")
        until(lambda: "Converged" in fleet.note(fleet.head()), "the note says so")
        before = {name: fleet.pid(name) for name in "ab"}
        with second.running() as other:
            until(lambda: len(refusals(second)) == 2, "the second says that it waits")
            why = refusals(second)[fleet.key("a")]
            assert f"instance {fleet.instance}, state directory {fleet.state}, pid {first.pid}" in why["summary"]
            assert "--instance" in why["detail"]
            assert "another gitops-agent" in second.call("explain", "a").out
            assert second.status()["phase"] == "Reconciling", "what it does not act on, it does not call its own"
            assert not second.ask("explain", "a")["actions"], "not even adopted"
            assert f"{fleet.instance}: Converged" in fleet.note(fleet.head()), (
                "and it does not speak for the first"
            )

            # A crash and a commit, both seen by both: the first alone acts.
            lost = fleet.kill("a")
            until(lambda: fleet.pids("a"), "a comes back")
            assert fleet.pid("a") != lost
            changed = singular(fleet, "b", runtime={"env": [{"name": "V", "value": "2"}]})
            sha = fleet.commit({**changed, **singular(fleet, "c")})
            fleet.await_phase(sha, "Converged")
            until(
                lambda: second.status()["commit"] == sha and len(refusals(second)) == 3,
                "the second saw it as well",
            )
            running = {name: fleet.pid(name) for name in "abc"}
            assert running["b"] != before["b"]

            first.kill()
            first.wait()
            second.await_phase(sha, "Converged")
            until(lambda: not refusals(second), "it says no longer that it waits")
            until(lambda: f"{fleet.instance}: Converged" in fleet.note(sha), "the note is as it should be")
            assert {name: fleet.pid(name) for name in "abc"} == running, "adopted, and nothing started twice"
            verbs = {action["verb"] for name in "abc" for action in second.ask("explain", name)["actions"]}
            assert "adopt" in verbs
            assert not verbs & {"restart", "delete", "stop"}

            fleet.kill("c")
            until(lambda: fleet.pids("c"), "the second repairs now")
            other.send_signal(signal.SIGTERM)
            assert other.wait(20) == 0
    assert list(fleet.state.parent.glob("seat-*.twice")) == []
    third = fleet.once()
    assert third["phase"] == "Converged", "who ends gives its leases back"


def test_a_holder_that_is_stopped_keeps_what_it_holds(fleet: Fleet) -> None:
    second = twin(fleet)
    fleet.commit(fleet.agents("a"))
    with fleet.running() as first:
        fleet.await_phase(fleet.head(), "Converged")
        first.send_signal(signal.SIGSTOP)
        until(lambda: state(first.pid) == "T", "the first is stopped")
        try:
            fleet.kill("a")
            answer = second.call("once", "--timeout", "3s")
            assert answer.code == 5
            assert "acted on by another gitops-agent" in answer.out
            assert fleet.pids("a") == [], "the first may go on at any moment, and would start a second one"
        finally:
            first.send_signal(signal.SIGCONT)
        until(lambda: fleet.pids("a"), "and here it does")
        assert alive(fleet.pid("a"))


def test_after_the_verdict_the_lease_is_named_as_what_is_in_the_way(fleet: Fleet) -> None:
    second = twin(fleet)
    sha = fleet.commit(fleet.agents("a"))
    fleet.once()
    with second.running() as other:
        second.await_phase(sha, "Converged")
        other.send_signal(signal.SIGSTOP)
        until(lambda: state(other.pid) == "T", "the other is stopped")
        try:
            fleet.kill("a")
            with fleet.running():
                held = f"{fleet.key('a')} LeaseHeld"
                until(lambda: fleet.status()["now"]["cause"] == held, held)
        finally:
            other.send_signal(signal.SIGCONT)


def test_looking_takes_no_lease(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    leases = fleet.state.parent / "leases"
    fleet.ask("plan")
    fleet.call("status")
    assert not leases.exists()
    fleet.once()
    assert [path.name for path in leases.rglob("*") if path.is_file()] == ["lock"], "given back at the end"


def test_a_lease_folder_that_does_not_do_is_an_error_with_a_way_out(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    obstacle = fleet.state.parent / "leases"
    obstacle.write_text("in the way")
    answer = fleet.call("once")
    assert answer.code == 2
    assert re.search(rf"error: {re.escape(str(obstacle))}: no lease can be kept here", answer.err)
    assert "--lease-dir" in answer.err
    assert fleet.pids() == []
    assert fleet.once("--lease-dir", str(fleet.state.parent / "other"))["phase"] == "Converged"
