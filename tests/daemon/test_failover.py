"""Several ``run`` of one instance, with real processes: one acts, and another follows when it is gone, paused, cut
off or told to end. The election is simulated (a file); with a real one: tests/kubernetes."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_lease import singular
from tests.support.election import HERE, answer, install_simulated, leads, on_another_machine, stands_by
from tests.support.fleet import Fleet, until

SECONDS = 2.0


@pytest.fixture(scope="session")
def search_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return install_simulated(tmp_path_factory.mktemp("simulated"))


@pytest.fixture
def fleet(tmp_path: Path, search_path: str) -> Iterator[Fleet]:
    fleet = Fleet(
        tmp_path,
        PYTHONPATH=search_path,
        GITOPS_AGENT_ELECTION="simulated",
        GITOPS_AGENT_DRIVERS__SIMULATED__FILE=str(tmp_path / "lease"),
        GITOPS_AGENT_DRIVERS__SIMULATED__SECONDS=str(SECONDS),
        **HERE,
    )
    yield fleet
    fleet.end()
    assert not list(tmp_path.glob("*.twice")), "no agent ran twice"


def test_a_standby_is_quiet_and_follows_a_leader_that_is_killed(fleet: Fleet) -> None:
    a, b = on_another_machine(fleet, "a"), on_another_machine(fleet, "b")
    fleet.commit(singular(fleet, "x", "y"))
    with a.running() as first:
        a.await_phase(fleet.head(), "Converged")
        with b.running() as second:
            until(lambda: stands_by(b, "a"), "b stands by")
            assert answer(b, "/livez") == (200, "ok\n")
            series = [line for line in answer(b, "/metrics")[1].splitlines() if not line.startswith("#")]
            assert [line.split("{")[0].split()[0] for line in series] == [
                "gitops_agent_info",
                "gitops_agent_leader",
            ]
            assert leads(a)
            assert not leads(b)
            assert not b.state.exists(), "no journal, no mirror"
            held = b.call("once")
            assert held.code == 2
            assert "another gitops-agent leads" in held.err

            sha = fleet.commit(singular(fleet, "z"))
            a.await_phase(sha, "Converged")
            before = {name: fleet.pid(name) for name in "xyz"}
            first.kill()
            first.wait()
            killed = time.monotonic()
            until(lambda: leads(b), "b leads")
            b.await_phase(sha, "Converged")
            assert time.monotonic() - killed < 20
            assert {name: fleet.pid(name) for name in "xyz"} == before
            lost = fleet.kill("x")
            until(lambda: fleet.pids("x") not in ([], [lost]), "b repairs")
            until(lambda: f"{fleet.instance}: Converged" in fleet.note(sha), "b reports")

            second.send_signal(signal.SIGTERM)
            assert second.wait(20) == 0
        ended, c = time.monotonic(), on_another_machine(fleet, "c")
        with c.running():
            until(lambda: leads(c), "who resigned is followed at once")
            assert time.monotonic() - ended < SECONDS, "without waiting for the end of a lease"
            c.await_phase(sha, "Converged")
    assert c.once()["phase"] == "Converged"


def test_a_paused_leader_is_replaced_in_the_middle_of_a_rollout_and_acts_no_more(fleet: Fleet) -> None:
    a, b = on_another_machine(fleet, "a"), on_another_machine(fleet, "b")
    names = [f"n{number}" for number in range(8)]
    # b has a journal of its own, so to it the half-done rollout is drift; with a shared one it goes on as it was.
    policy = fleet.policy(rollout={"bake": "300ms"}, massDrift={"min": 100})
    fleet.commit({**singular(fleet, *names), "policy.yaml": policy})
    with a.running() as first, ExitStack() as stack:
        a.await_phase(fleet.head(), "Converged")
        stack.enter_context(b.running())
        until(lambda: answer(b, "/readyz")[0] == 200, "b stands by")
        before = {name: fleet.pid(name) for name in names}
        sha = fleet.commit(singular(fleet, *names, runtime={"env": [{"name": "V", "value": "2"}]}))
        until(lambda: sum(fleet.pids(name) != [before[name]] for name in names) >= 2, "the rollout is under way")
        first.send_signal(signal.SIGSTOP)
        try:
            until(lambda: leads(b), "b leads")
            b.await_phase(sha, "Converged")
            running = {name: fleet.pid(name) for name in names}
        finally:
            first.send_signal(signal.SIGCONT)
        until(lambda: stands_by(a, "b"), "a stands by again", 30)
        assert "no longer leading" in a.daemon_log()
        assert {name: fleet.pid(name) for name in names} == running
        assert all(running[name] != before[name] for name in names)
        fleet.kill("n0")
        until(lambda: fleet.pids("n0"), "b repairs")
        assert leads(b)


def test_a_leader_that_is_cut_off_stops_and_comes_back_under_another_term(fleet: Fleet) -> None:
    a = on_another_machine(fleet, "a")
    fleet.commit(singular(fleet, "x"))
    with a.running():
        a.await_phase(fleet.head(), "Converged")
        down = fleet.state.parent / "lease.down"
        down.touch()
        until(lambda: not leads(a), "a stops")
        lost = fleet.kill("x")
        time.sleep(1)
        assert fleet.pids("x") == [], "what does not lead does not repair"
        assert answer(a, "/readyz")[0] == 503
        assert answer(a, "/livez")[0] == 200
        down.unlink()
        until(lambda: fleet.pids("x") not in ([], [lost]), "a repairs when it leads again")
        first, *_, last = (int(found) for found in re.findall(r'"term": ?([0-9]+)', a.daemon_log()))
        assert last == first + 1
        assert "a leader on another one starts them a second time" in a.daemon_log()
    checks = {each["name"]: each for each in a.ask("doctor", code=1)["checks"]}
    assert not checks["election"]["ok"]
    assert checks["election"]["said"].endswith(f": {a.tenant}/x")


def test_a_leader_that_cannot_open_its_journal_stands_by_until_it_can(fleet: Fleet) -> None:
    a = on_another_machine(fleet, "a")
    sha = fleet.commit(singular(fleet, "x"))
    in_the_way = a.state / "journal.db"
    in_the_way.mkdir(parents=True)
    with a.running() as daemon:
        until(lambda: "gives the lease back" in a.daemon_log(), "it is said")
        status, said = answer(a, "/readyz")
        assert (status, "journal" in said) == (503, True), said
        assert answer(a, "/livez")[0] == 200
        in_the_way.rmdir()
        a.await_phase(sha, "Converged")
        assert leads(a)
        assert daemon.poll() is None


def test_once_ends_in_time_when_nobody_can_tell_who_leads(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("x"))
    (fleet.state.parent / "lease.down").touch()
    found = fleet.call("once", "--timeout", "1s")
    assert found.code == 5
    assert "not known after 1 s whether another gitops-agent leads" in found.err
    assert "error: " in found.err
    assert "the simulated election does not answer" in found.err.split("error: ")[-1]
    assert fleet.pids() == []


def test_an_election_needs_a_driver_that_holds_one(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("x"))
    for name, said in (("process", "elects nobody"), ("nothing", "is not installed")):
        found = fleet.call("run", GITOPS_AGENT_ELECTION=name)
        assert found.code == 2
        assert said in found.err
        assert "simulated" in found.err
