"""Ways in which a fleet was once lost, left alone or kept waiting: each stays closed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gitops_agent.errors import SourceRefused, SourceUnavailable
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import Phase
from gitops_agent.ports import CommitChange
from gitops_agent.testing.memory_driver import config_key, runtime_key

from .repository import key
from .world import Listening, World

FLEET = [f"bot-{number}" for number in range(12)]


def test_agents_that_outlived_a_degraded_commit_count_when_they_are_deleted(world: World) -> None:
    world.live.fail_always(key=runtime_key(key("bot-0")))
    world.commit(*FLEET)
    assert world.converge().phase is Phase.DEGRADED
    world.live.heal()
    world.repository.commit(
        {name: {"runtime": {"command": ["fixed"]}} if name == "bot-0" else {} for name in FLEET}
    )
    assert world.converge().phase is Phase.CONVERGED
    world.commit(*FLEET[:2])
    assert world.converge().phase is Phase.BLOCKED
    assert len(world.running) == 2 * len(FLEET)


def test_deleting_what_was_ready_is_a_loss_whatever_its_commit_became(world: World) -> None:
    world.commit("old-1", "old-2")
    world.converge()
    world.live.fail_always(key=runtime_key(key("bot-0")))
    world.repository.commit({name: {} for name in ("old-1", "old-2", *FLEET)})
    assert world.converge().phase is Phase.DEGRADED
    world.commit("old-1", "old-2", "extra")
    assert world.converge().phase is Phase.BLOCKED, "this removes them, and says nothing of a way back"
    world.commit("old-1", "old-2")  # the very tree of the first commit: a rollback, which asks no less
    assert world.converge().phase is Phase.BLOCKED
    assert len(world.running) == 2 * (len(FLEET) + 2) - 1


def test_a_rollback_in_a_fleet_that_never_converged_asks_before_it_deletes_nearly_all(world: World) -> None:
    """One agent that never becomes Ready must not make the loss of all others look like a failed try."""
    names = [f"bot-{number}" for number in range(31)]
    world.live.fail_always(key=runtime_key(key("bot-0")))
    first = world.commit("bot-0")
    assert world.converge().phase is Phase.DEGRADED
    for count in (11, 21, 31):
        world.commit(*names[:count])
        assert world.converge().phase is Phase.DEGRADED
    world.repository.commit({"bot-0": {}}, message="Back to the first")
    assert world.converge().phase is Phase.BLOCKED
    assert len({resource.agent for resource in world.running}) == 31, "nothing was taken away"
    assert world.phase(first) is Phase.DEGRADED


@pytest.mark.parametrize(
    "trouble", [SourceRefused("too many files"), SourceUnavailable("the mirror is broken"), RuntimeError("a bug")]
)
def test_whatever_a_commit_does_to_us_the_last_good_one_is_repaired(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    good = world.commit("one", "two")
    world.converge()
    bad, load = world.commit("one"), world.repository.load

    def fail(revision: Revision) -> Snapshot:
        if revision.sha == bad:
            raise trouble
        return load(revision)

    monkeypatch.setattr(world.repository, "load", fail)
    world.live.remove(runtime_key(key("two")))
    result = world.converge()
    assert world.running == world.wanted(good)
    unread = isinstance(trouble, SourceUnavailable)
    assert (result.unavailable, result.phase) == ((True, Phase.PENDING) if unread else (False, Phase.INVALID))


def test_a_change_that_fails_on_top_of_drift_keeps_its_commit_open(world: World) -> None:
    world.commit("one")
    world.converge()
    world.live.edit(config_key(key("one")), edited=True)
    world.live.fail_always(key=config_key(key("one")))
    world.repository.commit({"one": {"instructions": "new"}})
    assert world.run().phase is Phase.RECONCILING
    assert world.converge().phase is Phase.DEGRADED


def test_a_commit_cannot_loosen_the_guard_that_should_stop_it(world: World) -> None:
    world.commit(*FLEET)
    world.converge()
    world.commit(*FLEET[:2], policy={"massDelete": {"min": 100, "ratio": 1.0}})
    assert world.converge().phase is Phase.BLOCKED
    assert len(world.running) == 2 * len(FLEET)


def test_every_commit_of_a_large_push_is_told_about(world: World) -> None:
    world.commit("one")
    world.converge()
    shas = [world.commit("one", f"two-{number}") for number in range(130)]
    world.converge()
    assert set(shas) <= {sha for sha, _ in world.sink.phases}


def test_a_sink_that_breaks_fails_no_pass_and_no_other_sink(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(changes: Sequence[CommitChange]) -> None:
        raise RuntimeError("sink")

    other = Listening()
    other.name = "other"
    monkeypatch.setattr(world.sink, "deliver", fail)
    world.boot(sinks=(world.sink, other))
    sha = world.commit("one")
    assert world.converge().phase is Phase.CONVERGED
    assert (sha, Phase.CONVERGED) in other.phases


def test_a_commit_is_not_in_force_while_a_driver_cannot_be_asked(world: World) -> None:
    good = world.commit(*FLEET)
    world.converge()
    world.commit(*FLEET[:2])
    world.live.unreachable_next()
    world.run()
    assert world.journal.state().rollout.enforced == good
    assert world.converge().phase is Phase.BLOCKED


def test_once_does_not_wait_for_what_waits_for_people(world: World) -> None:
    """An agent whose dependency is paused and down is not on its way: nobody knows when it will be."""
    good = world.repository.commit({"one": {}, "two": {"rollout": {"dependsOn": ["acme/one"]}}})
    world.converge()
    world.repository.commit(
        {"one": {"reconcile": {"paused": True}}, "two": {"rollout": {"dependsOn": ["acme/one"]}}}
    )
    world.converge()
    world.live.remove(runtime_key(key("one")))
    world.live.remove(runtime_key(key("two")))
    world.commit(broken="nonsense")
    result = world.converge()
    assert (result.phase, result.busy) == (Phase.INVALID, False)
    assert good


@pytest.mark.parametrize("held", [{"paused": True}, {"mode": "Observe"}])
def test_a_commit_that_waits_for_people_in_vain_is_degraded_at_once(world: World, held: dict[str, object]) -> None:
    """A chain behind an agent that nobody may start: time does not help, so nobody waits for it."""
    fleet = {
        "db": {"reconcile": held},
        "app": {"rollout": {"dependsOn": ["acme/db"]}},
        "web": {"rollout": {"dependsOn": ["acme/app"]}},
    }
    world.repository.commit(fleet)
    assert world.run().phase is Phase.DEGRADED
    assert not world.running


def test_a_dependency_that_just_died_holds_what_depends_on_it(world: World) -> None:
    fleet = {"db": {"reconcile": {"paused": False}}, "app": {"rollout": {"dependsOn": ["acme/db"]}}}
    world.repository.commit(fleet)
    world.converge()
    world.repository.commit({**fleet, "db": {"reconcile": {"paused": True}}})
    world.converge()
    before = world.running[runtime_key(key("app"))]
    world.live.remove(runtime_key(key("db")))
    world.repository.commit(
        {
            "db": {"reconcile": {"paused": True}},
            "app": {"rollout": {"dependsOn": ["acme/db"]}, "runtime": {"command": ["new"]}},
        }
    )
    world.run()
    assert world.running[runtime_key(key("app"))] == before


@pytest.mark.parametrize("remote_answers", [True, False])
def test_one_that_takes_over_with_an_old_mirror_does_not_undo_what_was_begun(
    world: World, *, remote_answers: bool
) -> None:
    """It took an agent that the rollout had added for removed, and deleted it, until it had fetched."""
    world.commit(*FLEET)
    world.converge()
    world.repository.commit({**{name: {"runtime": {"command": ["new"]}} for name in FLEET}, "added": {}})
    world.run()
    begun = world.running
    assert runtime_key(key("added")) in begun
    sha = world.repository.head
    assert sha is not None
    unseen = world.repository.commits.pop(sha)
    world.boot()  # as on another machine, that led before and has not asked the remote since
    if not remote_answers:
        world.repository.down = SourceUnavailable("it does not answer")
    world.run(fetch=not remote_answers)
    assert world.running == begun
    world.repository.commits[sha], world.repository.down = unseen, None
    assert world.converge().phase is Phase.CONVERGED
    assert world.running == world.wanted(sha)
