"""The inbox: wishes merge, urgency makes way, closing wakes the reader."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.daemon.queue import Request, WorkQueue

from .repository import key

pytestmark = pytest.mark.unit
ONE, TWO = key("one"), key("two")


def test_nothing_is_asked_for() -> None:
    assert WorkQueue().take(0) is None


def test_wishes_merge_into_one_pass() -> None:
    inbox = WorkQueue()
    inbox.agent(ONE, "exit")
    inbox.agent(TWO, "exit")
    inbox.agent(ONE, "edited")
    inbox.fetch("poll")
    assert inbox.take(0) == Request(frozenset({ONE, TWO}), True, ("exit", "edited", "poll"))
    assert inbox.take(0) is None


def test_everything_covers_each() -> None:
    inbox = WorkQueue()
    inbox.agent(ONE, "exit")
    inbox.everything("resync")
    assert inbox.take(0) == Request(None, False, ("exit", "resync"))


def test_a_fetch_alone_looks_at_nobody_by_itself() -> None:
    inbox = WorkQueue()
    inbox.fetch("poll")
    assert inbox.take(0) == Request(frozenset(), True, ("poll",))


def test_only_news_is_urgent() -> None:
    inbox = WorkQueue()
    inbox.agent(ONE, "exit")
    inbox.everything("resync")
    inbox.fetch("poll")
    assert not inbox.is_urgent()
    inbox.fetch("watch", urgent=True)
    inbox.fetch("poll")
    assert inbox.is_urgent()
    inbox.take(0)
    assert not inbox.is_urgent()


def test_closing_is_urgent_final_and_wakes_the_reader() -> None:
    inbox, taken = WorkQueue(), list[Request | None]()
    reader = threading.Thread(target=lambda: taken.append(inbox.take(None)))
    reader.start()
    inbox.close()
    reader.join(20)
    assert taken == [None]
    inbox.everything("late")
    assert inbox.closed
    assert inbox.is_urgent()
    assert inbox.take(None) is None


def test_a_wish_wakes_the_reader() -> None:
    inbox, taken = WorkQueue(), list[Request | None]()
    reader = threading.Thread(target=lambda: taken.append(inbox.take(30)))
    reader.start()
    inbox.agent(ONE, "exit")
    reader.join(20)
    assert taken == [Request(frozenset({ONE}), False, ("exit",))]


wishes = st.lists(
    st.one_of(
        st.tuples(st.just("agent"), st.sampled_from([ONE, TWO])),
        st.tuples(st.sampled_from(["fetch", "everything", "take"]), st.none()),
    ),
    max_size=20,
)


@given(wishes)
def test_no_wish_is_lost(script: list[tuple[str, object]]) -> None:
    inbox, asked, served = WorkQueue(), set[object](), set[object]()

    def take() -> None:
        if (request := inbox.take(0)) is not None:
            served.update({ONE, TWO, "everything"} if request.scope is None else request.scope)
            served.update({"fetch"} if request.fetch else ())

    for wish, about in script:
        if wish == "take":
            take()
            assert asked <= served
        elif wish == "agent":
            inbox.agent(about, "exit")  # type: ignore[arg-type]
            asked.add(about)
            served.discard(about)
        else:
            getattr(inbox, wish)("reason")
            asked.add(wish)
            served.discard(wish)
    take()
    assert asked <= served
