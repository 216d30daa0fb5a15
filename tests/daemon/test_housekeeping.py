"""The state directory does not grow for ever: ``run`` and ``once`` drop what is old, about once an hour."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gitops_agent.daemon.housekeeping import PERIOD_SECONDS, Housekeeping
from gitops_agent.drivers.api import AgentKey, Fields
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.plugins import Connections
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.support.bounded_calls import BoundedCalls
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.memory_driver import MemoryDriver, runtime_key
from tests.pipeline.world import Inline
from tests.support.plugins import connect

pytestmark = pytest.mark.unit

WEEK = 7 * 86400.0
KNOWN, ENDED, FRESH, ORPHAN = (AgentKey("acme", name) for name in ("known", "ended", "fresh", "orphan"))


class House:
    """A state directory with folders of agents, a week old unless they are fresh."""

    def __init__(self, folder: Path, journal: SqlJournal) -> None:
        self.clock, self.journal = FrozenClock(), journal
        self.live = MemoryDriver(clock=self.clock)
        self.dirs = AgentDir(str(folder))
        self.secret = folder / "elsewhere"
        self.secret.mkdir()
        (self.secret / "file").write_text("not theirs")
        journal.finish([], bases=[Base(runtime_key(KNOWN), "memory", Fields.of({}), "a" * 40, 1.0)])
        self.live.plant(runtime_key(ORPHAN), {"command": ["serve"]}, Owner.OURS)
        for agent in (KNOWN, ENDED, FRESH, ORPHAN):
            with self.dirs.opened(agent, "logs", create=True):
                log = Path(self.dirs.log(agent, 0))
                log.write_text("bye")
            with self.dirs.opened(agent, "work", create=True):
                (self.dirs.folder(agent) / "work" / "link").symlink_to(self.secret)
            if agent != FRESH:
                self._age(self.dirs.folder(agent), self.clock.now() - WEEK - 1)
        os.utime(self.dirs.log(FRESH, 0), (self.clock.now(), self.clock.now()))

    def _age(self, folder: Path, at: float) -> None:
        for path in (*folder.rglob("*"), folder):
            os.utime(path, (at, at), follow_symlinks=False)

    def keep(self, folder_retention: float = WEEK) -> None:
        drivers: Connections = connect([replace(self.live.plugin, local=True)], self.clock)
        calls = BoundedCalls[Sequence[Observation]](Inline())
        Housekeeping(self.journal, drivers, calls, self.dirs, self.clock, WEEK, folder_retention).run()

    @property
    def folders(self) -> set[AgentKey]:
        return set(self.dirs.agents())


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with open_journal(tmp_path) as journal:
        yield House(tmp_path, journal)


def test_folders_of_ended_agents_go_and_nothing_else(house: House) -> None:
    house.keep()
    assert house.folders == {KNOWN, FRESH, ORPHAN}, "what is on record, young or running stays"
    assert (house.secret / "file").exists(), "links are not followed"


def test_folders_stay_for_ever_when_that_is_asked_for(house: House) -> None:
    house.keep(folder_retention=0.0)
    assert ENDED in house.folders


def test_it_is_done_once_an_hour_whichever_process_asks(house: House, tmp_path: Path) -> None:
    house.journal.prune(0.0, house.clock.now())
    house.keep()
    assert ENDED in house.folders, "an earlier process did it a moment ago"
    house.clock.advance(PERIOD_SECONDS + 1)
    house.keep()
    assert ENDED not in house.folders


def test_a_clock_that_was_ahead_does_not_end_it_for_ever(house: House) -> None:
    house.journal.prune(0.0, house.clock.now() + 10 * 365 * 86400)
    house.keep()
    assert ENDED not in house.folders
