"""When passes run: once until settled, the daemon for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from gitops_agent.cli.exit_codes import exit_code
from gitops_agent.daemon.liveness import Liveness
from gitops_agent.daemon.loop import ControllerContext, Daemon, run_once
from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.errors import SourceError, SourceUnavailable
from gitops_agent.model.passes import PassResult, Request, Scope
from gitops_agent.model.state import CommitsState, SourceState, State
from gitops_agent.model.status import Phase
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import runtime_key
from tests.pipeline.repository import key
from tests.pipeline.world import World
from tests.report.values import SHA, a_record
from tests.support.fleet import until


def a_result(phase: Phase = Phase.CONVERGED, **more: Any) -> PassResult:
    commits = CommitsState({SHA: a_record(phase=phase)})
    return PassResult(State(source=SourceState(head=SHA), commits=commits), **more)


# -- a loop whose time passes while it waits


class PatientQueue(WorkQueue):
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


def context(world: World, queue: WorkQueue, **more: Any) -> ControllerContext:
    given = {
        "pipeline": world.pipeline,
        "queue": queue,
        "watchers": (),
        "clock": world.clock,
        "poll_interval": 30.0,
        "resync_interval": 60.0,
        "on_unexpected": world.unexpected.append,
        "liveness": Liveness(world.clock, 60.0),
        **more,
    }
    return ControllerContext(**given)


def once(world: World, timeout: float = 600.0, **more: Any) -> tuple[PassResult, bool, list[PassResult]]:
    seen: list[PassResult] = []
    queue = more.pop("queue", None) or PatientQueue(world.clock)
    result, timed_out = run_once(context(world, queue, **more), timeout, seen.append)
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
    assert result.state.status.agents[key("one")].ready


def test_a_push_while_once_runs_is_followed_at_once(world: World) -> None:
    first = world.repository.commit({"one": {"runtime": {"minUptime": "10s"}}})
    queue = PatientQueue(world.clock)
    commits: list[str | None] = []

    def progress(result: PassResult) -> None:
        if not commits:
            world.commit("one", "two")
            queue.fetch("watch", urgent=True)
        commits.append(result.state.source.head)

    result, _ = run_once(context(world, queue), 600.0, progress)
    assert commits[0] == first
    assert commits[1] == result.state.source.head == world.repository.head
    assert (result.phase, world.phase(first)) == (Phase.CONVERGED, Phase.SUPERSEDED)
    assert world.repository.refreshed == 2


def test_closing_ends_once_after_the_pass_in_hand(world: World) -> None:
    world.commit("one")
    queue = PatientQueue(world.clock)
    queue.close()
    result, timed_out, seen = once(world, queue=queue)
    assert len(seen) == 1
    assert exit_code(result, timed_out=timed_out) == 5


# -- the daemon, on a real clock but without a real source


class Scripted:
    """A pipeline and its source that answer from a script and remember what they were asked."""

    def __init__(self, *answers: PassResult | Exception, source: Sequence[Exception | None] = ()) -> None:
        self.answers = list(answers)
        self.script = list(source)
        self.asked: list[Scope] = []
        self.fetched = 0
        self.problem: SourceError | None = None

    @property
    def stages(self) -> Scripted:
        return self

    @property
    def source(self) -> Scripted:
        return self

    def fetch(self) -> bool:
        self.fetched += 1
        answer = self.script.pop(0) if self.script else None
        if answer is not None and not isinstance(answer, SourceError):
            raise answer
        self.problem = answer
        return False

    def run(self, request: Request) -> PassResult:
        assert not request.fetch, "a pass of the daemon never waits for the source"
        assert request.actor == "run"
        self.asked.append(request.scope)
        answer = self.answers.pop(0) if self.answers else a_result()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def daemon(world: World, pipeline: Any, **more: Any) -> Iterator[tuple[WorkQueue, Daemon]]:
    queue = WorkQueue()
    running = Daemon(context(world, queue, pipeline=pipeline, **more), Random(1), lambda _: None)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield queue, running
    finally:
        queue.close()
        thread.join(30)
        assert not thread.is_alive()


def test_the_daemon_begins_with_everything_and_then_does_what_it_is_asked(world: World) -> None:
    pipeline, watcher = Scripted(), Watching()
    with daemon(world, pipeline, watchers=(watcher,)) as (queue, _):
        until(lambda: pipeline.asked, "the first pass")
        queue.agent(key("one"), "exit")
        until(lambda: len(pipeline.asked) >= 2, "the second pass")
        queue.fetch("watch", urgent=True)
        until(lambda: pipeline.fetched >= 2, "the question to the source")
    assert pipeline.asked[:2] == [None, frozenset({key("one")})]
    assert watcher.events == ["start", "stop"]


def test_a_pass_that_breaks_is_reported_and_the_next_one_looks_at_everything(world: World) -> None:
    pipeline = Scripted(a_result(), RuntimeError("bug"))
    with daemon(world, pipeline) as (queue, _):
        until(lambda: pipeline.asked, "the first pass")
        queue.agent(key("one"), "exit")
        until(lambda: world.unexpected, "the report")
        queue.agent(key("two"), "exit")
        until(lambda: len(pipeline.asked) >= 3, "another pass")
        queue.agent(key("two"), "exit")
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
    with daemon(world, pipeline, poll_interval=0.05, resync_interval=3600.0) as (_, running):
        until(lambda: pipeline.fetched >= 5, "five polls")
        until(lambda: running._failures == 0, "a source that answers again")
    assert len(world.unexpected) == 1


def test_each_failure_counts_once(world: World) -> None:
    gone = SourceUnavailable("gone")
    pipeline = Scripted(source=[gone, gone])
    counted: list[int] = []
    with daemon(world, pipeline, poll_interval=3600.0, resync_interval=3600.0) as (queue, running):
        for number in (1, 2):
            until(lambda n=number: running._failures == n, f"failure {number}")
            counted.append(running._failures)
            queue.fetch("by hand")
        until(lambda: running._failures == 0, "the answer")
    assert counted == [1, 2]


def test_the_fleet_is_looked_at_as_a_whole_now_and_then(world: World) -> None:
    pipeline = Scripted()
    with daemon(world, pipeline, poll_interval=3600.0, resync_interval=0.1):
        until(lambda: pipeline.asked.count(None) >= 3, "two resyncs")


def test_a_source_that_hangs_keeps_nobody_from_being_repaired(world: World) -> None:
    pipeline, answer = Scripted(), threading.Event()
    pipeline.fetch = lambda: answer.wait(30) and False  # type: ignore[method-assign]
    with daemon(world, pipeline) as (queue, _):
        until(lambda: pipeline.asked, "the first pass")
        queue.agent(key("one"), "exit")
        until(lambda: frozenset({key("one")}) in pipeline.asked, "a pass while the source hangs")
        answer.set()


def test_a_schedule_that_stands_still_is_made_up_for(world: World) -> None:
    """The scheduler follows the wall clock; ours is the one that cannot be set back."""
    pipeline = Scripted()
    with daemon(world, pipeline, poll_interval=3600.0, resync_interval=3600.0) as (queue, _):
        until(lambda: pipeline.asked, "the first pass")
        queue.agent(key("one"), "exit")
        until(lambda: len(pipeline.asked) >= 2, "its end, and the next")
        world.clock.advance(2 * 3600.0)
        queue.agent(key("one"), "exit")
        until(lambda: pipeline.asked.count(None) >= 2, "a look at the whole fleet")
        queue.source_changed("tick")
        until(lambda: pipeline.fetched >= 2, "a question to the source")


def test_a_whole_fleet_under_the_daemon(tmp_path: Any) -> None:
    """The real pipeline on the in-memory live system: a commit, a drift, another commit, all by event."""
    world = World(tmp_path / "state")
    queue: WorkQueue
    world.repository.commit({name: {"runtime": {"minUptime": "0s"}} for name in ("one", "two")})
    with daemon(world, world.pipeline, watchers=(world.live,)) as (queue, _):
        first = world.repository.head or ""
        until(lambda: world.phase(first) is Phase.CONVERGED, "the first commit")
        until(lambda: world.live._notify is not None, "the watcher")
        world.live.remove(runtime_key(key("one")))
        until(lambda: world.running == world.wanted(first), "the repair")
        second = world.repository.commit({"one": {"runtime": {"minUptime": "0s"}}})
        queue.fetch("watch", urgent=True)
        until(lambda: world.phase(second) is Phase.CONVERGED, "the second commit")
        assert world.running == world.wanted(second)
    world.shut()
    assert world.unexpected == []
