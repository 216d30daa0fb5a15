"""Commits and sources that are not followed: the last good one stays in force, is said to, and is repaired."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.support.fleet import Fleet, Json

BROKEN = """\
apiVersion: gitops-agent.dev/v1
kind: Agent
metadata: {name: x, tenant: TENANT}
spec:
  runtime:
    driver: process
    comand: [sleep, "600"]
    replicas: none
"""


def codes(answer: Json) -> list[str]:
    return [finding["code"] for finding in answer["findings"]]


def assert_still_repaired(fleet: Fleet, code: int, *names: str) -> Json:
    """Kill agents, and see them come back while the newest commit is not followed."""
    lost = {name: fleet.kill(name) for name in names}
    answer = fleet.once(code=code)
    assert all(fleet.pid(name) != pid for name, pid in lost.items())
    return answer


def test_a_cluster_that_the_settings_let_nobody_name_is_refused_and_what_runs_stays(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents("a"))
    fleet.once()
    pids = fleet.pids()
    elsewhere = {"driver": "kubernetes", "image": "registry.example/bot:1", "kubernetes": {"context": "prod"}}
    fleet.commit(fleet.agents("a", runtime={**elsewhere, "minUptime": "1s"}), "Move a to prod")
    answer = fleet.once(code=3)
    assert (answer["phase"], answer["enforced"]) == ("Invalid", good)
    assert fleet.pids() == pids
    (found,) = (each for each in answer["findings"] if each["code"] == "DriverRefused")
    line = next(n for n, text in enumerate((fleet.work / "a.yaml").read_text().splitlines(), 1) if "prod" in text)
    assert found["address"].startswith(f"a.yaml:{line}:")
    assert "may not name the context prod" in found["summary"]
    assert "drivers.kubernetes.contexts" in found["summary"]
    assert fleet.call("validate", str(fleet.work)).code == 0, "what this machine is told is not what the other is"
    setting = "GITOPS_AGENT_DRIVERS__KUBERNETES__CONTEXTS"
    assert fleet.call("validate", str(fleet.work), **{setting: "staging"}).code == 3
    fleet.commit({**fleet.agents("a"), "b.yaml": fleet.agent("b", runtime=elsewhere)}, "Only b is to be in prod")
    assert fleet.once("--timeout", "2s", code=5, **{setting: "prod"})["phase"] == "Reconciling", (
        "now it is allowed"
    )
    taken_back = fleet.once("--timeout", "2s", code=5)
    assert "StricterRules" in codes(taken_back), "what was accepted stays in force"
    assert fleet.pids() == pids


def test_what_is_wrong_with_a_commit_is_said_anew_when_settings_change(fleet: Fleet) -> None:
    def at(context: str) -> dict[str, object]:
        return {"driver": "kubernetes", "image": "registry.example/bot:1", "kubernetes": {"context": context}}

    fleet.commit({**fleet.agents("a", runtime=at("prod")), **fleet.agents("b", runtime=at("edge"))})

    def refused(**settings: str) -> list[str]:
        return [each["address"].partition(":")[0] for each in fleet.once(code=3, **settings)["findings"]]

    assert refused() == ["a.yaml", "b.yaml"]
    assert refused(GITOPS_AGENT_DRIVERS__KUBERNETES__CONTEXTS="prod") == ["b.yaml"]


def test_an_invalid_commit_is_refused_whole_with_every_error(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    pids = fleet.pids()
    broken = BROKEN.replace("TENANT", fleet.tenant)
    bad = fleet.commit(
        {"x.yaml": broken, "y.yaml": "kind: [\n"} | fleet.agents("a", runtime={"replicas": 2}), "Oops \x1b[31m"
    )
    answer = fleet.once(code=3)
    assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Invalid", bad, good)
    assert fleet.pids() == pids, "not even the valid half of it"
    found = {finding["address"]: finding for finding in answer["findings"]}
    assert any(address.startswith("x.yaml:7:5") for address in found)
    assert "command" in json.dumps(found), "did you mean"
    assert any(address.startswith("x.yaml:8:") for address in found)
    assert any(address.startswith("y.yaml:") for address in found), "all of them at once"

    status = fleet.call("status")
    assert status.code == 0
    assert f"enforcing {good[:10]}" in status.out
    assert "x.yaml:7:5" in status.out
    assert fleet.note(bad).startswith(f"{fleet.instance}: Invalid, ")
    assert "x.yaml:7:5" in fleet.note(bad)
    checked = fleet.call("validate", str(fleet.work), "-o", "json")
    assert checked.code == 3
    assert {finding["address"] for finding in checked.json["findings"]} >= set(found)

    assert_still_repaired(fleet, 3, "a")
    assert fleet.call("plan").code == 3
    back = fleet.revert("HEAD")
    answer = fleet.once()
    assert (answer["phase"], answer["enforced"]) == ("Converged", back)
    assert fleet.ask("history")["commits"][1]["rolledBackBy"] == back


def test_a_first_commit_that_is_invalid_starts_nothing(fleet: Fleet) -> None:
    fleet.commit({"x.yaml": BROKEN.replace("TENANT", fleet.tenant)})
    answer = fleet.once(code=3)
    assert (answer["enforced"], answer["agents"]) == (None, [])
    text = fleet.call("once")
    assert text.code == 3
    assert re.search(r"x\.yaml:7:5", text.out)


@pytest.mark.parametrize("policy", ["refuse", "follow"])
def test_a_rewritten_branch(fleet: Fleet, policy: str) -> None:
    start = fleet.commit(fleet.agents("a") | {"gitops-agent.yaml": fleet.policy(forcePush=policy)})
    good = fleet.commit(fleet.agents("b"), "Good")
    fleet.once()
    fleet.git("reset", "-q", "--hard", start)
    rewritten = fleet.commit(fleet.agents("a", "c"), "Rewritten", push=False)
    fleet.push("--force")

    if policy == "follow":
        answer = fleet.once()
        assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Converged", rewritten, rewritten)
        assert (fleet.pids("b"), len(fleet.pids("c"))) == ([], 1)
        assert "ForcePush" in codes(answer)
        return
    answer = fleet.once(code=6)
    assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Refused", rewritten, good)
    assert codes(answer) == ["ForcePush"]
    assert (fleet.pids("c"), len(fleet.pids("b"))) == ([], 1)
    assert "ForcePush" in fleet.call("status").out
    assert fleet.note(rewritten).startswith(f"{fleet.instance}: Refused, ")
    assert fleet.ask("history")["commits"][0]["phase"] == "Refused"

    on_top = fleet.commit(fleet.agents("d"), "On top of it")
    answer = assert_still_repaired(fleet, 6, "a", "b")
    assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Refused", on_top, good)
    assert fleet.pids("d") == []

    fleet.git("merge", "-q", "-s", "ours", "--no-edit", good)
    fleet.push()
    answer = fleet.once()
    assert (answer["phase"], answer["enforced"]) == ("Converged", fleet.head())
    assert len(fleet.pids("d")) == 1


def rewrite(fleet: Fleet, policy: str) -> tuple[str, str]:
    """A branch that is rewritten under a fleet that converged: the last good commit, which is on no branch any
    more, and the one in its place."""
    start = fleet.commit(fleet.agents("a") | {"gitops-agent.yaml": fleet.policy(forcePush=policy)})
    good = fleet.commit(fleet.agents("b"), "Good")
    fleet.once()
    fleet.git("reset", "-q", "--hard", start)
    rewritten = fleet.commit(fleet.agents("a", "c"), "Rewritten", push=False)
    fleet.push("--force")
    return good, rewritten


def lose_the_mirror(fleet: Fleet) -> None:
    """What another machine has that shares the journal: no copy of the repository, and nothing made of it."""
    shutil.rmtree(fleet.state / "mirror.git")
    for path in fleet.state.glob("snapshot-cache.sqlite*"):
        path.unlink()


def test_a_lost_mirror_does_not_end_the_repair_after_a_refused_rewrite(fleet: Fleet) -> None:
    good, rewritten = rewrite(fleet, "refuse")
    fleet.once(code=6)
    lose_the_mirror(fleet)
    answer = assert_still_repaired(fleet, 6, "a", "b")
    assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Refused", rewritten, good)
    assert codes(answer) == ["ForcePush"]
    assert fleet.pids("c") == []


def tidy_up(fleet: Fleet) -> None:
    """What a server does after a while: what is on no branch is gone."""
    fleet.git("reflog", "expire", "--expire=now", "--all", where=fleet.bare)
    fleet.git("gc", "-q", "--prune=now", where=fleet.bare)


@pytest.mark.parametrize("tidied", [False, True])
def test_a_lost_mirror_does_not_keep_a_rewrite_from_being_followed(fleet: Fleet, *, tidied: bool) -> None:
    _, rewritten = rewrite(fleet, "follow")
    lose_the_mirror(fleet)
    if tidied:
        tidy_up(fleet)
    answer = fleet.once()
    assert (answer["phase"], answer["enforced"]) == ("Converged", rewritten)
    assert (fleet.pids("b"), len(fleet.pids("c"))) == ([], 1)


def test_a_good_commit_that_nobody_gives_us_is_named_until_somebody_pushes_it(fleet: Fleet) -> None:
    """The server has tidied up as well: then only a clone has it."""
    good, rewritten = rewrite(fleet, "refuse")
    fleet.once(code=6)
    tidy_up(fleet)
    lose_the_mirror(fleet)
    answer = fleet.once(code=6)
    assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Refused", rewritten, good)
    lost = next(finding for finding in answer["findings"] if finding["code"] == "SourceRefused")
    assert good[:10] in lost["summary"]
    assert "none of them is repaired" in lost["summary"]
    fleet.git("push", "-q", "origin", f"{good}:refs/heads/last-good")
    answer = assert_still_repaired(fleet, 6, "a", "b")
    assert codes(answer) == ["ForcePush"]


def test_a_branch_moved_back_is_refused_too(fleet: Fleet) -> None:
    start = fleet.commit(fleet.agents("a"))
    fleet.once()
    good = fleet.commit(fleet.agents("b"))
    fleet.once()
    fleet.git("reset", "-q", "--hard", start)
    fleet.push("--force")
    answer = fleet.once(code=6)
    assert (answer["phase"], answer["enforced"]) == ("Refused", good)
    assert len(fleet.pids("b")) == 1
    fleet.git("reset", "-q", "--hard", good)
    fleet.push()
    answer = fleet.once()
    assert (answer["phase"], answer["commit"]) == ("Converged", good)


def test_a_source_that_is_gone_changes_nothing_and_may_come_back(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents("a", "b") | {"prod/.keep": ""})
    fleet.once()
    away = fleet.bare.with_name("away.git")

    fleet.bare.rename(away)
    answer = assert_still_repaired(fleet, 6, "a")
    assert (answer["phase"], answer["enforced"]) == ("Converged", good)
    assert codes(answer) == ["SourceUnavailable"]
    assert codes(fleet.ask("status")) == ["SourceUnavailable"]
    explained = fleet.call("explain", "a").out
    assert "SourceUnavailable" in explained
    plan = fleet.call("plan", "-o", "json")
    assert (plan.code, plan.out) == (6, "")
    assert "error:" in plan.err
    assert "hint:" in plan.err

    fleet.git("init", "-q", "--bare", "--initial-branch=main", str(fleet.bare), where=away)
    answer = assert_still_repaired(fleet, 6, "b")
    assert codes(answer) == ["SourceRefused"]
    assert "is empty" in answer["findings"][0]["summary"]
    assert answer["enforced"] == good

    fleet.git("push", "-q", str(fleet.bare), "main:other")
    answer = fleet.once(code=6)
    assert "branch main was deleted" in answer["findings"][0]["summary"]
    assert "other" in answer["findings"][0]["summary"]
    assert len(fleet.pids()) == 2

    fleet.git("push", "-q", str(fleet.bare), "main")
    answer = fleet.once()
    assert (answer["phase"], answer["findings"]) == ("Converged", [])
    assert codes(fleet.ask("status")) == []


def test_nothing_to_start_from(fleet: Fleet) -> None:
    answer = fleet.once(code=6)
    assert (answer["commit"], answer["enforced"], answer["phase"], answer["agents"]) == (None, None, None, [])
    assert "is empty" in answer["findings"][0]["summary"]
    fleet.commit(fleet.agents("a"))
    missing = fleet.once("--branch", "nightly", code=6)
    assert "branch nightly does not exist" in missing["findings"][0]["summary"]
    path = fleet.once("--path", "no/such", code=6)
    assert codes(path) == ["PathMissing"]
    elsewhere = str(fleet.state.parent / "elsewhere")  # a state directory belongs to one repository
    gone = fleet.once("--repo", f"{fleet.bare}x", "--state-dir", elsewhere, code=6)
    assert codes(gone)[0] == "SourceUnavailable"
    assert fleet.pids() == []
    assert fleet.once()["phase"] == "Converged", "a corrected option is all it takes"


def test_a_folder_that_vanishes_is_a_mistake_not_an_empty_fleet(fleet: Fleet) -> None:
    files = {f"prod/{name}": text for name, text in fleet.agents("a").items()}
    good = fleet.commit(files)
    fleet.once("--path", "prod")
    fleet.git("mv", "prod", "production")
    fleet.commit({}, "Rename")
    answer = fleet.once("--path", "prod", code=6)
    assert (answer["phase"], answer["enforced"], codes(answer)) == ("Refused", good, ["PathMissing"])
    assert len(fleet.pids()) == 1
