"""A journal on PostgreSQL, with real processes: what an instance knows outlives its machine, and one writes it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from gitops_agent.journal.place import SharedJournal
from gitops_agent.journal.store import open_journal
from tests.servers.postgres import PASSWORD, WRITTEN, Postgres
from tests.support.fleet import Fleet, until

pytestmark = pytest.mark.servers
FAILING = {"command": ["sh", "-c", "exit 3"]}
CHANGED = {"env": [{"name": "LEVEL", "value": "debug"}]}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as started:
        yield started


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A server that the test may stop."""
    with Postgres() as started:
        yield started


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet], postgres: Postgres) -> Fleet:
    return make_fleet(GITOPS_AGENT_JOURNAL_URL=postgres.url())


def codes(status: dict[str, object]) -> set[str]:
    return {finding["code"] for finding in status["findings"]}  # type: ignore[attr-defined]


def place_of(fleet: Fleet) -> SharedJournal:
    return SharedJournal(fleet.environment["GITOPS_AGENT_JOURNAL_URL"], fleet.instance)


def changes_for(fleet: Fleet, sha: str) -> list[tuple[str, str, str]]:
    """What was changed because a commit asks for it; repairs of what it left are another matter."""
    with open_journal(place_of(fleet), read_only=True) as journal:
        found = journal.entries(commit=sha, limit=1000)
    return [(str(each.key), each.verb, each.reason) for each in found if each.drift_class == "Change"]


def test_what_was_decided_survives_the_machine(fleet: Fleet) -> None:
    """A failed tree, a freeze, a rollout in the middle and the bases: killed, and started with an empty folder."""
    names = ("a", "b", "c", "d")
    fleet.commit(fleet.agents(*names) | {"p.yaml": fleet.policy(rollout={"canary": 1, "bake": "1h"})})
    with fleet.running() as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        before = fleet.pids()
        sha = fleet.commit(fleet.agents(*names, runtime=CHANGED))
        until(lambda: fleet.status()["commit"] == sha and len(set(fleet.pids()) & set(before)) == 3, "one first")
        until(lambda: len(fleet.pids()) == 4, "the first is back")
        fleet.ask("freeze", "--scope", f"{fleet.tenant}/d", "--reason", "it is watched")
        until(lambda: "Frozen" in codes(fleet.status()), "frozen")
        daemon.kill()
        daemon.wait()
    middle = fleet.pids()
    shutil.rmtree(fleet.state)
    with fleet.running():
        until(lambda: fleet.status()["running"], "another one runs")
        time.sleep(3)
        status = fleet.status()
        assert (status["commit"], status["phase"]) == (sha, "Reconciling")
        assert "Frozen" in codes(status)
        assert fleet.pids() == middle, "the wave goes on baking; nothing is released, started twice or lost"
        assert {each["commit"] for each in fleet.ask("history")["commits"]} >= {sha}


def test_a_failed_tree_is_not_tried_again_on_another_machine(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b", "c"))
    fleet.once()
    sha = fleet.commit(fleet.agents("a", "b", "c", runtime=FAILING, rollout={"healthTimeout": "2s"}))
    fleet.call("once", "-o", "json", "--timeout", "60s")
    assert (fleet.status()["commit"], fleet.status()["phase"]) == (sha, "Degraded")
    left, tried = fleet.pids(), changes_for(fleet, sha)
    shutil.rmtree(fleet.state)
    fleet.call("once", "-o", "json", "--timeout", "5s")
    assert (fleet.status()["commit"], fleet.status()["phase"]) == (sha, "Degraded")
    assert set(fleet.pids()) == set(left)
    assert changes_for(fleet, sha) == tried


def test_a_rewrite_that_was_refused_is_outlived_on_another_machine(fleet: Fleet) -> None:
    """The last good commit is on no branch any more, and only the machine that is gone had a copy of it."""
    start = fleet.commit(fleet.agents("a"))
    good = fleet.commit(fleet.agents("b"))
    fleet.once()
    fleet.git("reset", "-q", "--hard", start)
    rewritten = fleet.commit(fleet.agents("c"), push=False)
    fleet.push("--force")
    fleet.once(code=6)
    shutil.rmtree(fleet.state)
    with fleet.running():
        for name in ("a", "b"):
            gone = fleet.kill(name)
            until(lambda name=name, gone=gone: set(fleet.pids(name)) - {gone}, f"{name} is back")
        status = fleet.status()
        assert (status["commit"], status["enforced"], status["phase"]) == (rewritten, good, "Refused")
        assert fleet.pids("c") == []


def test_an_approval_given_from_elsewhere_counts(fleet: Fleet) -> None:
    """The operator has the address of the journal, and nothing of the state directory."""
    fleet.commit(fleet.agents("a", "b", "c", "d"))
    fleet.once()
    fleet.commit({"b.yaml": None, "c.yaml": None, "d.yaml": None})
    answer = fleet.once(code=4)
    assert answer["phase"] == "Blocked"
    digest = fleet.ask("plan", code=4)["digest"]
    shutil.rmtree(fleet.state)
    fleet.ask("approve", digest, "--reason", "they are not needed")
    shutil.rmtree(fleet.state, ignore_errors=True)
    assert fleet.once()["phase"] == "Converged"
    assert len(fleet.pids()) == 1


def test_a_second_run_is_told_who_writes(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    with fleet.running() as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        answer = fleet.call("once", "-o", "json", "--state-dir", str(fleet.state.parent / "elsewhere"))
        assert (answer.code, answer.out) == (2, "")
        assert f"pid {daemon.pid} on" in answer.err
        assert fleet.ask("plan")["actions"] == [], "those who only look are welcome"


def test_a_paused_writer_that_goes_on_changes_nothing(fleet: Fleet) -> None:
    names = ("a", "b", "c", "d")
    fleet.commit(fleet.agents(*names) | {"p.yaml": fleet.policy(rollout={"canary": 1, "bake": "8s"})})
    with fleet.running() as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        before = fleet.pids()
        sha = fleet.commit(fleet.agents(*names, runtime=CHANGED))
        until(lambda: fleet.status()["commit"] == sha and len(set(fleet.pids()) & set(before)) == 3, "one first")
        until(lambda: len(fleet.pids()) == 4, "it is back")
        os.kill(daemon.pid, signal.SIGSTOP)
        middle = fleet.pids()
        with open_journal(place_of(fleet), writer="another machine", take_over=True) as heir:
            known = heir.state()
            time.sleep(9)  # by now the next wave would be due
            os.kill(daemon.pid, signal.SIGCONT)
            daemon.wait(60)
            assert heir.state() == known, "not a row"
        assert set(fleet.pids()) <= set(middle), "nothing was begun"
    log = fleet.daemon_log()
    assert "another machine" in log
    assert "Traceback" not in log


def test_a_server_that_is_gone_for_a_while(make_fleet: Callable[..., Fleet], own: Postgres) -> None:
    fleet = make_fleet(GITOPS_AGENT_JOURNAL_URL=own.url(), GITOPS_AGENT_LISTEN="127.0.0.1:0")
    fleet.commit(fleet.agents("a", "b"))
    with fleet.running("--config", os.devnull, GITOPS_AGENT_RESYNC_INTERVAL="1s") as daemon:
        fleet.await_phase(fleet.head(), "Converged")
        before = fleet.pids()
        own.stop()
        until(lambda: "the journal" in fleet.daemon_log() and "hint" in fleet.daemon_log(), "it is said")
        time.sleep(4)
        assert daemon.poll() is None
        assert fleet.pids() == before, "agents do not notice"
        own.start()
        sha = fleet.commit(fleet.agents("c"))
        fleet.await_phase(sha, "Converged")
        assert set(before) < set(fleet.pids())
    log = fleet.daemon_log()
    assert "Traceback" not in log
    assert PASSWORD not in log
    assert WRITTEN not in log


def test_a_server_that_lost_the_last_transactions(make_fleet: Callable[..., Fleet], own: Postgres) -> None:
    """A backup was restored under a daemon that goes on: it begins anew with what is on record."""
    fleet = make_fleet(GITOPS_AGENT_JOURNAL_URL=own.url())
    fleet.commit(fleet.agents("a"))
    with fleet.running(GITOPS_AGENT_RESYNC_INTERVAL="1s"):
        fleet.await_phase(fleet.head(), "Converged")
        kept = own.keep()
        sha = fleet.commit(fleet.agents("b"))
        fleet.await_phase(sha, "Converged")
        before = fleet.pids()
        own.go_back(kept)
        until(lambda: "went back in time" in fleet.daemon_log(), "it is said")
        fleet.await_phase(sha, "Converged")
        assert fleet.pids() == before, "the same processes: found by their marks"


def test_a_freeze_is_noticed_within_seconds(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a"))
    with fleet.running():
        fleet.await_phase(fleet.head(), "Converged")
        fleet.ask("freeze", "--reason", "now")
        said = time.monotonic()
        until(lambda: "Frozen" in codes(fleet.status()), "frozen")
        assert time.monotonic() - said < 5, "a second, and what a busy machine adds"


def test_the_password_is_nowhere(fleet: Fleet) -> None:
    sha = fleet.commit(fleet.agents("a"))
    url = fleet.environment.pop("GITOPS_AGENT_JOURNAL_URL")
    kept = fleet.state.parent / "journal-url"
    kept.write_text(url + "\n")
    fleet.environment["GITOPS_AGENT_JOURNAL_URL_FILE"] = str(kept)
    said = [fleet.note(sha)]
    for place in ({}, {"GITOPS_AGENT_JOURNAL_URL": url}, {"GITOPS_AGENT_JOURNAL_URL": url.replace(WRITTEN, "no")}):
        for verb in (("once",), ("status",), ("doctor",), ("history",), ("explain", "a"), ("plan",)):
            for form in ("text", "json"):
                answer = fleet.call(*verb, "-o", form, **place)
                said += [answer.out, answer.err]
    said.append(fleet.call("status", GITOPS_AGENT_JOURNAL_URL=f"postgresql://u:{PASSWORD}@h/d").err)
    assert "postgresql://keeper@127.0.0.1" in "".join(said)
    for text in said:
        assert PASSWORD not in text
        assert WRITTEN not in text


@pytest.mark.parametrize("with_folder", [True, False])
def test_losing_the_journal_loses_no_agent_and_starts_none_twice(
    fleet: Fleet, postgres: Postgres, with_folder: bool
) -> None:
    """A backup that never was: the schema of the instance is gone, with or without the folder of the machine."""
    names = ("a", "b", "c")
    sha = fleet.commit(fleet.agents(*names))
    with fleet.running() as daemon:
        fleet.await_phase(sha, "Converged")
        before = fleet.pids()
        daemon.kill()
        daemon.wait()
    postgres.run(f'DROP SCHEMA "{place_of(fleet).schema}" CASCADE')
    if not with_folder:
        shutil.rmtree(fleet.state)
    with fleet.running():
        fleet.await_phase(sha, "Converged")
        assert fleet.pids() == before, "the same processes, no one more"
        fleet.kill("b")
        until(lambda: fleet.pids("b") and len(fleet.pids()) == len(names), "and they are looked after again")
        assert len(set(before) & set(fleet.pids())) == len(names) - 1


def test_a_journal_that_is_lost_under_a_running_daemon(fleet: Fleet, postgres: Postgres) -> None:
    sha = fleet.commit(fleet.agents("a", "b"))
    with fleet.running() as daemon:
        fleet.await_phase(sha, "Converged")
        before = fleet.pids()
        postgres.run(f'DROP SCHEMA "{place_of(fleet).schema}" CASCADE')
        fleet.commit(fleet.agents("c"))
        until(lambda: "the journal" in fleet.daemon_log(), "it is said")
        assert set(before) <= set(fleet.pids()), "agents do not notice"
        daemon.kill()
        daemon.wait()
    assert fleet.once()["phase"] == "Converged"
    assert set(before) < set(fleet.pids())
    assert len(fleet.pids()) == 3
