"""Somebody pushes a typo in a health check. It must not take the fleet down, whatever form it has.

Fifty real agents; at most the canary is touched, everybody else stays Ready throughout. Told by the kernel (pids,
start times, marks), by the agents' own logs, by their answers, and by Git.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from gitops_agent.report.sinks.git_notes import parse_note
from tests.support.fleet import GONE, Json, until
from tests.support.incident import Being, Incident

FORMS: dict[str, dict[str, Any]] = {
    "env and readiness": {"greeting": "helo", "readiness": "/reedyz"},
    "readiness alone": {"readiness": "/reedyz"},
    "liveness alone": {"liveness": "/livz"},
}
HOLD: dict[str, Any] = {"rollout": {"onFailure": "Hold"}}
REVERT: dict[str, Any] = {"rollout": {"onFailure": "Revert"}}


@pytest.fixture(scope="module")
def fifty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """Fifty agents for the whole module: every test begins and is judged by how it finds them."""
    fleet = Incident(tmp_path_factory.mktemp("fifty"))
    yield fleet
    fleet.end()


@dataclass(frozen=True)
class Before:
    """The fleet before a typo."""

    sha: str
    beings: dict[str, Being]
    since: dict[str, str]


def calm(fleet: Incident, policy: dict[str, Any] = HOLD) -> Before:
    sha = fleet.settle(policy)
    since = fleet.ready_since(fleet.status())
    assert sorted(since) == fleet.names
    return Before(sha, fleet.beings(), since)


def touched(fleet: Incident, before: Before, answer: Json) -> set[str]:
    """The agents that are not what and where they were, or were not Ready all the time."""
    now, since = fleet.beings(), fleet.ready_since(answer)
    assert fleet.all_answer()
    moved = {name for name in fleet.names if now[name] != before.beings[name]}
    return moved | {name for name in fleet.names if since.get(name) != before.since[name]}


def held(fleet: Incident, bad: str) -> Json:
    """Wait until the rollout of a commit is held, and everybody who is held back says so; the status then."""
    fleet.await_phase(bad, "Degraded")
    until(lambda: fleet.halted(fleet.status()), "agents are Halted")
    return fleet.status()


def has_failed_since(fleet: Incident, asked: int) -> bool:
    """Whether the canary was asked for a path it does not know several times more."""
    return fleet.said(fleet.canary).count("/livz") > asked + 6


def has_moved(fleet: Incident, sha: str) -> bool:
    return fleet.log_of()[0] != sha


def check_held(fleet: Incident, before: Before, bad: str, answer: Json) -> None:
    """At most the canary was touched, the rest stayed Ready, the rollout is held."""
    assert (answer["commit"], answer["phase"], answer["enforced"]) == (bad, "Degraded", before.sha)
    assert touched(fleet, before, answer) == {fleet.canary}
    rollout = answer["rollout"]
    assert (rollout["waves"], rollout["released"], rollout["onFailure"]) == ([1, 5, 44], 1, "Hold")
    assert fleet.key(fleet.canary) in rollout["failed"]
    assert fleet.halted(answer) == fleet.others


def check_note(fleet: Incident, bad: str) -> None:
    """The note says why, and how to go on."""
    head = f"{fleet.instance}: Degraded, 50 agents"
    until(lambda: fleet.note(bad).startswith(head), "the note")
    first, *rest = fleet.note(bad).splitlines()
    assert f"{fleet.key(fleet.canary)} is not Ready" in first
    assert "404" in first
    assert f"gitops-agent retry {bad[:10]}" in "\n".join(rest)


def check_answers(fleet: Incident, before: Before, bad: str) -> None:
    """status and explain say what is held, why, and how to go on."""
    shown = fleet.call("status").out
    assert "rollout held" in shown
    assert "wave 1 of 3, 1 of 50 agents" in shown
    assert shown.count("RolloutHeld") == 49 + 1, "each of them, and the finding"
    explained = fleet.call("explain", "bot-31").out
    assert f"commit {before.sha[:10]}" in explained, "what it follows"
    assert f"The newest commit {bad[:10]} is Degraded" in explained
    assert "failed its gate" in explained
    assert f"gitops-agent retry {bad[:10]}" in explained


def test_env_and_readiness_broken_together(fifty: Incident) -> None:
    before = calm(fifty)
    bad = fifty.declare("A typo in two places", **FORMS["env and readiness"])
    check_held(fifty, before, bad, fifty.once(code=5))
    assert fifty.starts(fifty.canary) == before.beings[fifty.canary].starts + 1
    check_note(fifty, bad)
    check_answers(fifty, before, bad)


def test_the_readiness_probe_alone(fifty: Incident) -> None:
    fifty.follow()
    before = calm(fifty)
    bad = fifty.declare("A typo in one place", **FORMS["readiness alone"])
    check_held(fifty, before, bad, held(fifty, bad))
    assert fifty.starts(fifty.canary) == before.beings[fifty.canary].starts, "nobody is restarted for a question"
    check_note(fifty, bad)


def test_the_liveness_probe_alone_is_no_storm_of_restarts(fifty: Incident) -> None:
    fifty.follow()
    before = calm(fifty)
    bad = fifty.declare("A typo in the other place", **FORMS["liveness alone"])
    check_held(fifty, before, bad, held(fifty, bad))
    check_note(fifty, bad)
    until(partial(has_failed_since, fifty, 0), "it to fail over and over")
    check_held(fifty, before, bad, fifty.status())
    fifty.rest()  # who comes back knows nothing but the journal, and is no quicker with the axe
    fifty.follow()
    until(partial(has_failed_since, fifty, fifty.said(fifty.canary).count("/livz")), "it to fail on and on")
    check_held(fifty, before, bad, fifty.status())
    assert fifty.starts(fifty.canary) == before.beings[fifty.canary].starts


def test_who_is_killed_while_the_rollout_is_held_comes_back_as_it_was(fifty: Incident) -> None:
    fifty.follow()
    before = calm(fifty)
    bad = fifty.declare("A typo, and a death", greeting="helo again", readiness="/reedyz")
    held(fifty, bad)
    fifty.kill("bot-31")
    until(lambda: fifty.pids("bot-31"), "bot-31 is back")
    until(lambda: fifty.row(fifty.status(), "bot-31")["ready"], "bot-31 is Ready")
    answer, again, old = fifty.status(), fifty.beings()["bot-31"], before.beings["bot-31"]
    assert touched(fifty, before, answer) == {fifty.canary, "bot-31"}
    assert (again.spec, again.starts) == (old.spec, old.starts + 1)
    assert {name for name, text in fifty.greetings().items() if text != "hello"} == {fifty.canary}
    assert (answer["phase"], fifty.halted(answer)) == ("Degraded", fifty.others)
    check_note(fifty, bad)
    assert fifty.ask("explain", "bot-31")["actions"][0]["reason"] in GONE


def test_with_revert_the_fleet_is_back_without_a_human_in_every_form(fifty: Incident) -> None:
    fifty.follow()
    before = calm(fifty, REVERT)
    story = {}
    for form, typo in FORMS.items():
        good = fifty.log_of()[0]
        bad = fifty.declare(f"A typo nobody is awake for: {form}", **typo)
        until(partial(has_moved, fifty, bad), "the revert")
        revert, parent, earlier = fifty.log_of()[:3]
        assert (parent, earlier) == (bad, good), "one commit of ours on top, nothing forced"
        answer = fifty.await_phase(revert, "Converged")
        assert touched(fifty, before, answer) <= {fifty.canary}
        assert fifty.beings()[fifty.canary].spec == before.beings[fifty.canary].spec
        until(lambda: not fifty.halted(fifty.status()), "nobody is Halted")
        fifty.git("pull", "-q", "--ff-only", "origin", "main")
        assert fifty.git("diff", good, revert) == ""
        story[bad] = (good, revert)
    until(lambda: fifty.note(revert).startswith(f"{fifty.instance}: Converged"), "the note")
    for bad, (good, revert) in story.items():
        failed, back = (parse_note(fifty.note(sha)) or {} for sha in (bad, revert))
        assert (failed["phase"], failed["RolledBackBy"]) == ("Degraded", revert)
        assert (back["phase"], back["RollsBackTo"]) == ("Converged", good)
        assert f"reverted by {revert[:10]}" in fifty.note(bad)
        assert fifty.canary in fifty.note(bad).splitlines()[0]


def test_a_good_commit_after_a_typo_reaches_all_fifty(fifty: Incident) -> None:
    fifty.follow()
    before = calm(fifty)
    fifty.await_phase(fifty.declare("One more typo", readiness="/reddyz"), "Degraded")
    good = fifty.declare("The fix, and something new", greeting="good morning")
    answer = fifty.await_phase(good, "Converged")
    assert answer["enforced"] == good
    assert set(fifty.greetings().values()) == {"good morning"}
    now = fifty.beings()
    assert {now[name].starts - before.beings[name].starts for name in fifty.names} == {1}
    until(lambda: not fifty.halted(fifty.status()), "nobody is Halted")
    assert fifty.all_answer()
