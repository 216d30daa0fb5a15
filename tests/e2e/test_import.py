"""Where live decides a field, Git follows by a branch that people review, and nothing is repaired."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.fleet import Fleet, signal_pid, until

NOW = {"GITOPS_AGENT_IMPORT_AFTER": "0s"}
DOCUMENT = """\
# How many of them run is decided where they run.
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata: {{name: bot, tenant: {tenant}}}
spec:
  authority: {{runtime.replicas: live}}
  runtime:
    driver: process
    command: ["sleep", "600"]
    minUptime: 50ms
    replicas: 1     # to begin with
    stop: {{grace: 2s}}
"""


@contextmanager
def one_more(fleet: Fleet, name: str) -> Iterator[int]:
    """What an autoscaler does: another replica with the marks of the first one, and the next number."""
    (marks,) = fleet.marked(name).values()
    environment = {**marks, "MANAGED_AGENT_REPLICA": "1"}
    place = fleet.folder(name) / "work"
    child = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True, cwd=place)
    try:
        yield child.pid
    finally:
        signal_pid(child.pid)
        child.wait()


def proposals(fleet: Fleet) -> list[str]:
    listed = fleet.git("for-each-ref", "--format=%(refname:short)", "refs/heads", where=fleet.bare)
    return [name for name in listed.split() if name.startswith("gitops-agent/")]


def finding(answer: dict[str, Any], code: str) -> dict[str, Any] | None:
    return next((each for each in answer["findings"] if each["code"] == code), None)


def test_an_extra_replica_becomes_a_branch_and_merging_it_needs_no_action(fleet: Fleet) -> None:
    head = fleet.commit({"bot.yaml": DOCUMENT.format(tenant=fleet.tenant)})
    fleet.once(**NOW)
    first = fleet.pid("bot")
    with one_more(fleet, "bot") as second:
        answer = fleet.once(**NOW)
        assert answer["phase"] == "Converged"
        assert fleet.row(answer, "bot")["ready"]
        assert fleet.pids("bot") == sorted([first, second]), "nothing is repaired"
        (branch,) = proposals(fleet)
        assert branch.startswith(f"gitops-agent/import/{fleet.tenant}-bot-")
        assert fleet.git("rev-parse", "main", where=fleet.bare) == head, "the tracked branch is where it was"
        diff = fleet.git("diff", "-U0", "main", branch, where=fleet.bare).splitlines()
        assert [line for line in diff if line[0] in "+-"][2:] == [
            "-    replicas: 1     # to begin with",
            "+    replicas: 2     # to begin with",
        ]
        proposed = finding(fleet.ask("status"), "ImportProposed")
        assert proposed is not None
        assert branch in proposed["summary"]
        plan = fleet.ask("plan")
        (action,) = plan["actions"]
        assert (action["decision"], action["reason"], action["verb"]) == ("import", "LiveDecides", "adopt")
        drift = fleet.ask("drift")
        assert (drift["drifted"], drift["drifts"][0]["differences"]) == (
            0,
            [{"path": "/replicas", "live": 2, "git": 1}],
        )

        fleet.git("pull", "-q", "--ff-only", "origin", branch)
        fleet.push()
        answer = fleet.once(**NOW)
        assert (answer["phase"], answer["commit"]) == ("Converged", fleet.head())
        assert fleet.pids("bot") == sorted([first, second])
        assert fleet.ask("plan")["actions"] == []
        assert finding(fleet.ask("status"), "ImportProposed") is None
        done = fleet.ask("explain", "bot")["actions"]
        assert [each["verb"] for each in done if each["commit"] == fleet.head()] == []


def test_a_running_daemon_proposes_and_says_so(fleet: Fleet) -> None:
    fleet.commit({"bot.yaml": DOCUMENT.format(tenant=fleet.tenant)})
    fleet.once(**NOW)
    with (
        fleet.running(GITOPS_AGENT_RESYNC_INTERVAL="200ms", GITOPS_AGENT_IMPORT_AFTER="500ms"),
        one_more(fleet, "bot"),
    ):
        (branch,) = until(lambda: proposals(fleet), "a proposal")
        said = until(lambda: finding(fleet.status(), "ImportProposed"), "the finding")
        assert said is not None
        assert branch in said["summary"]
    assert len(fleet.pids("bot")) == 1


def test_without_permission_to_push_the_finding_says_what_to_do_by_hand(fleet: Fleet) -> None:
    fleet.commit({"bot.yaml": DOCUMENT.format(tenant=fleet.tenant)})
    fleet.once(**NOW)
    with one_more(fleet, "bot"):
        fleet.once("--no-push", **NOW)
        assert proposals(fleet) == []
        refused = finding(fleet.ask("status"), "ImportRefused")
        assert refused is not None
        assert "push is off" in refused["summary"]
        assert "by hand in bot.yaml:1" in refused["detail"]
