"""The rules of an election: never two leaders, whatever clocks, pauses and requests do; and always one soon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.election import (
    EPOCH,
    GIVE_UP,
    LEASE_SECONDS,
    MISSING,
    Kept,
    Lease,
    LeaseElection,
    boot_seconds,
)
from gitops_agent.errors import ObserveError
from gitops_agent.testing.simulated_election import SimulatedStore

pytestmark = pytest.mark.unit


TODAY = 100_000
FIRST = int(TODAY + LEASE_SECONDS * MISSING)


class World:
    """One record and the time that passes. ``lag``: seconds that a request takes on its way, each way."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lag = 0.0
        self.down = False
        self.lose_answer = False
        self.kept: Kept | None = None
        self.writes = 0

    def clock(self, rate: float = 1.0) -> Callable[[], float]:
        return lambda: 1000.0 + self.now * rate

    def read(self) -> Kept | None:
        self._travel()
        found = self.kept
        self._answer()
        return found

    def write(self, lease: Lease, over: Kept | None) -> Kept | None:
        self._travel()
        if self.kept != over:
            self._answer()
            return None
        self.writes += 1
        self.kept = kept = Kept(lease, str(self.writes))
        self._answer()
        return kept

    def _travel(self) -> None:
        self.now += self.lag
        if self.down:
            raise ObserveError("down")

    def _answer(self) -> None:
        self.now += self.lag
        if self.lose_answer:
            raise ObserveError("no answer")


def candidate(world: World, name: str, rate: float = 1.0) -> LeaseElection:
    return LeaseElection(world, name, clock=world.clock(rate), today=lambda: EPOCH + TODAY + world.now)


def leader(world: World, name: str) -> LeaseElection:
    """One that leads, under the term ``FIRST``: the first that there is in a new world."""
    one = candidate(world, name)
    assert not one.try_to_lead(), "there may be a leader whose record was removed"
    world.now += LEASE_SECONDS * MISSING
    assert one.try_to_lead()
    assert one.term == FIRST
    return one


def test_one_leads_and_the_other_takes_over_when_it_is_silent() -> None:
    world = World()
    a, b = leader(world, "a"), candidate(world, "b")
    assert (a.leading(), a.holder()) == (True, "a")
    assert not b.try_to_lead()
    assert b.holder() == "a"
    world.now += LEASE_SECONDS * GIVE_UP
    assert not a.leading(), "a stops before b begins"
    assert not b.try_to_lead()
    world.now += LEASE_SECONDS * (1 - GIVE_UP)
    assert b.try_to_lead()
    assert b.term == FIRST + 1
    assert not a.renew()
    assert a.term == FIRST


def test_a_renewal_is_counted_from_before_it_was_asked_for() -> None:
    world = World()
    a = leader(world, "a")
    world.now += 2
    world.lag = 4.5  # the answer comes when it is too late to believe in it
    a.renew()
    assert not a.leading()


def test_a_term_that_ended_does_not_come_back_with_an_answer_that_is_late() -> None:
    world = World()
    a = leader(world, "a")
    world.now += LEASE_SECONDS * GIVE_UP - 1
    world.lag = 0.75  # asked for in time; the term ends while the answer is on its way
    assert not a.renew()
    assert not a.leading(), "whoever asked meanwhile was told that it is over"
    world.lag = 0.0
    assert a.try_to_lead()
    assert a.term == FIRST + 1


def test_only_what_this_process_saw_counts() -> None:
    world = World()
    world.kept = Kept(Lease("dead", 7, LEASE_SECONDS), "long ago")
    b = candidate(world, "b")
    assert not b.try_to_lead(), "it does not know since when"
    world.now += LEASE_SECONDS - 0.1
    assert not b.try_to_lead()
    world.now += 0.2
    assert b.try_to_lead()
    assert b.term == 8


def test_who_resigns_is_followed_at_once() -> None:
    world = World()
    a, b = leader(world, "a"), candidate(world, "b")
    assert not b.try_to_lead()
    a.resign()
    assert not a.leading()
    assert b.try_to_lead()
    assert b.term == FIRST + 1


def test_what_others_write_beside_it_costs_nothing() -> None:
    world = World()
    a = leader(world, "a")
    assert world.kept is not None
    world.kept = replace(world.kept, version="labelled by hand")
    assert a.renew()
    assert (a.leading(), a.term) == (True, FIRST)


def test_a_record_that_was_removed_is_written_again_by_its_leader_and_waited_for_by_others() -> None:
    world = World()
    a, b = leader(world, "a"), candidate(world, "b")
    assert not b.try_to_lead()
    world.kept = None
    assert not b.try_to_lead(), "a may not know yet"
    assert a.renew()
    assert (a.leading(), a.term) == (True, FIRST)
    world.kept = None
    world.now += LEASE_SECONDS + 0.1
    assert not b.try_to_lead(), "it counts from when b noticed: a may have renewed just before"
    waited = 0.0
    while not b.try_to_lead():
        world.now += 2
        waited += 2
    assert waited == LEASE_SECONDS
    assert b.term > FIRST + 100, "a term never comes back, however many b has not seen"


def test_a_write_without_an_answer_is_looked_at() -> None:
    world = World()
    a = candidate(world, "a")
    assert not a.try_to_lead()
    world.now += LEASE_SECONDS * MISSING
    world.lose_answer = True
    assert not a.try_to_lead()
    world.lose_answer = False
    assert a.try_to_lead()
    world.lose_answer = True
    assert not a.renew()
    assert a.leading(), "it still has time"
    world.lose_answer = False
    assert a.renew()


def test_the_same_process_leads_again_under_another_term() -> None:
    world = World()
    a = leader(world, "a")
    world.now += LEASE_SECONDS
    assert not a.renew()
    assert a.try_to_lead(), "nobody else was there"
    assert a.term == FIRST + 1


def test_a_holder_is_not_known_when_nobody_was_heard_for_long() -> None:
    world = World()
    a, b = leader(world, "a"), candidate(world, "b")
    b.try_to_lead()
    world.down = True
    world.now += LEASE_SECONDS + 1
    assert not b.try_to_lead()
    assert (b.holder(), a.holder()) == ("", "")


NAMES = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(("look", "renew", "resign", "remove", "answer lost", "down", "restart")),
        st.floats(0, 5),  # seconds until then
        st.sampled_from((0.0, 0.0, 0.0, 0.5, 2.0, 9.0)),  # on the way, each way
    ),
    max_size=60,
)
RATES = st.lists(st.floats(0.85, 1.2), min_size=3, max_size=3)


@given(STEPS, RATES)
def test_there_are_never_two_leaders(steps: list[tuple[str, str, float, float]], rates: list[float]) -> None:
    """Clocks that run apart, slow requests, answers that are lost, pauses, processes that start anew, a record
    that is removed while all have seen it: at no moment do two believe that they lead, no term has two leaders,
    and terms grow."""
    world, terms = World(), dict[int, LeaseElection]()
    all_ = {name: candidate(world, name, rate) for name, rate in zip(NAMES, rates, strict=True)}
    for pause in (0.0, 3.0, 3.0):
        world.now += pause
        for each in all_.values():
            each.try_to_lead()
    for name, what, seconds, lag in steps:
        one = all_[name]
        world.now += seconds
        world.lag, world.down, world.lose_answer = lag, what == "down", what == "answer lost"
        if what == "restart" and world.kept is not None:
            all_[name] = candidate(world, name, rates[NAMES.index(name)])
        elif what == "resign":
            one.resign()
        elif what == "remove" and all(each.holder() for each in all_.values()):
            world.kept = None
        elif one.leading():
            one.renew()
        else:
            one.try_to_lead()
        world.lag, world.down, world.lose_answer = 0.0, False, False
        leading = [each for each, its in all_.items() if its.leading()]
        assert len(leading) <= 1
        for each in leading:
            its = all_[each]
            assert its.term in terms or its.term > max(terms, default=0)
            assert terms.setdefault(its.term, its) is its
    # And somebody leads soon after all is well again.
    for _ in range(10):
        world.now += 2
        for each in all_.values():
            _ = each.renew() if each.leading() else each.try_to_lead()
    assert sum(each.leading() for each in all_.values()) == 1


@given(st.lists(st.tuples(st.floats(0, 2), st.sampled_from(("remove", "restart", "nothing"))), max_size=60))
def test_a_healthy_leader_survives_removals_and_those_that_never_saw_a_record(
    steps: list[tuple[float, str]],
) -> None:
    """A record that is removed at any moment, beside standbys that start anew at any moment: while its leader
    renews in time and is answered, nobody else takes over, and nothing else has its term. Only one that is removed
    again and again before a newcomer has ever seen it is taken for one that is not there."""
    world, removed = World(), False
    a, b = leader(world, "a"), candidate(world, "b")
    for seconds, what in steps:
        if what == "remove" and not removed:
            world.kept, removed = None, True
        elif what == "restart":
            b = candidate(world, "b")
        removed = removed and (world.kept is None or not b.holder())
        assert not b.try_to_lead()
        world.now += seconds
        assert not b.try_to_lead()
        assert a.renew()
        assert (a.leading(), a.term, b.leading()) == (True, FIRST, False)


def test_terms_do_not_go_back_when_the_record_is_removed_and_nobody_remembers_it() -> None:
    world, last = World(), 0
    for name in NAMES:
        one = candidate(world, name)
        while not one.try_to_lead():
            world.now += 2
        assert one.term > last
        last = one.term
        one.resign()
        world.kept = None


def test_threads_keep_it_and_give_it_back(tmp_path: Path) -> None:
    store = SimulatedStore(tmp_path / "lease")
    a, b = (LeaseElection(store, name, seconds=1.0) for name in "ab")
    assert a.wait(Event())
    began, stop, won = boot_seconds(), Event(), list[float]()
    other = Thread(target=lambda: won.append(boot_seconds()) if b.wait(stop) else None)
    other.start()
    Event().wait(2.0)
    assert a.leading()
    assert not won
    a.resign()
    other.join(5)
    assert won
    assert won[0] - began < 3.0
    assert b.leading()
    assert not a.leading()
    b.resign()


def test_without_patience_a_living_leader_is_named_and_a_dead_one_followed(tmp_path: Path) -> None:
    store = SimulatedStore(tmp_path / "lease")
    a, b, c = (LeaseElection(store, name, seconds=1.0) for name in "abc")
    assert a.wait(Event())
    assert not b.wait(Event(), patient=False)
    assert b.holder() == "a"
    a._stop_renewing()  # as if it had been killed
    assert c.wait(Event(), patient=False)
    assert c.term == a.term + 1
    c.resign()


def test_a_lost_lease_ends_by_itself_when_nobody_answers(tmp_path: Path) -> None:
    store = SimulatedStore(tmp_path / "lease")
    a = LeaseElection(store, "a", seconds=0.6)
    assert a.wait(Event())
    first = a.term
    (tmp_path / "lease.down").touch()
    Event().wait(0.7)
    assert not a.leading()
    (tmp_path / "lease.down").unlink()
    assert a.wait(Event())
    assert a.term == first + 1
    a.resign()
