"""A slip never ends an agent: whatever is left of its document, the agent runs on and the commit is Invalid."""

from __future__ import annotations

from tests.support.fleet import Fleet, Json

SLIPS = {
    "an empty file": "",
    "only comments": "# apiVersion: gitops-agent.dev/v1\n# kind: Agent\n",
    "an empty mapping": "{}\n",
    "a pointer of Git LFS": f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 420\n",
    "armour": "-----BEGIN PGP MESSAGE-----\n\nhQEMA0\n=abcd\n-----END PGP MESSAGE-----\n",
    "half a line": "apiVersi",
}


def vanished(answer: Json) -> list[str]:
    return [each["address"] for each in answer["findings"] if each["code"] == "VanishedDocument"]


def test_slips_one_after_the_other_end_no_agent_and_only_a_deletion_does(fleet: Fleet) -> None:
    good = fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    pids = fleet.pids()
    whole = (fleet.work / "a.yaml").read_text(encoding="utf-8")
    nested = "agent:\n" + "".join(f"  {line}\n" for line in whole.splitlines())
    for what, text in {**SLIPS, "a document below a key": nested}.items():
        slip = fleet.commit({"a.yaml": text}, what)
        answer = fleet.once(code=3)  # a process of its own each time: what is in force is read again
        assert (answer["phase"], answer["commit"], answer["enforced"]) == ("Invalid", slip, good), what
        assert vanished(answer) == ["a.yaml:1:1"], what
        assert fleet.pids() == pids, what
    moved = fleet.commit({"a.yaml": None, ".off/a.yaml": whole})
    answer = fleet.once(code=3)
    assert (answer["commit"], vanished(answer), fleet.pids()) == (moved, [".off/a.yaml:1:1"], pids)
    fleet.commit({".off/a.yaml": None}, push=False)
    hidden = fleet.commit({"a.yaml": whole, ".gitopsignore": "a.yaml\n"})
    answer = fleet.once(code=3)
    assert (answer["commit"], vanished(answer)) == (hidden, ["a.yaml:1:1"])
    assert "VanishedDocument" in fleet.call("plan").err + fleet.call("plan").out
    assert "VanishedDocument" in fleet.note(hidden)
    assert fleet.pids() == pids

    fleet.commit({"a.yaml": None, ".gitopsignore": None})
    assert fleet.once()["phase"] == "Converged"
    assert fleet.pids("b")
    assert not fleet.pids("a")


def test_a_revert_of_the_commit_that_put_an_agent_into_an_existing_file_is_followed(fleet: Fleet) -> None:
    policy = fleet.policy()
    fleet.commit({"fleet.yaml": policy, **fleet.agents("a")})
    fleet.once()
    fleet.commit({"fleet.yaml": f"{policy}---\n{fleet.agent('b')}"})
    fleet.once()
    assert fleet.pids("b")
    fleet.commit({"fleet.yaml": f"{policy}# {fleet.tenant}\n"})
    assert vanished(fleet.once(code=3)) == ["fleet.yaml:1:1"]
    fleet.revert("HEAD")
    fleet.once()
    back = fleet.revert("HEAD~2")
    answer = fleet.once()
    assert (answer["phase"], answer["enforced"]) == ("Converged", back)
    assert fleet.pids("a")
    assert not fleet.pids("b")
