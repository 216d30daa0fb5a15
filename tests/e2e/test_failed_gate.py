"""What Git sees when a gate fails, with a real remote: a proposal, a revert, somebody quicker, a closed door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.report.sinks.git_notes import parse_note
from tests.support.fleet import Fleet
from tests.support.git_servers import GitHttpServer, http_server

NAMES = ("a", "b", "c")
QUICKER = """#!/bin/sh
# Somebody pushes in the moment in which we do.
if [ "$1" = refs/heads/main ] && git rev-parse -q --verify refs/heads/theirs > /dev/null; then
    git update-ref refs/heads/main refs/heads/theirs && git update-ref -d refs/heads/theirs
fi
"""
CLOSED = """#!/bin/sh
[ "$1" != refs/heads/main ] || { echo "main takes reviewed changes only" >&2; exit 1; }
"""


class Gate:
    """Three agents that are Ready while a file is there; which file is for a commit to say."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self._folder = folder
        self.flag("good").touch()

    def flag(self, word: str) -> Path:
        return self._folder / f"flag-{word}"

    def push(self, word: str, policy: dict[str, Any] | None = None, *, push: bool = True, **more: Any) -> str:
        """A commit whose agents are Ready while the file of this word is there; the sha."""
        probe = {"exec": {"command": ["test", "-e", str(self.flag(word))]}, "period": "200ms"}
        files = self.fleet.agents(
            *NAMES,
            probes={"readiness": probe},
            rollout={"healthTimeout": "1s"},
            runtime={"env": [{"name": "WORD", "value": word}]},
            **more,
        )
        if policy is not None:
            files["gitops-agent.yaml"] = self.fleet.policy(**policy)
        return self.fleet.commit(files, f"Word: {word}", push=push)

    def start(self, on_failure: str) -> str:
        sha = self.push("good", {"rollout": {"onFailure": on_failure}})
        self.fleet.once()
        return sha

    @property
    def words(self) -> dict[str, str]:
        marked = self.fleet.marked().values()
        return {marks["MANAGED_AGENT_OWNER"].rpartition("/")[2]: marks["WORD"] for marks in marked}

    def hook(self, text: str) -> None:
        """The remote asks this script before it takes a branch."""
        path = self.fleet.bare / "hooks" / "update"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def remote(self, branch: str = "main") -> str:
        return self.fleet.git("ls-remote", self.fleet.repo, f"refs/heads/{branch}").partition("\t")[0]


@pytest.fixture
def gate(fleet: Fleet, tmp_path: Path) -> Gate:
    return Gate(fleet, tmp_path)


@pytest.fixture
def server(fleet: Fleet) -> Iterator[GitHttpServer]:
    """The remote as others have it: on a server that runs its own hooks."""
    with http_server(fleet.bare.parent) as server:
        yield server


def test_a_proposal_waits_on_a_branch_and_merging_it_heals(gate: Gate) -> None:
    good = gate.start("ProposeRevert")
    bad = gate.push("typo")
    fleet, branch = gate.fleet, f"gitops-agent/revert-{bad[:10]}"
    assert fleet.once(code=5)["commit"] == bad
    assert gate.remote() == bad, "the branch we follow stays where it is"
    proposed = gate.remote(branch)
    assert f"branch {branch} holds the revert" in fleet.note(bad)
    fleet.once(code=5)
    assert (gate.remote(), gate.remote(branch)) == (bad, proposed), "once"

    fleet.git("fetch", "-q", "origin")
    message = fleet.git("log", "-1", "--format=%B%an", proposed)
    assert message.startswith('Revert "Word: typo"')
    assert "is not Ready" in message, "why"
    assert f"This reverts commit {bad}." in message
    assert message.endswith("gitops-agent")
    assert fleet.git("diff", good, proposed) == ""
    assert gate.words == {"a": "typo", "b": "good", "c": "good"}
    fleet.git("merge", "-q", "--no-ff", "--no-edit", f"origin/{branch}")
    fleet.push()
    answer = fleet.once()
    assert (answer["phase"], answer["commit"]) == ("Converged", fleet.head())
    assert set(gate.words.values()) == {"good"}
    assert (parse_note(fleet.note(bad)) or {})["RolledBackBy"] == fleet.head()


def test_somebody_was_quicker_and_nothing_is_forced(gate: Gate, server: GitHttpServer) -> None:
    gate.fleet.repo = server.url("fleet.git")
    gate.start("Revert")
    fleet, bad = gate.fleet, gate.push("typo")
    gate.flag("fixed").touch()
    theirs = gate.push("fixed", push=False)
    fleet.git("push", "-q", "origin", "HEAD:theirs")
    gate.hook(QUICKER)
    answer = fleet.once()
    assert (answer["phase"], answer["commit"]) == ("Converged", theirs), "theirs wins, and is followed at once"
    assert gate.remote() == theirs
    assert set(gate.words.values()) == {"fixed"}
    assert "another commit was pushed meanwhile" in fleet.note(bad)
    assert not gate.remote(f"gitops-agent/revert-{bad[:10]}")


@pytest.mark.parametrize("how", ["over http", "in a folder"])
def test_a_closed_branch_gets_a_proposal(gate: Gate, server: GitHttpServer, how: str) -> None:
    if how == "over http":
        gate.fleet.repo = server.url("fleet.git")
    gate.start("Revert")
    fleet, bad = gate.fleet, gate.push("typo")
    gate.hook(CLOSED)
    fleet.once(code=5)
    assert gate.remote() == bad
    assert gate.remote(branch := f"gitops-agent/revert-{bad[:10]}")
    assert branch in fleet.note(bad)


def test_a_branch_that_is_checked_out_gets_a_proposal(gate: Gate) -> None:
    fleet = gate.fleet
    fleet.repo = str(fleet.work)
    gate.start("Revert")
    bad = gate.push("typo")
    fleet.once(code=5)
    assert fleet.head() == bad
    assert fleet.git("status", "--porcelain") == "", "nobody touched what somebody works on"
    fleet.git("merge", "-q", f"gitops-agent/revert-{bad[:10]}")
    assert fleet.once()["phase"] == "Converged"
    assert set(gate.words.values()) == {"good"}


def test_a_revert_that_fails_is_not_reverted_again(gate: Gate) -> None:
    """What is wrong is not in Git: the old tree is no better."""
    good = gate.start("Revert")
    fleet, bad = gate.fleet, gate.push("typo")
    gate.flag("good").unlink()
    answer = fleet.once(code=5)
    revert = gate.remote()
    assert fleet.git("rev-list", "main", where=fleet.bare).split() == [revert, bad, good]
    assert (answer["commit"], answer["phase"]) == (revert, "Degraded")
    fleet.once(code=5)
    assert gate.remote() == revert
    assert "gitops-agent/" not in fleet.git("for-each-ref", "refs/heads", where=fleet.bare)

    gate.flag("good").touch()
    fleet.ask("retry", revert[:10])
    assert fleet.once()["phase"] == "Converged", "and once that is mended, retry goes on"
    assert set(gate.words.values()) == {"good"}


def test_a_tree_that_failed_is_not_tried_again_until_somebody_says_so(gate: Gate) -> None:
    gate.start("Hold")
    fleet, bad = gate.fleet, gate.push("typo")
    fleet.once(code=5)
    plan = fleet.call("plan")
    assert plan.code == 4
    assert f"none of this will happen now: the rollout of {bad[:10]} is held" in plan.out
    assert "in waves of" not in plan.out
    fleet.revert("HEAD")
    fleet.once()
    again = fleet.revert("HEAD")
    for _ in range(2):  # the second is another process: it is remembered
        answer = fleet.once(code=4)
        assert (answer["commit"], answer["phase"]) == (again, "Blocked")
        (finding,) = (finding for finding in answer["findings"] if finding["code"] == "FailedBefore")
        assert bad[:10] in finding["summary"]
        assert f"gitops-agent retry {bad[:10]}" in finding["detail"]
        assert set(gate.words.values()) == {"good"}, "nobody is touched"
    assert "FailedBefore" in fleet.note(again)
    assert "FailedBefore" in fleet.call("explain", "a").out

    gate.flag("typo").touch()  # what was wrong was not in Git
    fleet.ask("retry", bad[:10])
    answer = fleet.once()
    assert (answer["commit"], answer["phase"]) == (again, "Converged")
    assert set(gate.words.values()) == {"typo"}
