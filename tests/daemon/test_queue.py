"""The queue: requests merge, urgency makes way, closing wakes the reader."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.model.passes import Request
from tests.pipeline.repository import key

pytestmark = pytest.mark.unit
ONE, TWO = key("one"), key("two")


def test_nothing_is_asked_for() -> None:
    assert WorkQueue().take(0) is None


def test_requests_merge_into_one_pass() -> None:
    queue = WorkQueue()
    queue.agent(ONE, "exit")
    queue.agent(TWO, "exit")
    queue.agent(ONE, "edited")
    queue.fetch("poll")
    assert queue.take(0) == Request(frozenset({ONE, TWO}), True, reasons=("exit", "edited", "poll"))
    assert queue.take(0) is None


def test_everything_covers_each() -> None:
    queue = WorkQueue()
    queue.agent(ONE, "exit")
    queue.everything("resync")
    assert queue.take(0) == Request(None, False, reasons=("exit", "resync"))


def test_a_fetch_alone_looks_at_nobody_by_itself() -> None:
    queue = WorkQueue()
    queue.fetch("poll")
    assert queue.take(0) == Request(frozenset(), True, reasons=("poll",))


def test_only_a_source_that_moved_is_urgent() -> None:
    queue = WorkQueue()
    queue.agent(ONE, "exit")
    queue.everything("resync")
    queue.fetch("poll")
    assert not queue.is_urgent()
    queue.fetch("watch", urgent=True)
    queue.fetch("poll")
    assert queue.is_urgent()
    queue.take(0)
    assert not queue.is_urgent()


def test_closing_is_urgent_final_and_wakes_the_reader() -> None:
    queue, taken = WorkQueue(), list[Request | None]()
    reader = threading.Thread(target=lambda: taken.append(queue.take(None)))
    reader.start()
    queue.close()
    reader.join(20)
    assert taken == [None]
    queue.everything("late")
    assert queue.closed
    assert queue.is_urgent()
    assert queue.take(None) is None


def test_a_request_wakes_the_reader() -> None:
    queue, taken = WorkQueue(), list[Request | None]()
    reader = threading.Thread(target=lambda: taken.append(queue.take(30)))
    reader.start()
    queue.agent(ONE, "exit")
    reader.join(20)
    assert taken == [Request(frozenset({ONE}), False, reasons=("exit",))]


requests = st.lists(
    st.one_of(
        st.tuples(st.just("agent"), st.sampled_from([ONE, TWO])),
        st.tuples(st.sampled_from(["fetch", "everything", "take"]), st.none()),
    ),
    max_size=20,
)


@given(requests)
def test_no_request_is_lost(script: list[tuple[str, object]]) -> None:
    queue, asked, served = WorkQueue(), set[object](), set[object]()

    def take() -> None:
        if (request := queue.take(0)) is not None:
            served.update({ONE, TWO, "everything"} if request.scope is None else request.scope)
            served.update({"fetch"} if request.fetch else ())

    for request, about in script:
        if request == "take":
            take()
            assert asked <= served
        elif request == "agent":
            queue.agent(about, "exit")  # type: ignore[arg-type]
            asked.add(about)
            served.discard(about)
        else:
            getattr(queue, request)("reason")
            asked.add(request)
            served.discard(request)
    take()
    assert asked <= served
