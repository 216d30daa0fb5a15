"""What Git sees when a gate fails: nothing, a proposal, or a revert; once and fast-forward, whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.errors import SourceRefused, SourceUnavailable
from gitops_agent.model.status import Phase
from gitops_agent.testing.faults import Crash, FaultInjector, crash
from gitops_agent.testing.memory_driver import runtime_key

from .repository import Repository, key
from .world import World

NAMES = [f"a{number:02}" for number in range(3)]
FIRST: dict[str, Any] = {"runtime": {"command": ["first"]}}
TYPO: dict[str, Any] = {
    "runtime": {"command": ["typo"]},
    "probes": {"readiness": {"exec": {"command": ["false"]}}},
}
GOOD: dict[str, Any] = {"runtime": {"command": ["good"]}}
DOWN = SourceUnavailable("the remote does not answer")


def fleet(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: {"rollout": {"healthTimeout": "2s"}, **spec} for name in NAMES}


def commands(world: World) -> set[str]:
    found = (world.live.live[runtime_key(key(name))].fields.value["command"] for name in NAMES)
    return {command[0] for command in found}


def codes(world: World, sha: str) -> dict[str, str]:
    """What the note on a commit says, by code."""
    record = world.journal.commit_record(sha)
    assert record is not None
    return {finding.code: finding.summary for finding in record.findings}


def started(world: World, on_failure: str) -> str:
    good = world.repository.commit(fleet(FIRST), policy={"rollout": {"onFailure": on_failure}})
    assert world.converge().phase is Phase.CONVERGED
    return good


def branches(world: World) -> list[str]:
    return [branch for _, branch in world.repository.pushed]


def own_commits(repository: Repository) -> list[str]:
    """The commits that we made ourselves, pushed or not."""
    return [sha for sha, commit in repository.commits.items() if "failed its gate" in commit.revision.message]


def test_hold_leaves_git_alone(world: World) -> None:
    started(world, "Hold")
    bad = world.repository.commit(fleet(TYPO))
    assert world.converge().phase is Phase.DEGRADED
    assert (world.repository.head, world.repository.pushed, own_commits(world.repository)) == (bad, [], [])


def test_revert_brings_the_fleet_back_without_a_human(world: World) -> None:
    good = started(world, "Revert")
    bad = world.repository.commit(fleet(TYPO))
    assert world.converge().phase is Phase.CONVERGED
    (revert,) = own_commits(world.repository)
    assert world.repository.pushed == [(revert, "main")]
    assert world.repository.revision(revert).parents == (bad,)
    assert commands(world) == {"first"}
    failed, back = world.journal.commit_record(bad), world.journal.commit_record(revert)
    assert failed is not None
    assert back is not None
    assert (failed.phase, failed.rolled_back_by) == (Phase.DEGRADED, revert)
    assert back.rolls_back_to == good
    assert f"reverted by {revert[:10]}" in codes(world, bad)["Reverted"]


def test_a_proposal_leaves_the_branch_and_is_named(world: World) -> None:
    started(world, "ProposeRevert")
    bad = world.repository.commit(fleet(TYPO))
    assert world.converge().phase is Phase.DEGRADED
    assert (world.repository.head, branches(world)) == (bad, [f"gitops-agent/revert-{bad[:10]}"])
    assert branches(world)[0] in codes(world, bad)["RevertProposed"]
    world.boot()
    world.converge()
    assert len(world.repository.pushed) == 1, "a proposal is made once"
    world.repository.head = world.repository.pushed[0][0]
    assert world.converge().phase is Phase.CONVERGED, "merging it heals"
    assert commands(world) == {"first"}


def test_several_commits_since_the_last_good_one_are_reverted_as_one(world: World) -> None:
    good = started(world, "Revert")
    first = world.repository.commit(fleet(TYPO))
    second = world.repository.commit({**fleet(TYPO), "new": FIRST})
    assert world.converge().phase is Phase.CONVERGED
    (revert,) = own_commits(world.repository)
    assert world.repository.revision(revert).parents == (second,)
    assert world.repository.revision(revert).tree == world.repository.revision(good).tree
    text = world.repository.revision(revert).message
    assert first in text
    assert second in text


class Remote:
    """A remote in front of the one in memory: branches that take no push, and somebody who is quicker than we."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._repository, self._push = world.repository, world.repository.push
        self.tried: list[str] = []
        self.protected: set[str] = set()
        self.meanwhile: Callable[[], object] | None = None
        monkeypatch.setattr(world.repository, "push", self.push)

    def push(self, sha: str, branch: str) -> None:
        self.tried.append(sha)
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        if branch in self.protected:
            raise SourceRefused(f"{branch} takes no push")
        self._push(sha, branch)


@pytest.fixture
def remote(world: World, monkeypatch: pytest.MonkeyPatch) -> Remote:
    return Remote(world, monkeypatch)


@pytest.fixture
def failing(world: World) -> Callable[[str], str]:
    """A canary whose time is nearly up: the next passes fail the gate and answer it. Gives the bad commit."""

    def make(on_failure: str) -> str:
        started(world, on_failure)
        bad = world.repository.commit(fleet(TYPO))
        world.run()
        world.clock.advance(1.9)
        world.run()
        return bad

    return make


@pytest.mark.parametrize("on_failure", ["Revert", "ProposeRevert"])
def test_whenever_we_die_the_same_revert_is_sent(tmp_path: Path, on_failure: str) -> None:
    """A crash after every write from the failed gate to the report of the revert; to die before or inside one is
    to die after the one before it. Afterwards one commit was sent, to one place."""
    points = _die(tmp_path / "counted", on_failure, FaultInjector())
    assert len(points) > 5
    for number, point in enumerate(points):
        _die(tmp_path / str(number), on_failure, FaultInjector.at(point, crash))


def _die(folder: Path, on_failure: str, injector: FaultInjector) -> tuple[str, ...]:
    """Have the gate fail with an injector at work, and start again; the points of the passes that answered it:
    one notes that a revert is due, one records the commit that was made, one what became of its push."""
    folder.mkdir()
    world = World(folder)
    started(world, on_failure)
    bad = world.repository.commit(fleet(TYPO))
    world.boot(injector)
    world.run()
    world.clock.advance(2.1)
    before = len(injector.points())
    with contextlib.suppress(Crash):
        for _ in range(3):
            world.clock.advance(world.run(fetch=False).wait or 0.0)
    answered = tuple(point for point in injector.points()[before:] if ":after:" in point)
    world.boot()
    world.converge()
    (sent,) = {sha for sha, _ in world.repository.pushed}
    (where,) = set(branches(world))
    assert where == ("main" if on_failure == "Revert" else f"gitops-agent/revert-{bad[:10]}")
    assert world.repository.revision(sent).parents == (bad,)
    if on_failure == "ProposeRevert":
        assert world.repository.head == bad
        assert codes(world, bad)["RevertProposed"].startswith(f"branch {where}")
    else:
        assert (world.repository.head, world.phase(sent)) == (sent, Phase.CONVERGED)
        assert commands(world) == {"first"}
    world.shut()
    return answered


def test_died_between_making_and_sending(world: World, failing: Callable[[str], str]) -> None:
    bad = failing("Revert")
    world.clock.advance(2)
    world.repository.down = DOWN
    for _ in range(2):  # one pass makes it, the next records it and cannot push it
        assert world.run(fetch=False).phase is Phase.DEGRADED
    (made,) = own_commits(world.repository)
    assert world.repository.pushed == []
    world.boot()
    world.repository.down = None
    assert world.converge().phase is Phase.CONVERGED
    assert world.repository.pushed == [(made, "main")], "the one that was made, not another"
    assert own_commits(world.repository) == [made]
    assert world.phase(bad) is Phase.DEGRADED


def test_died_between_making_and_recording(world: World, failing: Callable[[str], str]) -> None:
    """What is not on record was not begun: another commit is made, and only that one is sent."""
    failing("Revert")
    world.clock.advance(2)
    world.run(fetch=False)
    (lost,) = own_commits(world.repository)
    world.boot()
    assert world.converge().phase is Phase.CONVERGED
    ((sent, branch),) = world.repository.pushed
    assert branch == "main"
    assert own_commits(world.repository) == [lost, sent]


def test_a_remote_that_is_down_is_asked_again_later_and_later(
    world: World, remote: Remote, failing: Callable[[str], str]
) -> None:
    failing("Revert")
    world.clock.advance(2)
    world.repository.down = DOWN
    moments: list[float] = []
    for _ in range(200):
        result = world.run(fetch=False)
        moments += [world.clock.monotonic()] * (len(remote.tried) - len(moments))
        assert result.wait is not None, "somebody wakes us"
        world.clock.advance(result.wait)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert gaps == sorted(gaps)
    assert len(gaps) > 3
    assert gaps[-1] > 4 * gaps[0]
    assert len(set(remote.tried)) == 1
    world.repository.down = None
    world.clock.advance(300)
    assert world.converge().phase is Phase.CONVERGED
    assert branches(world) == ["main"]


def test_who_pushed_meanwhile_wins(world: World, remote: Remote, failing: Callable[[str], str]) -> None:
    failing("Revert")
    world.clock.advance(2)
    theirs: list[str] = []
    remote.meanwhile = lambda: theirs.append(world.repository.commit(fleet(GOOD)))
    assert world.converge().phase is Phase.CONVERGED
    assert world.repository.head == theirs[0]
    assert commands(world) == {"good"}


def test_who_pushed_meanwhile_and_kept_the_typo_is_answered_too(
    world: World, remote: Remote, failing: Callable[[str], str]
) -> None:
    failing("Revert")
    world.clock.advance(2)
    remote.meanwhile = lambda: world.repository.commit({**fleet(TYPO), "new": FIRST})
    before = dict(world.live.starts)
    assert world.converge().phase is Phase.CONVERGED
    assert commands(world) == {"first"}
    restarted = {
        resource.agent.name for resource, count in world.live.starts.items() if before.get(resource) != count
    }
    assert restarted == {"a00", "new"}


def test_a_branch_that_takes_no_push_gets_a_proposal(
    world: World, remote: Remote, failing: Callable[[str], str]
) -> None:
    bad = failing("Revert")
    world.clock.advance(2)
    remote.protected = {"main"}
    assert world.converge().phase is Phase.DEGRADED
    assert (world.repository.head, branches(world)) == (bad, [f"gitops-agent/revert-{bad[:10]}"])
    assert branches(world)[0] in codes(world, bad)["RevertProposed"]


def test_no_branch_takes_a_push(world: World, remote: Remote, failing: Callable[[str], str]) -> None:
    bad = failing("Revert")
    world.clock.advance(2)
    remote.protected = {"main", f"gitops-agent/revert-{bad[:10]}"}
    assert world.converge().phase is Phase.DEGRADED
    assert "takes no push" in codes(world, bad)["NotReverted"]
    world.clock.advance(3600)
    world.converge()
    assert world.repository.pushed == []


def test_a_revert_that_fails_is_not_reverted(world: World, failing: Callable[[str], str]) -> None:
    """What was wrong is not in Git: the old tree cannot be had any more either."""
    bad = failing("Revert")
    world.clock.advance(2)
    world.live.fail_always("no space left", key=runtime_key(key("a00")))
    result = world.converge()
    (revert,) = own_commits(world.repository)
    assert (result.phase, result.state.source.head) == (Phase.DEGRADED, revert)
    world.boot()
    world.clock.advance(3600)
    world.converge()
    assert world.repository.pushed == [(revert, "main")]
    assert world.phase(bad) is Phase.DEGRADED


def test_nothing_ever_converged_so_there_is_no_way_back(world: World) -> None:
    bad = world.repository.commit(fleet(TYPO), policy={"rollout": {"onFailure": "Revert"}})
    assert world.converge().phase is Phase.DEGRADED
    assert world.repository.pushed == []
    assert "no commit has ever converged" in codes(world, bad)["NotReverted"]


def test_a_commit_cannot_ask_for_the_revert_of_itself(world: World) -> None:
    started(world, "Hold")
    bad = world.repository.commit(fleet(TYPO), policy={"rollout": {"onFailure": "Revert"}})
    assert world.converge().phase is Phase.DEGRADED
    assert (world.repository.head, world.repository.pushed) == (bad, [])
