"""Execution: lanes, order, what a failure ends, what is written when, and that nothing unexpected gets out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from threading import Barrier, Event
from typing import Any

import pytest

from gitops_agent.drivers.api import Driver, Observation, ObserveRequest, Record
from gitops_agent.errors import ApplyError, GitopsAgentError, NotYet, ObserveError
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Applied, Attempt, Intent, Result
from gitops_agent.model.passes import Executed
from gitops_agent.model.plan import Action, Class, Decision, Plan, Verb
from gitops_agent.reconcile.executor import Executor, ExecutorContext
from gitops_agent.support.daemon_pool import DaemonPool
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.faults import Crash, FaultInjector, FaultyDriver
from gitops_agent.testing.faulty_journal import FaultyJournal
from gitops_agent.testing.memory_driver import MemoryDriver, config_key, runtime_key

from .make import ONE, SHA, THREE, TWO, WANTED, action, base, bring_up, plan

pytestmark = pytest.mark.unit
OTHER = Fields.of({"command": ["other"]})


class Rig:
    """A journal, a live system and what an executor needs; ``trace`` tells in which order they were used."""

    def __init__(self, journal: SqlJournal, clock: FrozenClock, pool: Pool) -> None:
        self.journal = journal
        self.clock = clock
        self.live = MemoryDriver(clock=clock)
        self.points = FaultInjector()
        self.unexpected: list[tuple[BaseException, Action]] = []
        self.context = ExecutorContext(
            drivers={"memory": FaultyDriver(self.live, self.points)},
            journal=FaultyJournal(journal, self.points),
            clock=clock,
            random=Random(1),
            apply_pool=pool,
            on_unexpected=lambda problem, about: self.unexpected.append((problem, about)),
        )

    def using(self, driver: Driver) -> None:
        self.context = replace(self.context, drivers={"memory": driver})

    def run(self, *actions: Action, **more: Any) -> list[Executed]:
        return self.execute(Executor(self.context), plan(*actions, **more))

    def execute(self, executor: Executor, plan: Plan) -> list[Executed]:
        """What was done, after a check that the state handed on is the one on record."""
        state, done = executor.execute(self.journal.state(), plan, PolicySpec(), "test")
        assert state.reconcile is self.journal.state().reconcile
        return done

    @property
    def trace(self) -> list[str]:
        return [point.rpartition(":")[0] for point in self.points.points()]


@pytest.fixture
def rig(journal: SqlJournal, clock: FrozenClock, pool: ThreadPoolExecutor) -> Rig:
    return Rig(journal, clock, pool)


def results(executed: list[Executed]) -> dict[str, Result]:
    return {str(action.key): outcome.result for action, outcome in executed}


class Doing:
    """An applier that does what a function does; live is always as planned."""

    def __init__(
        self, do: Callable[[Action], Applied | None], *, unchanged: Callable[[Action], bool] | None = None
    ):
        self.do = do
        self.check = unchanged or (lambda _: True)

    def unchanged(self, action: Action) -> bool:
        return self.check(action)

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        return ()

    def apply(self, action: Action, key: str) -> Applied:
        return self.do(action) or Applied("done")


# -- order and lanes


def test_steps_of_one_agent_run_in_order_and_agents_side_by_side(rig: Rig) -> None:
    meeting, order = Barrier(2), dict[AgentKey, list[str]]()

    def do(action: Action) -> None:
        order.setdefault(action.key.agent, []).append(action.key.kind)
        meeting.wait(20)  # only two lanes at the same time get past this

    rig.using(Doing(do))
    done = rig.run(*bring_up(ONE), *bring_up(TWO))
    assert order == {ONE: ["config", "runtime"], TWO: ["config", "runtime"]}
    assert [outcome.result for _, outcome in done] == [Result.DONE] * 4


def test_a_failure_ends_its_lane_and_no_other(rig: Rig) -> None:
    rig.live.fail_always("no room", key=config_key(ONE))
    done = rig.run(*bring_up(ONE), *bring_up(TWO))
    assert results(done) == {
        str(config_key(ONE)): Result.FAILED,
        str(config_key(TWO)): Result.DONE,
        str(runtime_key(TWO)): Result.DONE,
    }
    assert runtime_key(ONE) not in rig.live.live


def test_only_what_the_plan_allows_is_done(rig: Rig) -> None:
    asked = replace(action(runtime_key(TWO)), decision=Decision.ASK)
    done = rig.run(
        action(runtime_key(ONE)), asked, action(runtime_key(THREE)), held=frozenset({runtime_key(THREE)})
    )
    assert set(rig.live.live) == {runtime_key(ONE)}
    assert len(done) == 1


def test_an_empty_plan_writes_nothing(rig: Rig) -> None:
    assert rig.run() == []
    assert rig.trace == []


def test_what_moved_since_the_plan_is_left_alone(rig: Rig) -> None:
    rig.live.plant(runtime_key(ONE), {"command": ["by hand"]})
    done = rig.run(action(runtime_key(ONE)), action(config_key(TWO)))
    assert results(done)[str(runtime_key(ONE))] is Result.SKIPPED
    assert rig.live.live[runtime_key(ONE)].fields == Fields.of({"command": ["by hand"]})
    assert runtime_key(ONE) not in rig.journal.state().reconcile.bases
    # It counts as a try: a precheck that never agrees must not be asked for ever, several times a second.
    assert rig.journal.state().reconcile.attempts[runtime_key(ONE)].failures == 1
    assert config_key(TWO) in rig.live.live


def test_a_skipped_step_ends_the_lane(rig: Rig) -> None:
    rig.live.plant(config_key(ONE), {"by": "hand"})
    assert results(rig.run(*bring_up(ONE))) == {str(config_key(ONE)): Result.SKIPPED}


def test_a_step_for_which_it_is_too_early_is_no_repair(rig: Rig) -> None:
    def do(action: Action) -> None:
        raise NotYet(f"{action.key}: 1 to follow")

    rig.using(Doing(do))
    ((_, outcome),) = rig.run(action(runtime_key(ONE), Verb.RESTART, Class.STUCK_PROGRESS))
    assert (outcome.result, outcome.message) == (Result.SKIPPED, f"{runtime_key(ONE)}: 1 to follow")


def test_a_live_system_that_asks_for_patience_gets_it(rig: Rig) -> None:
    def do(_action: Action) -> None:
        raise NotYet("busy", retry_after=42)

    rig.using(Doing(do))
    ((_, outcome),) = rig.run(action(runtime_key(ONE)))
    assert (outcome.result, outcome.retry_after) == (Result.SKIPPED, 42)
    assert rig.journal.state().reconcile.attempts[runtime_key(ONE)].next_at == outcome.at + 42


def test_steps_that_only_touch_our_record_call_no_driver(rig: Rig) -> None:
    rig.journal.finish((), bases=[base(runtime_key(TWO)), base(runtime_key(THREE))])
    rig.run(
        action(runtime_key(ONE), Verb.ADOPT, Class.MISSING_INTERNAL, handle=Fields.of({"pid": 7})),
        action(runtime_key(TWO), Verb.FORGET),
        action(runtime_key(THREE), Verb.RELEASE, desired=None),
    )
    assert rig.live.calls.total() == 0
    bases = rig.journal.state().reconcile.bases
    assert set(bases) == {runtime_key(ONE), runtime_key(THREE)}
    assert bases[runtime_key(ONE)].handle == Fields.of({"pid": 7})
    assert bases[runtime_key(THREE)].retained
    assert rig.journal.state().reconcile.attempts == {}


# -- pre-emption


def test_an_interrupted_pass_ends_at_a_safe_point(rig: Rig) -> None:
    """What was begun is finished and written; what was not begun is left for the next pass."""
    urgent, entered = Event(), Event()

    def do(action: Action) -> None:
        entered.set()
        urgent.set()

    rig.using(Doing(do))
    rig.context = replace(rig.context, interrupted=urgent.is_set)
    done = rig.run(*bring_up(ONE), *bring_up(TWO))
    assert entered.is_set()
    assert set(results(done)) == {str(config_key(ONE)), str(config_key(TWO))}
    assert rig.journal.state().reconcile.open_intents == {}
    assert set(rig.journal.state().reconcile.bases) == {config_key(ONE), config_key(TWO)}


def many(count: int) -> list[AgentKey]:
    return [AgentKey("acme", f"bot-{number:03}") for number in range(count)]


def test_what_was_ahead_and_did_not_begin_is_taken_back(rig: Rig) -> None:
    """Nothing of it was done: no intent stays open, nothing failed, and it is in the next plan again."""
    urgent, ahead = Event(), list[int]()

    def do(action: Action) -> None:
        ahead.append(len(rig.journal.state().reconcile.open_intents))
        if len(ahead) == 2:
            urgent.set()

    rig.using(Doing(do))
    rig.context = replace(rig.context, workers=1, interrupted=urgent.is_set)
    actions = [action(config_key(agent)) for agent in many(9)]
    assert len(rig.run(*actions)) == 2
    assert ahead == [1, 8], "nothing is ahead where nothing has ended yet"
    reconcile = rig.journal.state().reconcile
    assert (reconcile.open_intents, reconcile.attempts, len(reconcile.bases)) == ({}, {}, 2)
    assert {entry.result for entry in rig.journal.entries()} == {Result.DONE}, "history is what was done"
    urgent.clear()
    rig.using(Doing(lambda _: None))
    assert set(results(rig.run(*actions[2:])).values()) == {Result.DONE}


def test_a_place_in_which_nothing_ends_costs_no_writes_for_what_waits(rig: Rig) -> None:
    """However often it is looked at again: only what begins is on record."""
    over = Event()
    rig.using(Doing(lambda _: over.wait(30) and None))
    rig.context = replace(rig.context, workers=2, patience=0.05, apply_pool=DaemonPool("apply", 8))
    executor, actions = Executor(rig.context), [action(config_key(agent)) for agent in many(9)]
    for _ in range(3):
        rig.execute(executor, plan(*actions[len(executor.running) :]))
    assert len(executor.running) == len(rig.journal.entries()) == 2
    assert rig.trace.count("journal.begin:after") == 1
    assert "journal.take_back" not in " ".join(rig.trace)
    over.set()
    executor.close()


def test_what_must_not_happen_twice_is_on_record_only_when_it_begins(rig: Rig) -> None:
    """A crash would leave it open, and whether it happened could not be seen."""
    seen: list[int] = []
    rig.using(Doing(lambda _: seen.append(len(rig.journal.state().reconcile.open_intents))))
    rig.context = replace(rig.context, workers=1)
    rig.run(*(action(config_key(agent), idempotent=False) for agent in many(9)))
    assert seen == [1] * 9


def test_what_a_crash_left_open_keeps_its_key_however_often_it_has_to_wait(rig: Rig) -> None:
    """It may have been begun by an earlier process, so it is never taken back as one that was not."""
    urgent, actions = Event(), [action(config_key(agent)) for agent in many(9)]
    left = [Intent(f"left-{number}", each, SHA, "digest", "test", 1.0) for number, each in enumerate(actions)]
    rig.journal.begin(left)
    rig.using(Doing(lambda _: urgent.set()))
    rig.context = replace(rig.context, workers=1, interrupted=urgent.is_set)
    assert len(rig.run(*actions)) == 1
    assert rig.journal.state().reconcile.open_intents.keys() == {each.id for each in left[1:]}


def test_what_was_ahead_of_a_journal_that_failed_is_taken_back_by_the_next_pass(rig: Rig) -> None:
    rig.context = replace(rig.context, workers=1)
    executor, actions = Executor(rig.context), [action(config_key(agent)) for agent in many(9)]
    rig.points._point = "journal.finish:before"
    with pytest.raises(Crash):
        rig.execute(executor, plan(*actions))
    rig.points._point = ""
    assert rig.journal.state().reconcile.open_intents
    executor.collect_finished()
    rig.execute(executor, plan())
    assert rig.journal.state().reconcile.open_intents == {}


# -- what is written when


def test_many_agents_cost_few_transactions(rig: Rig) -> None:
    rig.run(*(step for agent in many(200) for step in bring_up(agent)))
    assert len(rig.journal.state().reconcile.bases) == 400
    assert rig.trace.count("journal.begin:after") < 50, "not two for each agent"


def test_workers_go_on_with_what_is_on_record_while_the_journal_is_written(rig: Rig) -> None:
    began, written, went_on = list[AgentKey](), Event(), Event()

    def do(action: Action) -> None:
        began.append(action.key.agent)
        if len(began) == 3:
            written.wait(20)  # under way when the second is written down
        if len(began) > 3:
            went_on.set()

    def inside(method: str) -> None:
        if method == "finish" and len(began) == 3 and not written.is_set():
            written.set()
            assert went_on.wait(20)

    rig.using(Doing(do))
    rig.context = replace(rig.context, workers=1)
    rig.journal.inside = inside
    agents = [AgentKey("acme", f"bot-{number:02}") for number in range(10)]
    done = rig.run(*(action(runtime_key(agent)) for agent in agents))
    assert [outcome.result for _, outcome in done] == [Result.DONE] * 10
    assert rig.journal.state().reconcile.open_intents == {}


def test_intents_come_before_effects_in_one_transaction_per_round(rig: Rig) -> None:
    rig.run(*bring_up(ONE), *bring_up(TWO), *bring_up(THREE))
    assert rig.trace[:3] == ["journal.begin:before", "journal.begin:inside", "journal.begin:after"]
    opened = effects = 0
    for point in rig.trace:
        opened += point == "journal.begin:after"
        effects += point == "apply:before"
        assert not effects or opened, rig.trace
    assert rig.trace[-1] == "journal.finish:after"
    assert effects == 6
    # Three agents of two steps: the first round is one transaction, not three.
    first = rig.trace.index("apply:before")
    assert rig.trace[:first].count("journal.begin:after") == 1
    assert len([entry for entry in rig.journal.entries() if entry.result == Result.DONE]) == 6


@pytest.mark.parametrize("point", [f"journal.begin:{when}" for when in ("before", "inside", "after")])
def test_an_intent_that_could_not_be_written_has_no_effect(rig: Rig, point: str) -> None:
    rig.points._point = point
    with pytest.raises(Crash):
        rig.run(*bring_up(ONE))
    assert rig.live.live == {}
    assert len(rig.journal.state().reconcile.open_intents) == (point == "journal.begin:after")


def test_an_entry_tells_who_did_what_for_which_commit_and_why(rig: Rig) -> None:
    rig.run(replace(action(runtime_key(ONE)), live=None))
    (entry,) = rig.journal.entries()
    assert (entry.actor, entry.commit, entry.plan, entry.reason) == ("test", SHA, "digest", "AgentAdded")
    assert (entry.verb, entry.before, entry.after, entry.result) == ("create", None, WANTED, "Done")
    assert entry.at == rig.clock.now()
    assert entry.duration == 0.0


def test_what_a_crash_left_open_is_tried_under_the_same_key(rig: Rig) -> None:
    step = action(runtime_key(ONE))
    rig.journal.begin([Intent("first-try", step, SHA, "digest", "test", 1.0)])
    rig.run(step)
    assert rig.live.applied == [("first-try", Verb.CREATE, runtime_key(ONE))]
    assert rig.journal.state().reconcile.open_intents == {}


def test_another_wish_for_the_same_resource_gets_a_key_of_its_own(rig: Rig) -> None:
    rig.journal.begin([Intent("old", action(runtime_key(ONE), desired=OTHER), SHA, "digest", "test", 1.0)])
    rig.run(action(runtime_key(ONE)))
    ((used, _, _),) = rig.live.applied
    assert used != "old"
    assert rig.journal.state().reconcile.open_intents == {}


# -- bases


def base_of(rig: Rig, key: ResourceKey) -> tuple[str, float, Fields]:
    found = rig.journal.state().reconcile.bases[key]
    return found.commit, found.applied_at, found.fields


def test_a_change_moves_the_base_to_the_commit(rig: Rig) -> None:
    rig.journal.finish((), bases=[base(runtime_key(ONE), OTHER)])
    rig.live.plant(runtime_key(ONE), OTHER.value)
    rig.run(action(runtime_key(ONE), Verb.RESTART, live=OTHER, base=OTHER))
    assert base_of(rig, runtime_key(ONE)) == (SHA, rig.clock.now(), WANTED)


def test_a_repair_keeps_the_commit_it_repairs(rig: Rig) -> None:
    rig.journal.finish((), bases=[base(runtime_key(ONE))])
    rig.run(action(runtime_key(ONE), Verb.CREATE, Class.MISSING_EXTERNAL, base=WANTED))
    assert base_of(rig, runtime_key(ONE)) == ("earlier", 5.0, WANTED)
    assert rig.journal.state().reconcile.bases[runtime_key(ONE)].handle == rig.live.live[runtime_key(ONE)].handle


def test_what_was_retained_and_is_wanted_again_is_new(rig: Rig) -> None:
    rig.journal.finish((), bases=[base(runtime_key(ONE), retained=True)])
    rig.run(action(runtime_key(ONE)))
    found = rig.journal.state().reconcile.bases[runtime_key(ONE)]
    assert (found.commit, found.retained) == (SHA, False)


def test_a_deleted_resource_leaves_no_base_and_a_failed_one_keeps_its_own(rig: Rig) -> None:
    for agent in (ONE, TWO):
        rig.journal.finish((), bases=[base(runtime_key(agent))])
        rig.live.plant(runtime_key(agent), WANTED.value)
    rig.live.fail_always(key=runtime_key(TWO))
    rig.run(*(action(runtime_key(agent), Verb.DELETE, live=WANTED) for agent in (ONE, TWO)))
    assert set(rig.journal.state().reconcile.bases) == {runtime_key(TWO)}
    assert set(rig.live.live) == {runtime_key(TWO)}


# -- attempts


def test_failures_add_up_and_a_change_that_succeeds_clears_them(rig: Rig) -> None:
    rig.live.fail_next(2, "no room")
    rig.run(action(runtime_key(ONE)))
    first = rig.journal.state().reconcile.attempts[runtime_key(ONE)]
    rig.run(action(runtime_key(ONE)))
    second = rig.journal.state().reconcile.attempts[runtime_key(ONE)]
    assert (first.failures, second.failures) == (1, 2)
    assert rig.clock.now() < first.next_at < second.next_at
    assert "no room" in second.error
    rig.run(action(runtime_key(ONE)))
    assert rig.journal.state().reconcile.attempts == {}


def test_a_repair_counts_as_an_attempt_because_it_may_not_last(rig: Rig) -> None:
    rig.journal.finish((), bases=[base(runtime_key(ONE))], attempts={runtime_key(ONE): Attempt(2, 1.0, "x")})
    rig.run(action(runtime_key(ONE), Verb.CREATE, Class.MISSING_EXTERNAL, reason="ProcessGone", base=WANTED))
    attempt = rig.journal.state().reconcile.attempts[runtime_key(ONE)]
    assert (attempt.failures, attempt.permanent) == (3, False)
    assert "ProcessGone" in attempt.error


def test_what_cannot_be_helped_waits_the_longest(rig: Rig) -> None:
    rig.live.fail_always("command not found", permanent=True)
    rig.run(action(runtime_key(ONE)))
    attempt = rig.journal.state().reconcile.attempts[runtime_key(ONE)]
    assert attempt.permanent
    assert attempt.next_at == rig.clock.now() + 300


# -- whatever a driver does


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (ApplyError("disk is full", hint="free some space"), "disk is full (free some space)"),
        (ObserveError("cannot look"), "cannot look"),
        (GitopsAgentError("odd"), "odd"),
        (RuntimeError("secret detail"), "unexpected RuntimeError in driver memory"),
        (KeyError("facts"), "unexpected KeyError in driver memory"),
        (RecursionError(), "unexpected RecursionError in driver memory"),
        (SystemExit(3), "unexpected SystemExit in driver memory"),
    ],
)
@pytest.mark.parametrize("where", ["precheck", "apply"])
def test_whatever_a_driver_raises_becomes_an_outcome(
    rig: Rig, problem: BaseException, told: str, where: str
) -> None:
    def fail(_: Action) -> Any:
        raise problem

    def broken(step: Action) -> Any:
        return fail(step) if step.key.agent == ONE else None

    if where == "apply":
        rig.using(Doing(broken))
    else:
        rig.using(Doing(lambda _: None, unchanged=lambda step: broken(step) is None))
    done = rig.run(*bring_up(ONE), *bring_up(TWO))
    (failed,) = [outcome for step, outcome in done if step.key.agent == ONE]
    assert (failed.result, failed.message) == (Result.FAILED, told)
    assert [outcome.result for step, outcome in done if step.key.agent == TWO] == [Result.DONE] * 2
    known = isinstance(problem, GitopsAgentError)
    assert [found for found, _ in rig.unexpected] == ([] if known else [problem])
    assert all(about.key == config_key(ONE) for _, about in rig.unexpected)
    assert config_key(ONE) in rig.journal.state().reconcile.attempts
    assert rig.journal.state().reconcile.open_intents == {}


def test_an_action_for_a_driver_that_is_not_there_fails_alone(rig: Rig) -> None:
    lost = replace(action(runtime_key(ONE), Verb.DELETE), driver="uninstalled")
    done = rig.run(lost, *bring_up(TWO))
    assert results(done)[str(runtime_key(ONE))] is Result.FAILED
    assert runtime_key(TWO) in rig.live.live
    assert rig.journal.state().reconcile.open_intents == {}


# -- what a driver is told of what was done


class Recorded(Doing):
    """A driver that keeps a record of what was done, and fails at that."""

    problem: BaseException = AttributeError("no such thing")

    def record(self, done: Record) -> None:
        raise self.problem


@pytest.mark.parametrize(
    "problem", [AttributeError("no such thing"), SystemExit(1), ObserveError("gone"), KeyError("a")]
)
def test_a_driver_that_fails_at_its_record_costs_no_outcome(rig: Rig, problem: BaseException) -> None:
    driver = Recorded(lambda _: None)
    driver.problem = problem
    rig.using(driver)
    executor = Executor(rig.context)
    assert results(rig.execute(executor, plan(*bring_up(ONE)))) == {
        str(config_key(ONE)): Result.DONE,
        str(runtime_key(ONE)): Result.DONE,
    }
    assert executor.running == ()
    assert rig.journal.state().reconcile.open_intents == {}
    assert rig.execute(executor, plan()) == [], "later passes go on"


@pytest.mark.parametrize("of_system", [True, False])
def test_whether_a_failure_may_be_one_of_the_live_system_is_handed_on(rig: Rig, of_system: bool) -> None:
    def fail(_: Action) -> None:
        raise ApplyError("no right", of_system=of_system)

    rig.using(Doing(fail))
    ((_, outcome),) = rig.run(action(runtime_key(ONE)))
    assert (outcome.result, outcome.of_system) == (Result.FAILED, of_system)
