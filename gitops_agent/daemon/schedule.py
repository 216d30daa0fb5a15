"""What happens every so many seconds, on APScheduler, whatever the wall clock does.

APScheduler counts by the wall clock. A clock that is set forward by years (no battery, then NTP) would make it
walk through every run that was missed, and one that is set back would make it wait for years. So the next run is
always counted from now, and what is planned moves with the clock.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from gitops_agent.ports import Clock

MIN_INTERVAL_SECONDS = 0.1
JUMP_SECONDS = 1.0
"""What the wall clock may differ from the time that has passed without having been set."""

Job = Callable[[], object]


class FromNow(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """The next run, so many seconds from now and a tenth of that more or less: one step, however long ago the
    last one was."""

    def __init__(self, seconds: float, random: Random) -> None:
        self._seconds = max(seconds, MIN_INTERVAL_SECONDS)
        self._random = random

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """When the job runs next."""
        del previous_fire_time
        return now + timedelta(seconds=self._seconds * self._random.uniform(0.9, 1.1))


class Schedule:
    """Jobs on a thread of their own. Each runs once for all the times that were missed."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._ahead = self._wall_ahead()
        # Late is better than never: a run that was missed is made up for, once.
        defaults = {"coalesce": True, "misfire_grace_time": None}
        self._scheduler = BackgroundScheduler(timezone=UTC, job_defaults=defaults)

    def every(self, seconds: float, name: str, job: Job) -> None:
        """Run a job every so many seconds."""
        self._scheduler.add_job(job, FromNow(seconds, self._random), id=name)

    def after(self, seconds: float, name: str, job: Job) -> None:
        """Run a job once, so many seconds from now; one of that name that waits is replaced."""
        when = datetime.now(UTC) + timedelta(seconds=seconds)
        self._scheduler.add_job(job, "date", run_date=when, id=name, replace_existing=True)

    def start(self) -> None:
        """Begin."""
        self._scheduler.start()

    def stop(self) -> None:
        """End; a job that runs is left to end by itself."""
        self._scheduler.shutdown(wait=False)

    def follow_clock(self) -> None:
        """Move what is planned when the wall clock was set. To be called now and then."""
        ahead = self._wall_ahead()
        jump, self._ahead = ahead - self._ahead, ahead
        if abs(jump) > JUMP_SECONDS:
            for job in self._scheduler.get_jobs():
                with suppress(JobLookupError):  # it has just run
                    self._scheduler.modify_job(job.id, next_run_time=job.next_run_time + timedelta(seconds=jump))

    def _wall_ahead(self) -> float:
        return self._clock.now() - self._clock.monotonic()
