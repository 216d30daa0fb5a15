"""A fault before, inside and after each of the three commit points of a pass: what is durable then is all of the
step or nothing of it, what was not committed had no effect, and the next pass, of the same process or of another,
goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from gitops_agent.errors import JournalError
from gitops_agent.journal.store import open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.state import State
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.testing.faults import Crash, FaultInjector, crash, disk_full
from gitops_agent.testing.memory_driver import runtime_key

from .repository import key
from .test_crashes import check
from .test_rollout import BROKEN, NAMES, fleet
from .world import World, verbs

POINTS = [(number, when) for number in (1, 2, 3) for when in ("before", "inside", "after")]
FAULTS = {"crash": crash, "disk full": disk_full}


class AtCommit(FaultInjector):
    """Strikes before, inside or after the n-th commit; one that has nothing to write has no inside."""

    def __init__(self, number: int, when: str, effect: Callable[[], NoReturn]) -> None:
        super().__init__()
        self._strike = number, f"journal.commit:{when}", effect

    def reach(self, point: str) -> None:
        super().reach(point)
        number, struck, effect = self._strike
        if point == struck and self.counts["journal.commit:before"] == number:
            effect()


def struck(world: World, injector: AtCommit, seconds: float = 0.0) -> State:
    """One pass, so many seconds after a start, with a fault in it; the state as another process reads it then."""
    world.boot(injector)
    world.clock.advance(seconds)
    with pytest.raises((Crash, JournalError)):
        world.run()
    with open_journal(world.folder, read_only=True) as reader:
        return reader.state()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("number", "when"), POINTS)
def test_a_change_with_a_fault_at_a_commit_point(tmp_path: Path, number: int, when: str, fault: str) -> None:
    world = World(tmp_path / "state")
    world.commit("one", "two")
    world.converge()
    head = world.repository.commit({"one": {"runtime": {"command": ["new"]}}, "two": {}, "three": {}})
    live, written = dict(world.live.live), number if when == "after" else number - 1
    state = struck(world, AtCommit(number, when, FAULTS[fault]))

    record = state.commits.records.get(head)
    assert (record is not None) == (written >= 1), "commit 1: the commit is on record"
    assert ((head, Phase.PENDING) in world.sink.phases) == (number >= 2)
    if record is not None:
        assert record.started_at is not None, "it is announced before anything is done about it"
    begun = state.rollout.rollout is not None and state.rollout.rollout.commit == head
    with open_journal(world.folder, read_only=True) as reader:
        planned = {plan.commit for plan in reader.plans(commits=[head])}
    assert begun == bool(planned) == (written >= 2), "commit 2: the released wave and its plan, together"
    assert (world.live.live != live) == (number == 3), "nothing is done before commit 2"
    news = state.status.agents.get(key("three")) is not None
    assert news == (record is not None and record.phase is Phase.RECONCILING) == (written >= 3), (
        "commit 3: statuses and phase, together"
    )
    assert state.reconcile.open_intents == {}, "an outcome does not wait for commit 3"

    if fault == "crash":
        world.boot()
    assert world.converge().phase is Phase.CONVERGED
    check(world, head)
    starts = {resource.agent.name: n for resource, n in world.live.starts.items() if resource.kind == "runtime"}
    assert starts == {"one": 2, "two": 1, "three": 1}
    world.shut()


@pytest.mark.parametrize(("when", "written"), [("before", False), ("inside", False), ("after", True)])
def test_a_failed_gate_is_never_read_in_part(tmp_path: Path, when: str, written: bool) -> None:
    """The gate, the tree that failed, Halted on the agents behind it and the phase: all or none."""
    world = World(tmp_path / "state")
    world.repository.commit(fleet({"runtime": {"command": ["old"]}}))
    world.converge()
    bad = world.repository.commit(fleet({"runtime": {"command": ["old"]}, **BROKEN}))
    world.run()
    state = struck(world, AtCommit(3, when, crash), 60.0)
    rollout = state.rollout.rollout
    assert rollout is not None
    assert bool(rollout.failed) == written
    assert bool(state.rollout.failed_trees) == written
    assert (len(state.status.agents.having(ConditionType.HALTED)) == len(NAMES) - 1) == written
    assert (state.commits.records[bad].phase is Phase.DEGRADED) == written
    world.boot()
    assert world.converge().phase is Phase.DEGRADED
    halted = world.journal.state().status.agents.having(ConditionType.HALTED)
    assert len(halted) == len(NAMES) - 1
    world.shut()


@pytest.mark.parametrize(("when", "written"), [("before", False), ("inside", False), ("after", True)])
def test_convergence_is_never_read_in_part(tmp_path: Path, when: str, written: bool) -> None:
    """The phase, the policy that counts for the next commit, what is established, and whom it was judged by."""
    world = World(tmp_path / "state")
    head = world.repository.commit({"one": {}}, policy={"massDelete": {"min": 7, "ratio": 0.5}})
    world.run()
    state = struck(world, AtCommit(3, when, crash), 5.0)
    policy = state.rollout.converged_policy
    assert (policy is not None and policy.mass_delete.min == 7) == written
    assert (state.rollout.converged == head) == written
    assert (state.rollout.judged_agents == frozenset()) == written
    assert all(base.established == written for base in state.reconcile.bases.values())
    assert (state.commits.records[head].phase is Phase.CONVERGED) == written
    world.boot()
    assert world.converge().phase is Phase.CONVERGED
    assert world.journal.state().rollout.converged == head
    world.shut()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_a_retry_is_carried_out_once_and_never_lost(tmp_path: Path, when: str, fault: str) -> None:
    """What a person asked for and that it was handled are written together."""
    world = World(tmp_path / "state")
    world.commit("one")
    world.converge()
    world.live.remove(runtime_key(key("one")))
    world.live.fail_always("no room", permanent=True)
    for _ in range(3):
        world.run()
    world.live.heal()
    assert world.run().executed == [], "it waits the longest"
    world.journal.control(Control(ControlVerb.RETRY, "acme/one", "ada@host", world.clock.now()))
    state = struck(world, AtCommit(1, when, FAULTS[fault]))
    handled = state.control.handled_seq == state.control.controls[-1].seq
    assert (
        handled == (not state.reconcile.attempts) == (key("one") in state.control.retried_at) == (when == "after")
    )
    if fault == "crash":
        world.boot()
    assert ("create", str(runtime_key(key("one")))) in verbs(world.run().executed)
    world.shut()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_a_guard_that_froze_is_on_record_with_what_it_saw(tmp_path: Path, when: str, fault: str) -> None:
    """Many agents differ at once: nothing is repaired, whether or not the freeze could be written."""
    world = World(tmp_path / "state")
    world.commit(*NAMES)
    world.converge()
    for name in NAMES:
        world.live.edit(runtime_key(key(name)), command=["by hand"])
    before = dict(world.live.live)
    state = struck(world, AtCommit(3, when, FAULTS[fault]))
    frozen = any(control.verb is ControlVerb.FREEZE for control in state.control.controls)
    assert frozen == (when == "after") == bool(state.status.findings)
    if fault == "crash":
        world.boot()
    for _ in range(3):
        world.clock.advance(5.0)
        assert world.run().frozen
    assert world.live.live == before
    controls = [control.verb for control in world.journal.state().control.controls]
    assert controls == [ControlVerb.FREEZE], "one freeze, however often it tripped"
    world.shut()
