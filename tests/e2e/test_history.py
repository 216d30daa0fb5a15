"""Real fleets back through real history: what runs, what is on disk and what is on record are those of then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gitops_agent.journal.store import open_journal
from gitops_agent.report.sinks.git_notes import parse_note
from tests.support.fleet import Fleet, Json

NEVER: Json = {"probes": {"readiness": {"exec": {"command": ["false"]}, "period": "100ms"}}}


@dataclass(frozen=True)
class Picture:
    """A fleet as the kernel, the disk and our record show it; two are equal when the fleet is the same."""

    marks: dict[str, str]
    bundles: dict[str, bytes]
    record: dict[str, Any]


def picture(fleet: Fleet, *names: str) -> Picture:
    """Of these agents: what runs must be exactly one process of each."""
    marks = {name: fleet.marked(name)[fleet.pid(name)]["MANAGED_AGENT_SPEC"] for name in names}
    bundles = {name: (fleet.folder(name) / "config.json").read_bytes() for name in names}
    journal = open_journal(fleet.state, read_only=True)
    try:
        record = {
            str(key): base.fields.value
            for key, base in journal.state().reconcile.bases.items()
            if not base.retained
        }
    finally:
        journal.close()
    return Picture(marks, bundles, record)


def pids(fleet: Fleet, *names: str) -> dict[str, int]:
    return {name: fleet.pid(name) for name in names}


def story(fleet: Fleet, *shas: str) -> list[tuple[str | None, str | None]]:
    """What our notes in Git say on some commits: rolled back by, rolls back to."""
    notes = [parse_note(fleet.note(sha)) or {} for sha in shas]
    return [(note.get("RolledBackBy"), note.get("RollsBackTo")) for note in notes]


def restore(fleet: Fleet, sha: str) -> str:
    """``gitops-agent rollback --to``, and a clone that follows."""
    made = fleet.ask("rollback", "--to", sha, "--yes")
    fleet.git("pull", "-q", "--ff-only", "origin", "main")
    commit: str = made["commit"]
    return commit


def test_a_merge_its_revert_an_invalid_commit_and_any_earlier_state(fleet: Fleet) -> None:
    start = fleet.commit(fleet.agents("a", "b", "c", instructions="One."), "Start")
    fleet.once()
    before, was = picture(fleet, "a", "b", "c"), pids(fleet, "a", "b", "c")

    # On a branch: one changes, one goes, one comes and one comes to stay.
    fleet.git("checkout", "-q", "-b", "topic")
    first = fleet.commit(fleet.agents("a", instructions="Two.") | {"c.yaml": None}, "One goes", push=False)
    second = fleet.commit(fleet.agents("d") | fleet.agents("e", deletionPolicy="Retain"), "Two come", push=False)
    fleet.git("checkout", "-q", "main")
    fleet.git("merge", "-q", "--no-ff", "--no-edit", "topic")
    merge = fleet.head()
    fleet.push()
    assert fleet.once()["phase"] == "Converged"
    merged, then = picture(fleet, "a", "b", "d", "e"), pids(fleet, "a", "b", "d", "e")
    assert fleet.pids("c") == []

    back = fleet.revert("-m", "1", merge)
    assert fleet.once()["phase"] == "Converged"
    assert picture(fleet, "a", "b", "c") == before
    assert (fleet.pid("b"), fleet.pids("d"), fleet.pids("e")) == (was["b"], [], [then["e"]])
    assert story(fleet, merge, first, second, back) == [(back, None)] * 3 + [(None, start)]

    again = fleet.revert("HEAD")
    fleet.once()
    assert picture(fleet, "a", "b", "d", "e") == merged
    assert (fleet.pid("e"), fleet.pids("c")) == (then["e"], []), "taken up again as it runs"
    assert story(fleet, back, again) == [(again, start), (None, merge)]

    # An invalid commit was never in force, so taking it back does nothing.
    now = pids(fleet, "a", "b", "d", "e")
    invalid = fleet.commit(fleet.agents("a", lifecycle="Runing"), "Oops")
    assert fleet.once(code=3)["enforced"] == again
    recently_repaired = fleet.revert("HEAD")
    assert fleet.once()["phase"] == "Converged"
    assert pids(fleet, "a", "b", "d", "e") == now
    assert story(fleet, invalid, recently_repaired) == [(recently_repaired, None), (None, again)]

    # All of it at once. It goes to the newest commit with that tree; what was taken back before, and the revert
    # that did it, stay a pair.
    end = restore(fleet, start)
    assert fleet.once()["phase"] == "Converged"
    assert picture(fleet, "a", "b", "c") == before
    assert fleet.pid("b") == was["b"], "nobody touched b in all that time"
    assert story(fleet, end, again, invalid, recently_repaired) == [
        (None, back),
        (end, merge),
        (recently_repaired, None),
        (None, again),
    ]


def test_reverts_of_a_rollout_half_done_and_of_one_that_is_held(fleet: Fleet) -> None:
    names = ("a", "b", "c", "d")
    quick: Json = {"rollout": {"healthTimeout": "1s"}}
    policy = {"p.yaml": fleet.policy(rollout={"pause": "1h"})}
    start = fleet.commit(fleet.agents(*names, instructions="One.", **quick) | policy, "Start")
    fleet.once()
    before, was = picture(fleet, *names), pids(fleet, *names)

    half = fleet.commit(fleet.agents(*names, instructions="Two.", **quick), "Half")
    fleet.once("--timeout", "1s", code=5)
    assert [name for name in names if fleet.pid(name) != was[name]] == ["a"], "the canary, and then an hour"
    back = fleet.revert("HEAD")
    assert fleet.once()["phase"] == "Converged"
    assert picture(fleet, *names) == before
    assert {name: pid for name, pid in was.items() if fleet.pid(name) != pid} == {"a": was["a"]}
    assert story(fleet, half, back) == [(back, None), (None, start)]

    bad = fleet.commit(fleet.agents(*names, instructions="Three.", **quick, **NEVER), "Bad")
    assert fleet.once(code=5)["phase"] == "Degraded"
    good = fleet.revert("HEAD")
    assert fleet.once()["phase"] == "Converged"
    assert picture(fleet, *names) == before
    assert {name for name in names if fleet.pid(name) != was[name]} == {"a"}
    assert story(fleet, bad, good) == [(good, None), (None, back)]

    # The failed tree once more: not by itself, and not for nothing.
    now = pids(fleet, *names)
    again = fleet.revert("HEAD")
    answer = fleet.once(code=4)
    assert (answer["phase"], answer["enforced"]) == ("Blocked", good)
    (finding,) = [each for each in answer["findings"] if each["code"] == "FailedBefore"]
    assert f"gitops-agent retry {bad[:10]}" in finding["detail"]
    assert pids(fleet, *names) == now
    fleet.ask("retry", bad[:10])
    assert fleet.once(code=5)["phase"] == "Degraded"
    end = restore(fleet, start)
    assert fleet.once()["phase"] == "Converged"
    assert picture(fleet, *names) == before
    assert {name for name in names if fleet.pid(name) != now[name]} == {"a"}
    assert story(fleet, again, end) == [(end, bad), (None, good)]
