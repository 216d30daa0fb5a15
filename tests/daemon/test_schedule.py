"""Schedules on a clock that is set: by years, in either direction."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from random import Random
from typing import Any

import pytest
from apscheduler.schedulers import base

from gitops_agent.daemon.schedule import FromNow, Schedule
from gitops_agent.testing.clock import FrozenClock
from tests.support.fleet import until

pytestmark = pytest.mark.unit
YEARS = 30 * 365 * 86400.0


class Wall(datetime):
    """The wall clock as APScheduler reads it, set by a test."""

    set_by = 0.0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime.now(tz) + timedelta(seconds=cls.set_by)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Wall]]:
    monkeypatch.setattr(base, "datetime", Wall)
    yield Wall
    Wall.set_by = 0.0


@pytest.fixture
def schedule() -> Iterator[Schedule]:
    made = Schedule(FrozenClock(), Random(1))
    made.start()
    yield made
    made.stop()


def test_a_clock_set_forward_by_years_costs_one_run_and_one_step(
    schedule: Schedule, wall: type[Wall], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, runs = list[datetime](), list[int]()
    step = FromNow.get_next_fire_time

    def counted(trigger: FromNow, previous: datetime | None, now: datetime) -> datetime:
        steps.append(now)
        return step(trigger, previous, now)

    monkeypatch.setattr(FromNow, "get_next_fire_time", counted)
    schedule.every(10.0, "housekeeping", lambda: runs.append(1))
    assert (len(steps), runs) == (1, [])
    wall.set_by = YEARS
    schedule._scheduler.wakeup()
    until(lambda: runs == [1], "what was missed is made up for, once")
    assert len(steps) <= 3


def test_what_is_planned_follows_a_clock_that_is_set_back(schedule: Schedule, wall: type[Wall]) -> None:
    clock = schedule._clock
    assert isinstance(clock, FrozenClock)
    schedule.every(3600.0, "resync", lambda: None)
    schedule.after(60.0, "poll", lambda: None)
    before = {job.id: job.next_run_time for job in schedule._scheduler.get_jobs()}
    clock.advance(5)
    schedule.follow_clock()
    assert {job.id: job.next_run_time for job in schedule._scheduler.get_jobs()} == before
    wall.set_by = -YEARS
    clock.jump(-YEARS)
    schedule.follow_clock()
    moved = {job.id: job.next_run_time for job in schedule._scheduler.get_jobs()}
    assert {before[name] - at for name, at in moved.items()} == {timedelta(seconds=YEARS)}
