"""From the repository to what is in force: candidates, fallbacks, rejections, and sources that do not answer."""

from __future__ import annotations

from gitops_agent.errors import SourceRefused, SourceUnavailable
from gitops_agent.model.status import Phase

from .repository import key
from .world import World, names

DOWN = SourceUnavailable("cannot reach the repository", retry_after=7.0)


def test_the_first_commit_is_taken_whole(world: World) -> None:
    sha = world.commit("one", "two")
    result = world.converge()
    assert (result.state.source.head, result.state.rollout.enforced, result.phase) == (sha, sha, Phase.CONVERGED)
    assert names(list(result.state.status.agents)) == ["one", "two"]


def test_a_broken_commit_leaves_the_last_good_one_in_force_and_repaired(world: World) -> None:
    good = world.commit("one", "two")
    world.converge()
    bad = world.repository.commit(broken="duplicate key: name")
    world.live.lose([*world.running])
    world.clock.advance(60)
    result = world.run()
    assert (result.state.source.head, result.state.rollout.enforced, result.phase) == (bad, good, Phase.INVALID)
    assert [finding.summary for finding in result.findings if finding.code == "BadYaml"] == ["duplicate key: name"]
    assert world.running == world.wanted(good)
    assert world.phase(good) is Phase.CONVERGED


def test_a_rejected_head_is_read_once(world: World) -> None:
    world.commit("one")
    world.converge()
    world.repository.commit(broken="x")
    world.run()
    loaded = world.repository.loaded
    for _ in range(3):
        assert world.run().phase is Phase.INVALID
    assert world.repository.loaded == loaded
    world.boot()
    assert world.run().phase is Phase.INVALID, "a new process comes to the same answer"


def test_a_good_commit_after_a_broken_one_is_followed(world: World) -> None:
    world.commit("one")
    world.converge()
    bad = world.repository.commit(broken="x")
    world.run()
    good = world.commit("one", "two")
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(good)
    assert world.phase(bad) is Phase.INVALID


def test_nothing_is_done_when_no_commit_was_ever_good(world: World) -> None:
    bad = world.repository.commit({"one": {}}, broken="x")
    result = world.run()
    assert (result.state.source.head, result.state.rollout.enforced, result.phase) == (bad, None, Phase.INVALID)
    assert world.live.calls["apply"] == 0
    assert not result.state.status.agents


def test_a_push_of_several_commits_enforces_the_newest(world: World) -> None:
    first = world.commit("one")
    world.converge()
    middle = [world.commit("one", "two"), world.repository.commit(broken="x"), world.commit("one", "three")]
    last = world.commit("one", "four")
    assert world.converge().phase is Phase.CONVERGED
    assert [world.phase(sha) for sha in (first, *middle, last)] == [
        Phase.CONVERGED,
        *[Phase.SUPERSEDED] * 3,
        Phase.CONVERGED,
    ]
    assert world.running == world.wanted(last)
    assert [record.sha for record in world.journal.commits()] == [last, *reversed(middle), first]


def test_a_newer_commit_supersedes_one_that_never_converged(world: World) -> None:
    world.live.fail_always("no room")
    first = world.commit("one")
    assert world.run().phase is Phase.RECONCILING
    world.live.heal()
    second = world.commit("one", "two")
    assert world.converge().phase is Phase.CONVERGED
    assert (world.phase(first), world.phase(second)) == (Phase.SUPERSEDED, Phase.CONVERGED)


# -- a source that does not answer


def test_an_unreachable_source_changes_nothing_and_repairs_go_on(world: World) -> None:
    good = world.commit("one", "two")
    world.converge()
    world.repository.down = DOWN
    world.live.lose([*world.running])
    world.clock.advance(60)
    result = world.run()
    assert result.unavailable
    assert result.retry_after == 7.0
    assert "SourceUnavailable" in {finding.code for finding in result.findings}
    assert world.running == world.wanted(good)
    assert getattr(world.journal.state().source.problem, "summary", "") == "cannot reach the repository"
    world.repository.down = None
    assert not world.run().unavailable
    assert world.journal.state().source.problem is None


def test_a_source_that_was_never_reached(world: World) -> None:
    world.repository.down = DOWN
    result = world.run()
    assert (result.state.source.head, result.phase, result.unavailable) == (None, None, True)
    assert world.live.calls["apply"] == 0


def test_a_restart_without_the_source_goes_on_from_what_is_known(world: World) -> None:
    good = world.commit("one")
    world.converge()
    world.repository.down = SourceRefused("the branch main does not exist")
    world.boot()
    world.live.lose([*world.running])
    world.clock.advance(60)
    result = world.run()
    assert (result.state.source.head, result.state.rollout.enforced, result.unavailable) == (good, good, True)
    assert world.running == world.wanted(good)


def test_a_mirror_that_lost_everything_touches_nothing(world: World) -> None:
    good = world.commit("one", "two")
    world.converge()
    before = dict(world.live.live)
    lost = world.repository.commits.pop(good)
    world.repository.down = DOWN
    world.boot()
    result = world.run()
    assert result.unavailable
    assert world.live.live == before
    world.repository.commits[good] = lost
    world.repository.down = None
    assert world.converge().state.rollout.enforced == good
    assert world.live.live == before


# -- history that was rewritten


def test_a_rewritten_branch_is_refused_and_so_is_everything_on_top_of_it(world: World) -> None:
    first = world.commit("one")
    good = world.commit("one", "two")
    world.converge()
    rewritten = world.commit("three", parent=first)
    result = world.run()
    assert (result.phase, result.state.rollout.enforced) == (Phase.REFUSED, good)
    assert any("ForcePush" in finding.code for finding in result.findings)
    on_top = world.commit("three", "four")
    assert world.run().phase is Phase.REFUSED
    assert world.running == world.wanted(good)
    assert [world.phase(sha) for sha in (good, rewritten, on_top)] == [
        Phase.CONVERGED,
        Phase.REFUSED,
        Phase.REFUSED,
    ]


def test_a_commit_that_the_mirror_lost_is_asked_for_now_and_then_until_it_is_given(world: World) -> None:
    first = world.commit("one")
    good = world.commit("one", "two")
    world.converge()
    world.commit("three", parent=first)
    world.run()
    lost = world.repository.commits.pop(good)
    world.boot()
    for _ in range(3):
        assert world.run().phase is Phase.REFUSED
    assert world.repository.asked_for == [good], "not with every fetch"
    world.live.lose([*world.running])
    world.repository.elsewhere[good] = lost
    world.clock.advance(60)
    assert world.run().phase is Phase.REFUSED
    assert world.repository.asked_for == [good, good]
    assert world.running == world.wanted(good)


def test_a_branch_that_contains_the_old_commit_again_is_followed(world: World) -> None:
    first = world.commit("one")
    good = world.commit("one", "two")
    world.converge()
    world.commit("three", parent=first)
    world.run()
    merged = world.commit("one", "two", "three", parent=good)
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(merged)


def test_back_to_the_commit_in_force_is_no_rewrite(world: World) -> None:
    first = world.commit("one")
    good = world.commit("one", "two")
    world.converge()
    world.commit("three", parent=first)
    world.run()
    world.repository.head = good
    result = world.converge()
    assert (result.state.source.head, result.state.rollout.enforced) == (good, good)
    assert result.phase is Phase.CONVERGED


def test_the_policy_in_force_may_follow_a_rewritten_branch(world: World) -> None:
    first = world.commit("one", policy={"forcePush": "follow"})
    world.commit("one", "two")
    world.converge()
    rewritten = world.commit("one", "three", parent=first)
    result = world.converge()
    assert (result.phase, result.state.rollout.enforced) == (Phase.CONVERGED, rewritten)
    assert world.running == world.wanted(rewritten)


def test_a_rewrite_cannot_allow_itself(world: World) -> None:
    first = world.commit("one")
    good = world.commit("one", "two")
    world.converge()
    world.commit("one", parent=first, policy={"forcePush": "follow"})
    assert world.run().phase is Phase.REFUSED
    assert world.running == world.wanted(good)


def test_a_path_that_vanished_is_refused_not_an_empty_fleet(world: World) -> None:
    good = world.commit("one", "two")
    world.converge()
    world.repository.commit({}, missing_path=True)
    result = world.run()
    assert (result.phase, result.state.rollout.enforced) == (Phase.REFUSED, good)
    assert world.running == world.wanted(good)


# -- going back


def test_a_rollback_is_marked_on_both_sides(world: World) -> None:
    first = world.commit("one")
    world.converge()
    second = world.commit("one", "two")
    world.converge()
    back = world.commit("one")
    assert world.converge().phase is Phase.CONVERGED
    undone, done = world.journal.commit_record(second), world.journal.commit_record(back)
    assert undone is not None
    assert done is not None
    assert (undone.rolled_back_by, done.rolls_back_to) == (back, first)
    assert world.running == world.wanted(first)
    assert key("two") not in world.journal.state().status.agents


def test_several_reverts_in_one_push_each_name_their_own_commit(world: World) -> None:
    world.commit("one", policy={"massDelete": {"min": 9}})  # a small fleet would be asked about
    world.converge()
    fleets = [["one", "two"], ["one", "two", "three"], ["one", "two", "three", "four"]]
    changes = [world.commit(*names) for names in fleets]
    world.converge()
    backs = [
        world.commit(*names, message=f"Back\n\nThis reverts commit {change}.")
        for names, change in zip([*fleets[1::-1], ["one"]], reversed(changes), strict=True)
    ]
    assert world.converge().phase is Phase.CONVERGED
    undone = [world.record(change).rolled_back_by for change in reversed(changes)]
    assert undone == backs, "the newest change by the first revert, and so on"
    assert [world.record(back).reverts for back in backs] == [(change,) for change in reversed(changes)]
    assert world.record(backs[-1]).rolls_back_to == world.repository.commits[changes[0]].revision.parents[0]


def test_a_revert_of_a_revert_brings_the_commit_back(world: World) -> None:
    world.commit("one")
    world.converge()
    change = world.commit("one", "two")
    back = world.commit("one", message=f"Back\n\nThis reverts commit {change}.")
    again = world.commit("one", "two", message=f"Again\n\nThis reverts commit {back}.")
    assert world.converge().phase is Phase.CONVERGED
    assert (world.record(again).reverts, world.record(again).rolls_back_to) == ((back,), change)
    assert (world.record(back).rolled_back_by, world.record(change).rolled_back_by) == (again, None)


def test_a_refused_rewrite_supersedes_nothing_and_takes_nothing_back(world: World) -> None:
    first = world.commit("one")
    world.converge()
    under_way = world.commit("one", "two")
    world.run()
    assert not world.record(under_way).phase.terminal
    world.commit("three", parent=first)
    rewritten = world.commit("one", message=f"Back\n\nThis reverts commit {under_way}.")
    result = world.converge()
    assert (result.phase, world.phase(rewritten)) == (Phase.REFUSED, Phase.REFUSED)
    assert world.phase(under_way) is Phase.CONVERGED, "what was under way went on"
    assert world.record(under_way).rolled_back_by is None


def test_a_rewrite_that_is_undone_leaves_every_earlier_record_as_it_was(world: World) -> None:
    first = world.commit("one")
    world.converge()
    shas = [world.commit("one", "two"), world.commit("one", "three"), world.commit("one", "four")]
    world.converge()
    before = {sha: world.record(sha) for sha in (first, *shas)}
    rewritten = world.commit("five", parent=first)
    world.run()
    world.repository.head = shas[-1]
    result = world.converge()
    assert (result.phase, result.state.source.head) == (Phase.CONVERGED, shas[-1])
    assert {sha: world.record(sha) for sha in before} == before
    assert world.phase(rewritten) is Phase.REFUSED
    follower = world.commit("one", "six", parent=shas[-1])
    assert world.converge().phase is Phase.CONVERGED
    assert {sha: world.record(sha).phase for sha in before} == {sha: each.phase for sha, each in before.items()}
    assert world.running == world.wanted(follower)
