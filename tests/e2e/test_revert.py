"""The way back is Git's: plain ``git revert`` in all its forms, recognised and marked on both sides."""

from __future__ import annotations

import json

from gitops_agent.report.sinks.git_notes import parse_note
from tests.support.fleet import Fleet, Json


def commits(fleet: Fleet) -> dict[str, Json]:
    return {commit["commit"]: commit for commit in fleet.ask("history", "-n", "100")["commits"]}


def words(fleet: Fleet, name: str) -> str:
    text: str = json.loads((fleet.folder(name) / "config.json").read_text())["instructions"]
    return text


def say(fleet: Fleet, name: str, text: str, *, push: bool = True) -> str:
    return fleet.commit(fleet.agents(name, instructions=text), f"{name}: {text}", push=push)


def test_a_revert_converges_and_both_commits_name_each_other(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents("a", "b", instructions="Good."))
    fleet.once()
    other = fleet.pid("b")
    bad = say(fleet, "a", "Bad.")
    fleet.once()
    assert words(fleet, "a") == "Bad."
    back = fleet.revert("HEAD")
    answer = fleet.once()

    assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Converged", back, back)
    assert words(fleet, "a") == "Good."
    assert fleet.pid("b") == other
    known = commits(fleet)
    assert known[back]["rollsBackTo"] == good
    assert known[bad]["rolledBackBy"] == back
    assert (parse_note(fleet.note(back)) or {})["RollsBackTo"] == good
    assert (parse_note(fleet.note(bad)) or {})["RolledBackBy"] == back
    assert f"undone by {back[:10]}" in fleet.note(bad).splitlines()[0]
    log = fleet.git("log", f"--notes=gitops-agent/{fleet.instance}", "--format=%s%n%N")
    assert [line for line in log.splitlines() if line.startswith(fleet.instance)] == [
        fleet.note(sha).splitlines()[0] for sha in (back, bad, good)
    ]


def test_a_revert_of_a_revert_brings_it_back(fleet: Fleet) -> None:
    say(fleet, "a", "One.")
    fleet.once()
    change = say(fleet, "a", "Two.")
    back = fleet.revert("HEAD")
    again = fleet.revert("HEAD")
    fleet.once()
    assert words(fleet, "a") == "Two."
    known = commits(fleet)
    assert known[again]["rollsBackTo"] == change
    assert known[back]["rolledBackBy"] == again
    assert known[change]["rolledBackBy"] is None, "it counts again"
    assert known[again]["phase"] == "Converged"


def test_several_commits_and_one_in_the_middle(fleet: Fleet) -> None:
    base = fleet.commit(fleet.agents("a", "b", "c", instructions="One."))
    fleet.once()
    first, middle, last = (say(fleet, name, "Two.", push=False) for name in "abc")
    fleet.push()
    fleet.once()
    without_middle = fleet.revert(middle)
    fleet.once()
    assert [words(fleet, name) for name in "abc"] == ["Two.", "One.", "Two."]
    known = commits(fleet)
    assert known[middle]["rolledBackBy"] == without_middle
    assert (known[without_middle]["reverts"], known[without_middle]["rollsBackTo"]) == ([middle], None)
    assert known[first]["rolledBackBy"] is known[last]["rolledBackBy"] is None

    fleet.git("revert", "--no-edit", "--no-commit", last, first)
    all_of_it = fleet.commit({}, "Back to the start")
    fleet.once()
    assert {words(fleet, name) for name in "abc"} == {"One."}
    known = commits(fleet)
    assert known[all_of_it]["rollsBackTo"] == base
    assert {known[sha]["rolledBackBy"] for sha in (first, last)} == {all_of_it}


def test_a_revert_of_a_merge_takes_back_all_it_brought(fleet: Fleet) -> None:
    fleet.commit(fleet.agents("a", "b", instructions="One."))
    fleet.once()
    fleet.git("checkout", "-q", "-b", "topic")
    inner = say(fleet, "a", "Two.", push=False)
    fleet.git("checkout", "-q", "main")
    before = say(fleet, "b", "Two.", push=False)
    fleet.git("merge", "-q", "--no-ff", "--no-edit", "topic")
    merge = fleet.head()
    fleet.push()
    assert fleet.once()["phase"] == "Converged"
    back = fleet.revert("-m", "1", merge)
    fleet.once()
    assert (words(fleet, "a"), words(fleet, "b")) == ("One.", "Two.")
    known = commits(fleet)
    assert known[back]["rollsBackTo"] == before
    assert known[merge]["rolledBackBy"] == back
    assert known[inner]["rolledBackBy"] == back


def test_words_alone_are_no_rollback(fleet: Fleet) -> None:
    say(fleet, "a", "One.")
    fleet.once()
    change = say(fleet, "a", "Two.")
    fleet.once()
    claim = fleet.commit(fleet.agents("a", instructions="Three."), f"Nice try\n\nThis reverts commit {change}.")
    fleet.once()
    known = commits(fleet)
    assert known[claim]["rollsBackTo"] is None
    assert known[change]["rolledBackBy"] is None
