"""What grows is bounded: passes that decide, see or do nothing new leave no row behind, however many they are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gitops_agent.journal import retention
from gitops_agent.journal.sqlite import FILE_NAME
from gitops_agent.model.status import Phase

from .test_at_once import kill
from .world import World

pytestmark = pytest.mark.unit

HELD, REPAIRS = 12, 12


def rows(world: World) -> dict[str, int]:
    """How many rows each table has."""
    connection = sqlite3.connect(Path(world.folder, FILE_NAME))
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    connection.close()
    return found


def plan_bytes(world: World) -> int:
    connection = sqlite3.connect(Path(world.folder, FILE_NAME))
    (found,) = connection.execute("SELECT sum(length(actions)) FROM plans").fetchone()
    connection.close()
    return int(found)


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in after.items() if count != before[name]}


@pytest.fixture
def blocked(world: World) -> World:
    """A commit that would delete most of the fleet waits for people; a few agents stay as they are."""
    doomed = [f"d{number}" for number in range(HELD)]
    world.commit(*doomed, "a", "b")
    assert world.converge().phase is Phase.CONVERGED
    world.clock.advance(60)
    world.commit("a", "b")
    assert world.converge().phase is Phase.BLOCKED
    return world


def test_a_repair_beside_many_held_agents_adds_what_is_new_and_no_more(blocked: World) -> None:
    before = rows(blocked)
    for _ in range(REPAIRS):
        kill(blocked, "a")
        blocked.run("a")
        blocked.run("a")
        blocked.clock.advance(700)
    more = grown(before, rows(blocked))
    assert more["intents"] == REPAIRS
    assert more["decisions"] <= 2 * REPAIRS, "not all that is held, each time"
    assert more.get("plans", 0) <= 2 * REPAIRS
    assert more.get("statuses", 0) == more.get("bases", 0) == more.get("controls", 0) == 0


def test_what_was_decided_is_known_whole_all_the_same(blocked: World) -> None:
    kill(blocked, "a")
    result = blocked.run("a")
    assert result.record is not None
    found = {plan.digest: plan for plan in blocked.journal.plans()}
    asked = max(found.values(), key=lambda plan: plan.waiting)
    assert asked.actions >= asked.waiting >= HELD
    assert len(blocked.journal.planned(asked.digest)) == asked.actions
    blocked.boot()
    assert len(blocked.journal.planned(asked.digest)) == asked.actions, "also after a restart"


def test_plans_of_one_commit_take_a_bounded_amount(blocked: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitops_agent.journal.plans.MAX_BYTES", 8 * 16 * HELD)
    for number in range(30):
        kill(blocked, "ab"[number % 2])
        blocked.run()
        blocked.clock.advance(700)
        if number % 7 == 0:
            blocked.boot()
    assert plan_bytes(blocked) <= (8 + 16 + 1) * 16 * (HELD + 2)
    newest = blocked.journal.plans()[0]
    assert blocked.journal.planned(newest.digest)


def test_what_is_seen_again_leaves_no_row_also_after_a_restart(world: World) -> None:
    world.commit("a", "b", "c")
    world.converge()
    before = rows(world)
    for _ in range(8):
        world.run()
        world.clock.advance(30)
        world.boot()
    assert grown(before, rows(world)) == {}


def test_what_never_rests_is_kept_up_to_a_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_OBSERVATIONS", 5)
    world.commit("a", "b")
    world.converge()
    for _ in range(8):
        kill(world, "a")
        world.run("a")
        world.clock.advance(700)
    world.journal.prune(0.0)
    every = world.journal.observations(world.status("a").agent)
    newest = [seen for seen in every if seen.key.kind == "runtime"]
    assert len(newest) == 5
    assert newest[0].state == "Running", "the oldest go"
