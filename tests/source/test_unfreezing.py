"""Lifting a freeze of Git: by a commit that does nothing else, also when others are pushed along with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.status import Phase
from gitops_agent.source.checks import LOOKED_AT, last_of_policy_alone
from gitops_agent.testing.memory_driver import runtime_key
from tests.pipeline.conftest import world
from tests.pipeline.repository import Repository, key
from tests.pipeline.world import World

__all__ = ["world"]

FROZEN: dict[str, Any] = {"freeze": {"reason": "the fair"}}
OPEN: dict[str, Any] = {}
OLD: dict[str, Any] = {"a": {}, "b": {}}
NEW: dict[str, Any] = {"a": {"instructions": "New."}, "b": {}}


@pytest.fixture
def frozen(world: World) -> World:
    world.repository.commit(OLD)
    world.converge()
    world.repository.commit(policy=FROZEN)
    assert world.converge().phase is Phase.CONVERGED
    return world


def test_lifting_and_then_changing_may_be_pushed_together(frozen: World) -> None:
    frozen.repository.commit(policy=OPEN)
    frozen.repository.commit(NEW)
    head = frozen.repository.commit(NEW | {"c": {}})
    assert frozen.converge().phase is Phase.CONVERGED
    assert frozen.running == frozen.wanted(head)


@pytest.mark.parametrize(
    "commits",
    [
        [{"fleet": NEW, "policy": OPEN}],
        [{"fleet": NEW}, {"policy": OPEN}],
        [{"fleet": NEW, "policy": OPEN}, {"message": "nothing"}],
        [{"policy": OPEN, "broken": "not YAML"}, {"fleet": NEW, "policy": OPEN}],
        [{"policy": OPEN}, {"policy": FROZEN}, {"fleet": NEW, "policy": OPEN}],
    ],
    ids=["at once", "change first", "below another", "lifted by an invalid one", "frozen again"],
)
def test_anything_else_is_invalid_and_the_freeze_stays(frozen: World, commits: list[dict[str, Any]]) -> None:
    for commit in commits:
        frozen.repository.commit(**commit)
    result = frozen.run()
    assert result.phase is Phase.INVALID
    assert "FreezeLiftedWithChanges" in {finding.code for finding in result.findings}
    lost = runtime_key(key("b"))
    del frozen.live.live[lost]
    assert (frozen.run().executed, lost in frozen.running) == ([], False)


def test_after_it_was_refused_the_way_its_finding_names_may_be_pushed_at_once(frozen: World) -> None:
    frozen.repository.commit(NEW, policy=OPEN)
    assert frozen.run().phase is Phase.INVALID
    frozen.repository.commit(OLD)
    head = frozen.repository.commit(NEW)
    assert frozen.converge().phase is Phase.CONVERGED
    assert frozen.running == frozen.wanted(head)


def test_what_a_merge_brings_along_lifts_nothing_by_not_knowing_of_the_freeze(frozen: World) -> None:
    repository: Repository = frozen.repository
    assert repository.head is not None
    start = repository.load(repository.revision(repository.head))
    fork = repository.commit(OLD, policy=OPEN, parent=start.revision.parents[0])
    side = repository.revision(fork)
    merge = replace(side, sha="3e" * 20, parents=(start.revision.sha, fork))
    there = replace(merge, parents=(fork, start.revision.sha))

    def load(sha: str) -> Any:
        return repository.load(repository.revision(sha))

    assert last_of_policy_alone(start, [side, merge], load) is start
    assert last_of_policy_alone(start, [side, there], load) is start, "merged the other way round"


def test_what_cannot_be_read_any_more_lifts_nothing(frozen: World) -> None:
    repository = frozen.repository
    assert repository.head is not None
    start = repository.load(repository.revision(repository.head))
    lifting = repository.revision(repository.commit(policy=OPEN))
    head = repository.revision(repository.commit(NEW))
    assert last_of_policy_alone(start, [lifting, head], lambda _: None) is start
    assert last_of_policy_alone(start, [], lambda _: None) is start


def test_a_very_long_push_counts_as_one_change(frozen: World) -> None:
    frozen.repository.commit(policy=OPEN)
    for number in range(LOOKED_AT):
        frozen.repository.commit({**NEW, f"c{number}": {}})
    frozen.repository.commit(NEW)
    assert frozen.run().phase is Phase.INVALID


def test_a_freeze_of_git_is_reported_when_it_was_forgotten(frozen: World) -> None:
    def forgotten() -> bool:
        return "FreezeForgotten" in {finding.code for finding in frozen.run().findings}

    frozen.clock.advance(80_000.0)
    assert not forgotten()
    frozen.boot()  # since when is in the journal, whatever is restarted
    frozen.repository.commit(NEW)
    frozen.clock.advance(6_401.0)
    assert forgotten(), "another commit under the same freeze does not start it again"
    frozen.repository.commit(policy=OPEN)
    assert frozen.converge().phase is Phase.CONVERGED
    frozen.repository.commit(policy=FROZEN)
    assert not forgotten(), "it was lifted in between"
    frozen.clock.advance(86_401.0)
    assert forgotten()


def test_the_reminder_cannot_be_put_off_by_the_commit_that_freezes(world: World) -> None:
    world.repository.commit(OLD, policy={"freezeReminder": "1h"})
    world.converge()
    world.repository.commit(NEW, policy={"freezeReminder": "9d", **FROZEN})
    world.run()
    world.clock.advance(3_601.0)
    assert "FreezeForgotten" in {finding.code for finding in world.run().findings}


@pytest.mark.parametrize(
    ("freeze", "lifts"),
    [
        ({"scope": "*", "reason": "audit", "until": "2023-11-14T22:13:22Z"}, True),  # in two seconds
        ({"scope": "acme", "reason": "audit"}, True),
        ({"scope": "acme/a", "reason": "audit"}, True),
        ({"scope": "*", "reason": "another reason"}, False),
    ],
)
def test_a_freeze_that_is_shortened_or_narrowed_is_lifted(frozen: World, freeze: Any, lifts: bool) -> None:
    before = dict(frozen.running)
    frozen.repository.commit(NEW, policy={"freeze": freeze})
    result = frozen.run()
    assert (result.phase is Phase.INVALID) is lifts
    if lifts:
        assert "FreezeLiftedWithChanges" in {finding.code for finding in result.findings}
        frozen.clock.advance(60.0)
        frozen.run()
        assert frozen.running == before, "what waited has not slipped through"


def test_a_longer_or_wider_freeze_is_no_lifted_one(world: World) -> None:
    world.repository.commit(OLD)
    world.converge()
    narrow = {"scope": "acme", "reason": "audit", "until": "2030-01-01T00:00:00Z"}
    world.repository.commit(OLD, policy={"freeze": narrow})
    world.run()
    wide = {"scope": "*", "reason": "audit", "until": "2031-01-01T00:00:00Z"}
    world.repository.commit(NEW, policy={"freeze": wide})
    assert world.run().phase is Phase.BLOCKED
