"""When passes run: once until settled, the daemon for ever, and what a call of ``once`` ends with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from gitops_agent.daemon.loop import Daemon, Intervals, Machine, exit_code, is_settled, run_once
from gitops_agent.daemon.queue import Request, WorkQueue
from gitops_agent.errors import SourceError, SourceUnavailable
from gitops_agent.model.passes import PassResult
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.ports import Scope
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import runtime_key
from tests.support.fleet import until

from .repository import key
from .world import World


def a_result(phase: Phase | None = Phase.CONVERGED, **more: Any) -> PassResult:
    record = CommitRecord("a" * 40, "", "", "", 0.0, 0, phase, 0.0) if phase else None
    return PassResult("a" * 40 if phase else None, None, record, {}, (), **more)


# -- the table of exit codes


@pytest.mark.unit
@pytest.mark.parametrize(
    ("result", "timed_out", "code"),
    [
        (None, False, 1),
        (a_result(Phase.CONVERGED), False, 0),
        (a_result(Phase.CONVERGED), True, 5),
        (a_result(Phase.DEGRADED), False, 5),
        (a_result(Phase.PENDING), True, 5),
        (a_result(Phase.RECONCILING), True, 5),
        (a_result(Phase.BLOCKED), False, 4),
        (a_result(Phase.BLOCKED), True, 4),
        (a_result(Phase.RECONCILING, frozen=True), True, 4),
        (a_result(Phase.INVALID), False, 3),
        (a_result(Phase.INVALID), True, 3),
        (a_result(Phase.REFUSED), False, 6),
        (a_result(Phase.CONVERGED, unavailable=True), False, 6),
        (a_result(Phase.INVALID, unavailable=True), False, 6),
        (a_result(None), False, 6),
        (a_result(None, unavailable=True), True, 6),
    ],
)
def test_exit_codes(result: PassResult | None, timed_out: bool, code: int) -> None:
    assert exit_code(result, timed_out=timed_out) == code


@pytest.mark.unit
@pytest.mark.parametrize(
    ("result", "settled"),
    [
        (a_result(Phase.PENDING), False),
        (a_result(Phase.RECONCILING), False),
        *((a_result(phase), True) for phase in Phase if phase.terminal),
        (a_result(Phase.BLOCKED), True),
        (a_result(None), True),
        (a_result(Phase.CONVERGED, busy=True), False),
        (a_result(Phase.INVALID, busy=True), False),
    ],
)
def test_when_another_pass_could_not_change_the_answer(result: PassResult, settled: bool) -> None:
    assert is_settled(result) is settled


# -- a machine whose time passes when somebody waits


class PatientInbox(WorkQueue):
    """Waiting moves the clock instead of costing time."""

    def __init__(self, clock: FrozenClock) -> None:
        super().__init__()
        self.clock = clock
        self.waited: list[float | None] = []

    def take(self, timeout: float | None) -> Request | None:
        self.waited.append(timeout)
        self.clock.advance(max(0.001, timeout or 0.0))
        return super().take(0)


class Watching:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.notify: Callable[[Any, str], None] | None = None

    def start(self, notify: Callable[[Any, str], None]) -> None:
        self.events.append("start")
        self.notify = notify

    def stop(self) -> None:
        self.events.append("stop")


def machine(world: World, inbox: WorkQueue, **more: Any) -> Machine:
    given = {
        "pipeline": world.pipeline,
        "inbox": inbox,
        "watchers": (),
        "clock": world.clock,
        "rhythm": Intervals(poll=30.0, resync=60.0),
        "housekeeping": lambda: None,
        "on_unexpected": world.unexpected.append,
        **more,
    }
    return Machine(**given)


def once(world: World, timeout: float = 600.0, **more: Any) -> tuple[PassResult, bool, list[PassResult]]:
    seen: list[PassResult] = []
    inbox = more.pop("inbox", None) or PatientInbox(world.clock)
    result, timed_out = run_once(machine(world, inbox, **more), timeout, seen.append)
    return result, timed_out, seen


def test_once_ends_when_the_commit_converged(world: World) -> None:
    sha = world.commit("one", "two")
    watcher = Watching()
    result, timed_out, seen = once(world, watchers=(watcher,))
    assert (result.phase, timed_out, exit_code(result)) == (Phase.CONVERGED, False, 0)
    assert [each.phase for each in seen] == [Phase.RECONCILING, Phase.CONVERGED]
    assert world.running == world.wanted(sha)
    assert watcher.events == ["start", "stop"]
    assert world.repository.refreshed == 1


def test_once_without_work_is_one_pass(world: World) -> None:
    world.commit("one")
    world.converge()
    _, _, seen = once(world)
    assert len(seen) == 1


def test_once_gives_up_when_its_time_is_over(world: World) -> None:
    world.live.fail_always("no room")
    world.repository.commit({"one": {"rollout": {"healthTimeout": "1h"}}})
    began = world.clock.monotonic()
    result, timed_out, _ = once(world, timeout=20.0)
    assert (timed_out, exit_code(result, timed_out=timed_out)) == (True, 5)
    assert 20 <= world.clock.monotonic() - began < 30


def test_once_waits_for_an_agent_that_backs_off_and_then_says_degraded(world: World) -> None:
    world.live.fail_always("no room")
    world.repository.commit({"one": {"rollout": {"healthTimeout": "30s"}}})
    result, timed_out, _ = once(world)
    assert (result.phase, timed_out, exit_code(result)) == (Phase.DEGRADED, False, 5)


@pytest.mark.parametrize(
    ("broken", "down", "code"), [("duplicate key", False, 3), ("", True, 6), ("duplicate key", True, 6)]
)
def test_once_says_why_it_did_not_follow(world: World, broken: str, down: bool, code: int) -> None:
    world.commit("one")
    world.converge()
    if broken:
        world.repository.commit(broken=broken)
    if down:
        world.repository.down = SourceUnavailable("no route to host")
    world.live.remove(runtime_key(key("one")))
    world.clock.advance(60)
    result, timed_out, _ = once(world)
    assert exit_code(result, timed_out=timed_out) == code
    assert runtime_key(key("one")) in world.live.live, "the last good commit is repaired all the same"
    assert result.statuses[key("one")].ready


def test_a_push_while_once_runs_is_followed_at_once(world: World) -> None:
    first = world.repository.commit({"one": {"runtime": {"minUptime": "10s"}}})
    inbox = PatientInbox(world.clock)
    commits: list[str | None] = []

    def progress(result: PassResult) -> None:
        if not commits:
            world.commit("one", "two")
            inbox.fetch("watch", urgent=True)
        commits.append(result.commit)

    result, _ = run_once(machine(world, inbox), 600.0, progress)
    assert commits[0] == first
    assert commits[1] == result.commit == world.repository.head
    assert (result.phase, world.phase(first)) == (Phase.CONVERGED, Phase.SUPERSEDED)
    assert world.repository.refreshed == 2


def test_closing_ends_once_after_the_pass_in_hand(world: World) -> None:
    world.commit("one")
    inbox = PatientInbox(world.clock)
    inbox.close()
    result, timed_out, seen = once(world, inbox=inbox)
    assert len(seen) == 1
    assert exit_code(result, timed_out=timed_out) == 5


# -- the daemon, on a real clock but without a real source


class Scripted:
    """A pipeline that answers from a script and remembers what it was asked."""

    def __init__(self, *answers: PassResult | Exception, source: Sequence[Exception | None] = ()) -> None:
        self.answers = list(answers)
        self.source = list(source)
        self.asked: list[Scope] = []
        self.fetched = 0
        self.source_problem: SourceError | None = None

    def fetch(self) -> bool:
        self.fetched += 1
        said = self.source.pop(0) if self.source else None
        if said is not None and not isinstance(said, SourceError):
            raise said
        self.source_problem = said
        return False

    def run(self, scope: Scope = None, *, fetch: bool = True, actor: str = "once") -> PassResult:
        assert not fetch, "a pass of the daemon never waits for the source"
        self.asked.append(scope)
        answer = self.answers.pop(0) if self.answers else a_result()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def daemon(world: World, pipeline: Any, **more: Any) -> Iterator[tuple[WorkQueue, Daemon]]:
    inbox = WorkQueue()
    running = Daemon(machine(world, inbox, pipeline=pipeline, **more), Random(1), lambda _: None)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield inbox, running
    finally:
        inbox.close()
        thread.join(30)
        assert not thread.is_alive()


def test_the_daemon_begins_with_everything_and_then_does_what_it_is_asked(world: World) -> None:
    pipeline, watcher = Scripted(), Watching()
    with daemon(world, pipeline, watchers=(watcher,)) as (inbox, _):
        until(lambda: pipeline.asked, "the first pass")
        inbox.agent(key("one"), "exit")
        until(lambda: len(pipeline.asked) >= 2, "the second pass")
        inbox.fetch("watch", urgent=True)
        until(lambda: pipeline.fetched >= 2, "the question to the source")
    assert pipeline.asked[:2] == [None, frozenset({key("one")})]
    assert watcher.events == ["start", "stop"]


def test_a_pass_that_breaks_is_reported_and_the_next_one_looks_at_everything(world: World) -> None:
    pipeline = Scripted(a_result(), RuntimeError("bug"))
    with daemon(world, pipeline) as (inbox, _):
        until(lambda: pipeline.asked, "the first pass")
        inbox.agent(key("one"), "exit")
        until(lambda: world.unexpected, "the report")
        inbox.agent(key("two"), "exit")
        until(lambda: len(pipeline.asked) >= 3, "another pass")
        inbox.agent(key("two"), "exit")
        until(lambda: len(pipeline.asked) >= 4, "one more")
    assert [str(problem) for problem in world.unexpected] == ["bug"]
    assert pipeline.asked[2] is None, "what the broken pass was about is not lost"
    assert pipeline.asked[3] == frozenset({key("two")})


def test_it_wakes_by_itself_when_a_result_says_so(world: World) -> None:
    pipeline = Scripted(a_result(Phase.RECONCILING, wait=0.01), a_result())
    with daemon(world, pipeline):
        until(lambda: len(pipeline.asked) >= 2, "the second pass")
    assert pipeline.asked[1] == frozenset()


def test_polling_goes_on_whatever_the_source_says(world: World) -> None:
    gone = SourceUnavailable("gone")
    pipeline = Scripted(source=[gone, RuntimeError("bug"), gone])
    with daemon(world, pipeline, rhythm=Intervals(poll=0.05, resync=3600.0)) as (_, running):
        until(lambda: pipeline.fetched >= 5, "five polls")
        until(lambda: running._failures == 0, "a source that answers again")
    assert len(world.unexpected) == 1


def test_each_failure_counts_once(world: World) -> None:
    gone = SourceUnavailable("gone")
    pipeline = Scripted(source=[gone, gone])
    counted: list[int] = []
    with daemon(world, pipeline, rhythm=Intervals(poll=3600.0, resync=3600.0)) as (inbox, running):
        for number in (1, 2):
            until(lambda n=number: running._failures == n, f"failure {number}")
            counted.append(running._failures)
            inbox.fetch("by hand")
        until(lambda: running._failures == 0, "the answer")
    assert counted == [1, 2]


def test_the_fleet_is_looked_at_as_a_whole_now_and_then(world: World) -> None:
    pipeline = Scripted()
    with daemon(world, pipeline, rhythm=Intervals(poll=3600.0, resync=0.1)):
        until(lambda: pipeline.asked.count(None) >= 3, "two resyncs")


def test_a_source_that_hangs_keeps_nobody_from_being_repaired(world: World) -> None:
    pipeline, answer = Scripted(), threading.Event()
    pipeline.fetch = lambda: answer.wait(30) and False  # type: ignore[method-assign]
    with daemon(world, pipeline) as (inbox, _):
        until(lambda: pipeline.asked, "the first pass")
        inbox.agent(key("one"), "exit")
        until(lambda: frozenset({key("one")}) in pipeline.asked, "a pass while the source hangs")
        answer.set()


def test_a_schedule_that_stands_still_is_made_up_for(world: World) -> None:
    """The scheduler follows the wall clock; ours is the one that cannot be set back."""
    pipeline = Scripted()
    with daemon(world, pipeline, rhythm=Intervals(poll=3600.0, resync=3600.0)) as (inbox, _):
        until(lambda: pipeline.asked, "the first pass")
        world.clock.advance(2 * 3600.0)
        inbox.agent(key("one"), "exit")
        until(lambda: pipeline.asked.count(None) >= 2, "a look at the whole fleet")
        inbox.news("tick")
        until(lambda: pipeline.fetched >= 2, "a question to the source")


def test_a_whole_fleet_under_the_daemon(tmp_path: Any) -> None:
    """The real pipeline on the in-memory live system: a commit, a drift, another commit, all by event."""
    world = World(tmp_path / "state")
    inbox: WorkQueue
    world.repository.commit({name: {"runtime": {"minUptime": "0s"}} for name in ("one", "two")})
    with daemon(world, world.pipeline, watchers=(world.live,)) as (inbox, _):
        first = world.repository.head or ""
        until(lambda: world.phase(first) is Phase.CONVERGED, "the first commit")
        until(lambda: world.live._notify is not None, "the watcher")
        world.live.remove(runtime_key(key("one")))
        until(lambda: world.running == world.wanted(first), "the repair")
        second = world.repository.commit({"one": {"runtime": {"minUptime": "0s"}}})
        inbox.fetch("watch", urgent=True)
        until(lambda: world.phase(second) is Phase.CONVERGED, "the second commit")
        assert world.running == world.wanted(second)
    world.shut()
    assert world.unexpected == []
