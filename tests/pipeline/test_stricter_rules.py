"""A newer version has rules that the commit in force breaks: it stays in force, is repaired, and says so."""

from __future__ import annotations

import pytest

from gitops_agent.errors import SourceUnavailable
from gitops_agent.model.passes import PassResult
from gitops_agent.model.status import Phase
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .world import World, verbs

pytestmark = pytest.mark.unit

FLEET = [f"a{number}" for number in range(6)]


def upgraded(world: World, *shas: str, remembers: bool = True) -> PassResult:
    """The first pass of a version that refuses some commits."""
    for sha in shas:
        world.repository.tighten(sha)
    world.repository.remembers = remembers
    world.boot()
    return world.run()


def stricter(result: PassResult) -> list[str]:
    return [each.address for each in result.findings if each.code == "StricterRules"]


def test_it_is_repaired_and_reported_and_nothing_is_restarted(world: World) -> None:
    good = world.commit(*FLEET)
    world.converge()
    before = dict(world.running)
    del world.live.live[runtime_key(key("a1"))]
    result = upgraded(world, good)
    assert verbs(result.executed) == [("create", "acme/a1:runtime/main")]
    assert stricter(result) == [good[:10], "a.yaml:3:1"]
    assert world.running == before
    assert world.phase(good) is Phase.CONVERGED
    assert [each.code for each in world.sink.changes[-1].record.findings][:2] == ["StricterRules"] * 2
    delivered = len(world.sink.changes)
    assert stricter(world.run()) == stricter(result)
    assert len(world.sink.changes) == delivered, "it is reported once"


def test_the_next_good_commit_goes_through_waves_and_touches_only_what_it_changes(world: World) -> None:
    good = world.commit(*FLEET)
    world.converge()
    upgraded(world, good)
    bad = world.repository.commit(broken="too long")
    assert world.converge().phase is Phase.INVALID
    assert world.journal.state().rollout.enforced == good
    changed = {name: {"runtime": {"command": ["other"]}} for name in FLEET[:4]}
    fixed = world.repository.commit({**{name: {} for name in FLEET}, **changed})
    first = world.run()
    assert len({action.key.agent for action, _ in first.executed}) == 1, "a canary"
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(fixed)
    assert (world.phase(bad), stricter(world.run())) == (Phase.INVALID, [])


def test_a_rollout_on_its_way_goes_on(world: World) -> None:
    good = world.commit(*FLEET)
    world.converge()
    new = world.repository.commit({name: {"runtime": {"command": ["other"]}} for name in FLEET})
    wanted = world.wanted(new)
    world.run()
    assert world.phase(new) is Phase.RECONCILING
    assert world.running != wanted
    upgraded(world, good, new)
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == wanted


def test_what_an_earlier_version_had_against_it_is_forgotten(world: World) -> None:
    good = world.commit(*FLEET)
    world.converge()
    kept = world.repository.commits[good]
    assert stricter(upgraded(world, good))
    world.repository.commits[good] = kept
    world.boot()
    assert not stricter(world.run())
    assert not world.record(good).findings


def test_when_it_is_not_known_how_it_compiled_nothing_is_touched_and_that_is_said(world: World) -> None:
    good = world.commit(*FLEET)
    world.converge()
    before = dict(world.running)
    result = upgraded(world, good, remembers=False)
    assert not result.executed
    (said,) = [each for each in result.findings if each.code == "SourceRefused"]
    assert "none of them is repaired" in said.summary
    assert "a.yaml:3:1 too long" in said.detail
    assert world.journal.state().source.problem == said
    assert world.running == before
    world.commit(*FLEET)
    assert world.converge().phase is Phase.CONVERGED
    assert not [each for each in world.run().findings if each.code == "SourceRefused"]


def test_a_mirror_that_cannot_be_read_for_a_moment_is_waited_for(world: World) -> None:
    good = world.commit(*FLEET)
    world.converge()
    before = dict(world.running)
    del world.live.live[runtime_key(key("a1"))]
    world.repository.unreadable = SourceUnavailable("the disk is away")
    result = upgraded(world, good)
    assert not result.executed
    assert [each.summary for each in result.findings if each.code.startswith("Source")] == ["the disk is away"]
    assert world.phase(good) is Phase.CONVERGED, "nothing is concluded"
    world.repository.unreadable = None
    assert verbs(world.run().executed) == [("create", "acme/a1:runtime/main")]
    assert world.running == before
