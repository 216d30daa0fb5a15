"""Everything a pass needs, in one process: a repository and a live system that outlive gitops-agent, a journal on
disk, and a gitops-agent that can crash and be started again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from gitops_agent.control.directives import Controls
from gitops_agent.drivers.api import Driver, Plugin
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.passes import PassResult, Request, is_settled
from gitops_agent.model.plan import Action
from gitops_agent.model.state import State
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ConditionType, Phase
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.probe_runs import ProbePools
from gitops_agent.observe.observer import Observer
from gitops_agent.pipeline import Pipeline, Stages
from gitops_agent.ports import CommitChange, Sink
from gitops_agent.proposals.outbox import ProposalOutbox
from gitops_agent.proposals.revert import RevertProposer
from gitops_agent.reconcile.executor import Executor, ExecutorContext
from gitops_agent.reconcile.leases.holder import LeaseHolder
from gitops_agent.reconcile.recovery import Recovery
from gitops_agent.report.outbox import Outbox
from gitops_agent.source.tracker import SourceTracker
from gitops_agent.status.summary import Terms
from gitops_agent.support.secrets import Redactor
from gitops_agent.testing.clock import FrozenClock
from gitops_agent.testing.faults import FaultInjector, FaultyDriver
from gitops_agent.testing.faulty_journal import FaultyJournal
from gitops_agent.testing.memory_driver import MemoryDriver
from tests.support.plugins import connect

from .repository import Repository, key

LONG = 10_000.0
"""More than any test waits, on a clock that moves only when it is told to."""


class Inline(Pool):
    """An executor without threads: whatever happens, happens in order."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as problem:
            future.set_exception(problem)
        return future


class Listening(Sink):
    """A sink that keeps what was delivered to it."""

    name = "listening"
    durable = True

    def __init__(self) -> None:
        self.changes: list[CommitChange] = []

    def deliver(self, changes: Sequence[CommitChange]) -> None:
        self.changes += changes

    @property
    def phases(self) -> list[tuple[str, Phase]]:
        """Every phase that was delivered, commit by commit."""
        return [(change.record.sha, change.record.phase) for change in self.changes]


class AtOnce(Outbox):
    """An outbox without a thread: what is owed is delivered where it is collected."""

    def collect(self, state: State) -> None:
        super().collect(state)
        self.flush(0.0)


class World:
    """One instance and what is around it."""

    def __init__(self, folder: Path, live: type[MemoryDriver] = MemoryDriver) -> None:
        self.folder = folder
        self.clock = FrozenClock()
        self.live = live(clock=self.clock)
        self.driver: Driver | None = None  # in front of the live system, if a test puts one there
        self.repository = Repository(self.plugins())
        self.sink = Listening()
        self.unexpected: list[Exception] = []
        self.interrupted: Callable[[], bool] = lambda: False
        self.pool: Pool = Inline()
        self.news: list[AgentKey] = []
        self.importer: Any = None
        self.import_pool: Pool = self.pool
        self.terms = Terms()
        self.journal: SqlJournal
        self.pipeline: Pipeline
        self.boot()

    def boot(self, injector: FaultInjector | None = None, sinks: Sequence[Sink] = ()) -> None:
        """Start gitops-agent (again): it knows what the journal knows, and nothing else."""
        self.shut()
        self.journal = open_journal(self.folder)
        journal: SqlJournal = self.journal
        drivers = connect(self.plugins(), self.clock)
        if injector is not None:
            journal = FaultyJournal(journal, injector)
            drivers = connect(self.plugins(), self.clock, wrap=lambda driver: FaultyDriver(driver, injector))
        pool = self.pool
        executor = ExecutorContext(
            drivers=drivers,
            journal=journal,
            clock=self.clock,
            random=Random(1),
            apply_pool=pool,
            interrupted=lambda: self.interrupted(),
            on_unexpected=lambda problem, _: self.unexpected.append(problem),
        )
        reverter = RevertProposer(self.repository, self.repository, "main")
        self.stages = Stages(
            source=SourceTracker(
                self.repository,
                lambda revision, _: self.repository.load(revision),
                self.clock,
                journal.commit_record,
                journal.state,
                lambda revision: self.repository.recall(revision),
            ),
            controls=Controls(journal),
            observer=Observer(drivers, self.monitor(), pool),
            recovery=Recovery(journal),
            leases=LeaseHolder(None),
            executor=Executor(executor),
            proposals=ProposalOutbox(reverter, self.importer, executor=self.import_pool),
            outbox=AtOnce(sinks or [self.sink], journal, self.clock, Redactor()),
            terms=self.terms,
        )
        self.pipeline = Pipeline(self.stages, journal, self.clock)

    def monitor(self) -> HealthMonitor:
        """What asks agents how they are; ``news`` holds those of which a probe had something new to say."""
        reported = lambda: self.journal.state().status.agents  # noqa: E731
        return HealthMonitor(self.clock, ProbePools(self.pool, self.pool), reported, self.news.append)

    def plugins(self) -> list[Plugin]:
        """What is installed."""
        plugin = self.live.plugin
        return [replace(plugin, connect=lambda context: self.driver or plugin.connect(context))]

    def shut(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()

    # -- passes

    def run(self, *names: str, fetch: bool = True) -> PassResult:
        """One pass, over everything or over some agents."""
        return self.pipeline.run(Request(frozenset(map(key, names)) if names else None, fetch, "test"))

    def converge(self, passes: int = 60) -> PassResult:
        """Passes until nothing more is on its way, with the time in between that each asks for."""
        for _ in range(passes):
            result = self.run()
            if is_settled(result):
                return result
            self.clock.advance(min(LONG, max(0.01, 1.0 if result.wait is None else result.wait)))
        raise AssertionError(f"not settled after {passes} passes: {result}")

    def commit(self, *fleet: str, **more: Any) -> str:
        """A commit of agents that are all alike."""
        return self.repository.commit({name: {} for name in fleet}, **more)

    # -- what is there

    @property
    def running(self) -> dict[ResourceKey, Fields]:
        return {resource: _visible(thing.fields) for resource, thing in self.live.live.items()}

    def wanted(self, sha: str) -> dict[ResourceKey, Fields]:
        """What a commit asks of the live system."""
        return {resource: _visible(fields) for resource, fields in self.wanted_on_record(sha).items()}

    def wanted_on_record(self, sha: str) -> dict[ResourceKey, Fields]:
        """What a commit asks of what is to run, as our record must have it once it was applied."""
        agents = self.repository.load(self.repository.revision(sha)).agents.values()
        every = [resource for agent in agents for resource in agent.resources if not resource.stopped]
        return {each.key: each.fields for each in every if each.driver == self.live.name}

    def record(self, sha: str) -> CommitRecord:
        record = self.journal.commit_record(sha)
        assert record is not None, sha
        return record

    def phase(self, sha: str) -> Phase | None:
        record = self.journal.commit_record(sha)
        return record.phase if record else None

    def status(self, name: str) -> AgentStatus:
        return self.journal.state().status.agents[key(name)]

    def condition(self, name: str, kind: ConditionType = ConditionType.READY) -> Condition | None:
        return next((said for said in self.status(name).conditions if said.type is kind), None)


def _visible(fields: Fields) -> Fields:
    """Without what is on record only: how health is asked for is no part of a live object."""
    return Fields.of({name: value for name, value in fields.value.items() if name != "health"})


def verbs(actions: Sequence[tuple[Action, Any]]) -> list[tuple[str, str]]:
    return [(action.verb.value, str(action.key)) for action, _ in actions]


def names(keys: Sequence[AgentKey]) -> list[str]:
    return sorted(each.name for each in keys)
