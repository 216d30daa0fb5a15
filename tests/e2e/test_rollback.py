"""``gitops-agent rollback`` writes a commit, and only that: the fleet follows like it follows any commit."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from tests.support.fleet import Fleet, Json


def say(fleet: Fleet, name: str, text: str) -> str:
    return fleet.commit(fleet.agents(name, instructions=text), f"{name}: {text}")


def remote_head(fleet: Fleet, branch: str = "main") -> str:
    return fleet.git("ls-remote", "origin", f"refs/heads/{branch}").partition("\t")[0]


def file_at(fleet: Fleet, sha: str, name: str) -> Json:
    fleet.git("fetch", "-q", "origin")
    value: Json = json.loads(fleet.git("show", f"{sha}:{name}.yaml"))
    return value["spec"]


@pytest.fixture(scope="module")
def three(settled: Fleet) -> tuple[Fleet, list[str]]:
    """Four commits; nothing runs, because a rollback does not need it to."""
    fleet = settled
    shas = [fleet.commit(fleet.agents("a", "b", instructions="One."), "Start")]
    shas += [say(fleet, "a", "Two."), say(fleet, "b", "Two."), say(fleet, "a", "Three.")]
    return fleet, shas


def test_without_yes_and_without_a_terminal_it_only_shows(three: tuple[Fleet, list[str]]) -> None:
    fleet, shas = three
    answer = fleet.call("rollback")
    assert answer.code == 2
    assert 'Revert "a: Three."' in answer.out
    assert "create" in answer.out, "the plan comes first"
    assert "--yes" in answer.err
    assert remote_head(fleet) == shas[-1]


def test_on_a_terminal_it_asks_and_the_question_stays(three: tuple[Fleet, list[str]]) -> None:
    fleet, shas = three
    master, slave = pty.openpty()
    world = {**fleet.environment, "TERM": "xterm"}
    asked = subprocess.Popen(
        fleet.command("rollback"), cwd=fleet.work, env=world, stdin=slave, stdout=slave, stderr=slave
    )
    shown = b""
    while b"[y/N]:" not in shown:
        shown += os.read(master, 65536)
    os.write(master, b"n\n")
    assert asked.wait(60) == 2
    os.close(slave)
    rest = shown.partition(b"[y/N]:")[2] + os.read(master, 65536)
    os.close(master)
    assert b"\x1b[2K" not in rest, "no bar erases the line of the question"
    assert b"nothing was pushed" in rest
    assert remote_head(fleet) == shas[-1]


def test_to_a_new_branch_for_review(three: tuple[Fleet, list[str]]) -> None:
    fleet, shas = three
    answer = fleet.call("rollback", "--branch-name", "back/one", "--yes", "-m", "Please review")
    assert answer.code == 0
    assert remote_head(fleet) == shas[-1], "the branch we follow stays where it is"
    proposed = remote_head(fleet, "back/one")
    assert file_at(fleet, proposed, "a")["instructions"] == "Two."
    message = fleet.git("log", "-1", "--format=%B%an <%ae>", proposed)
    assert message.startswith("Please review")
    assert f"This reverts commit {shas[-1]}" in message
    assert message.endswith("gitops-agent <gitops-agent@localhost>")


def test_a_commit_in_the_middle_a_range_and_an_earlier_state(three: tuple[Fleet, list[str]]) -> None:
    fleet, shas = three
    for name, arguments, expected in (
        ("middle", [shas[2]], {"a": "Three.", "b": "One."}),
        ("range", [f"{shas[1]}..{shas[3]}"], {"a": "Two.", "b": "One."}),
        ("state", ["--to", shas[0]], {"a": "One.", "b": "One."}),
    ):
        made = fleet.ask("rollback", *arguments, "--branch-name", name, "--yes")
        assert (made["commit"], made["branch"]) == (remote_head(fleet, name), name)
        found = {agent: file_at(fleet, f"origin/{name}", agent)["instructions"] for agent in expected}
        assert found == expected, name
    assert fleet.git("rev-parse", "origin/state^{tree}") == fleet.git("rev-parse", f"{shas[0]}^{{tree}}")


def test_a_conflict_changes_nothing_and_names_the_files(three: tuple[Fleet, list[str]]) -> None:
    fleet, shas = three
    answer = fleet.call("rollback", shas[1], "--yes", "-o", "json")
    assert (answer.code, answer.out) == (6, "")
    assert "a.yaml" in answer.err
    assert "--to" in answer.err, "a way out"
    assert remote_head(fleet) == shas[-1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["no-such-commit"], 2), (["HEAD", "--to", "HEAD~1"], 2), (["--upload-pack=x"], 2)],
)
def test_what_cannot_be_done_is_said_and_not_done(
    three: tuple[Fleet, list[str]], arguments: list[str], code: int
) -> None:
    fleet, shas = three
    answer = fleet.call("rollback", *arguments, "--yes")
    assert answer.code == code
    assert "rror" in answer.err
    assert remote_head(fleet) == shas[-1]


def test_what_is_already_so_is_no_failure(three: tuple[Fleet, list[str]]) -> None:
    fleet, _ = three
    answer = fleet.call("rollback", "--to", "HEAD", "--yes")
    assert (answer.code, answer.err) == (0, "")
    assert "already in that state" in answer.out
    assert fleet.ask("rollback", "--to", "HEAD", "--yes")["pushed"] is False


def test_json_alone_is_no_consent(three: tuple[Fleet, list[str]]) -> None:
    fleet, shas = three
    made = fleet.ask("rollback", code=2)
    assert (made["pushed"], made["branch"], made["subject"]) == (False, "main", 'Revert "a: Three."')
    assert made["plan"]["digest"] == made["digest"]
    assert remote_head(fleet) == shas[-1]


def test_commits_are_undone_in_the_order_of_history_not_of_clocks(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", instructions="One."), "Start")
    fleet.environment["GIT_COMMITTER_DATE"] = "2030-01-01T00:00:00Z"
    first = say(fleet, "a", "Two.")
    fleet.environment["GIT_COMMITTER_DATE"] = "2020-01-01T00:00:00Z"
    second = say(fleet, "a", "Three.")
    del fleet.environment["GIT_COMMITTER_DATE"]
    for name, commits in (("named", [first, second]), ("ranged", [f"{first}~1..{second}"])):
        fleet.ask("rollback", *commits, "--branch-name", name, "--yes")
        assert file_at(fleet, f"origin/{name}", "a")["instructions"] == "One."


def test_a_branch_that_is_checked_out_is_noticed_before_the_question(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", instructions="One."), "Start")
    head = say(fleet, "a", "Two.")
    fleet.repo = str(fleet.work)
    for consent in ([], ["--yes"]):
        answer = fleet.call("rollback", *consent)
        assert answer.code == 6
        assert "main is checked out in" in answer.err
        assert "--branch-name undo" in answer.err, "a way out"
        assert "--yes" not in answer.err, "it was not asked"
    assert fleet.head() == head
    assert fleet.call("rollback", "--branch-name", "undo", "--yes").code == 0
    fleet.git("merge", "-q", "undo")
    assert json.loads((fleet.work / "a.yaml").read_text())["spec"]["instructions"] == "One."
    fleet.git("config", "receive.denyCurrentBranch", "updateInstead")
    assert fleet.call("rollback", "--yes").code == 0, "unless its owner allows it"


def test_the_fleet_follows_the_commit_that_was_written(fleet: Fleet) -> None:
    good = say(fleet, "a", "Good.")
    fleet.once()
    bad = say(fleet, "a", "Bad.")
    fleet.once()
    made = fleet.ask("rollback", "--yes")
    assert remote_head(fleet) == made["commit"]
    answer = fleet.once()
    assert (answer["commit"], answer["phase"]) == (made["commit"], "Converged")
    assert json.loads((fleet.folder("a") / "config.json").read_text())["instructions"] == "Good."
    known = {commit["commit"]: commit for commit in fleet.ask("history")["commits"]}
    assert known[made["commit"]]["rollsBackTo"] == good
    assert known[bad]["rolledBackBy"] == made["commit"]
