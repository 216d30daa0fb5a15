"""The composition root: the only file that knows every concrete class.

Three levels, each on the one before: ``_opened`` (source, loader, drivers, pools), ``_pipeline`` (the stages of
a pass, for verbs that look), ``open_instance`` (lock, leases, sinks, queue, for verbs that act). Verbs that read
only the journal use ``query/fleet.py``, which imports none of this.
"""

from __future__ import annotations

import gc
import os
import pwd
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING

import structlog

from gitops_agent.control.commands import Operator, OperatorCommands
from gitops_agent.control.directives import Controls
from gitops_agent.daemon.liveness import Liveness
from gitops_agent.daemon.loop import ControllerContext, Daemon, Intervals, Progress, ScheduledJob
from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.drivers.api import CheckResult, Context, Driver, Notify, Watching
from gitops_agent.drivers.plugins import Connections, load_plugins
from gitops_agent.errors import GitopsAgentError
from gitops_agent.journal.control_watch import ControlWatcher
from gitops_agent.journal.lock import StateLock, holder, make_state_dir
from gitops_agent.journal.store import SqlJournal, has_journal, open_journal
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.observer import Observer
from gitops_agent.pipeline import Pipeline, Stages
from gitops_agent.ports import Clock, Journal, Sink
from gitops_agent.proposals.import_live import ImportProposer
from gitops_agent.proposals.outbox import ProposalOutbox
from gitops_agent.proposals.revert import RevertProposer
from gitops_agent.proposals.rollback import RollbackCommand
from gitops_agent.query.drift import Drifter, Reporter
from gitops_agent.query.fleet import FleetReader, make_redactor
from gitops_agent.query.plan_preview import Planner
from gitops_agent.reconcile.executor import Executor, ExecutorContext
from gitops_agent.reconcile.leases.holder import DriverLeases, LeaseHolder
from gitops_agent.reconcile.leases.host_leases import Holder, HostLeases
from gitops_agent.reconcile.recovery import Recovery
from gitops_agent.report.logging_setup import setup_logs
from gitops_agent.report.outbox import Outbox
from gitops_agent.report.sinks.drift_report import DriftReportSink, drift_note, write_drift_report
from gitops_agent.report.sinks.git_notes import GitNotesSink
from gitops_agent.report.sinks.sentry import SentrySink, setup_sentry
from gitops_agent.report.words import Shape
from gitops_agent.settings import Settings, default_lease_dir
from gitops_agent.snapshot.cache import FILE_NAME as CACHE_NAME
from gitops_agent.snapshot.cache import Cache, version_of
from gitops_agent.snapshot.folder import validate_folder
from gitops_agent.snapshot.loader import Loader
from gitops_agent.source.approvals import GitApprovals
from gitops_agent.source.bounded_process import OnProgress
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import APPROVALS, Mirror
from gitops_agent.source.notes import DriftNotes, Notes
from gitops_agent.source.ref_watcher import RefWatcher
from gitops_agent.source.tracker import SourceLocation, SourceTracker
from gitops_agent.status.summary import Terms
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.gc import gc_paused
from gitops_agent.support.secrets import Redactor

if TYPE_CHECKING:
    from gitops_agent.report.sinks.metrics import MetricsSink

MAX_GIT_CALLS = 5
"""Calls of git that one fetch makes at most: one that takes longer than these may take hangs."""

RECALLED_COMMITS = 200
"""Commits of earlier runs that are looked through for how long it takes to converge."""

log = structlog.get_logger(__name__)


# -- parts that pipelines are made of


@dataclass(frozen=True, slots=True)
class _Parts:
    """What pipelines are made of."""

    settings: Settings
    journal: Journal
    mirror: Mirror
    drivers: Connections
    clock: Clock
    loader: Loader
    redactor: Redactor
    apply_pool: ThreadPoolExecutor
    observe_pool: ThreadPoolExecutor


def _opened(
    settings: Settings,
    environment: Mapping[str, str],
    journal: Journal,
    stack: ExitStack,
    *,
    wrap: Callable[[Driver], Driver] = lambda driver: driver,
    fetching: OnProgress | None = None,
) -> _Parts:
    clock = SystemClock()
    mirror = Mirror(settings, environment, clock, fetching)
    drivers = connect_drivers(settings, clock, wrap)
    loader = stack.enter_context(_loader(settings, mirror, drivers))
    # Looking must not wait for doing: a slow stop holds a thread of the one pool, never of the other.
    apply_pool, observe_pool = (
        stack.enter_context(ThreadPoolExecutor(settings.parallelism, thread_name_prefix=name))
        for name in ("apply", "observe")
    )
    redactor = make_redactor(settings, environment)
    return _Parts(settings, journal, mirror, drivers, clock, loader, redactor, apply_pool, observe_pool)


@contextmanager
def _loader(settings: Settings, mirror: Mirror, drivers: Connections) -> Iterator[Loader]:
    with closing(Cache(settings.state / CACHE_NAME, version_of(settings, drivers.plugins))) as cache:
        yield Loader(mirror, drivers.plugins, settings, cache)


def connect_drivers(
    settings: Settings, clock: Clock, wrap: Callable[[Driver], Driver] = lambda driver: driver
) -> Connections:
    """The drivers of an instance, each connected when it is first asked for."""
    context = Context(settings.instance, str(settings.state.absolute()), clock, hook_hosts=settings.hook_hosts)
    return Connections(load_plugins(), context, settings.drivers, wrap)


@dataclass(frozen=True, slots=True)
class _Acting:
    """What a pipeline has that acts, and one that only looks has not."""

    sinks: Sequence[Sink] = ()
    host_leases: HostLeases | None = None
    interrupted: Callable[[], bool] = lambda: False
    source_changed: Callable[[], None] = lambda: None
    on_unexpected: Callable[[BaseException, Action | None], None] = lambda _problem, _action: None


def _pipeline(parts: _Parts, acting: _Acting) -> Pipeline:
    settings, journal, clock, host = parts.settings, parts.journal, parts.clock, acting.host_leases
    leases = DriverLeases(host, parts.drivers) if host is not None else None
    executor = ExecutorContext(
        drivers=parts.drivers,
        journal=journal,
        clock=clock,
        random=Random(),  # noqa: S311 - jitter, not a secret
        apply_pool=parts.apply_pool,
        workers=settings.parallelism,
        interrupted=acting.interrupted,
        on_unexpected=acting.on_unexpected,
        leases=leases,
        rates=parts.drivers.rates,
    )
    location = SourceLocation(settings.branch, settings.path)
    monitor = HealthMonitor(clock, parts.observe_pool, lambda: journal.state().status.agents)
    stages = Stages(
        source=SourceTracker(parts.mirror, parts.loader, clock, location, journal.commit_record),
        controls=Controls(journal, GitApprovals(parts.mirror, settings)),
        observer=Observer(parts.drivers, monitor, parts.observe_pool),
        recovery=Recovery(journal),
        leases=LeaseHolder(leases),
        executor=Executor(executor),
        proposals=_proposals(parts, acting.source_changed),
        outbox=Outbox(acting.sinks, journal, clock, parts.redactor, leading=_leading(host)),
        terms=Terms(may_push=settings.push, import_hold_seconds=settings.import_after),
    )
    return Pipeline(stages, journal, clock)


def _leading(leases: HostLeases | None) -> Callable[[], bool]:
    """Whether this process reports for its source: none that was here before us follows the same one."""
    return lambda: leases is None or not leases.senior_holder()


def _proposals(parts: _Parts, source_changed: Callable[[], None]) -> ProposalOutbox:
    settings, writer = parts.settings, BranchWriter(parts.mirror, parts.settings)
    importer = ImportProposer(
        source=parts.mirror,
        writer=writer,
        # Another loader than that of the passes: it is used at the same time.
        loader=lambda: _loader(settings, parts.mirror, parts.drivers),
        mask=parts.redactor.tree,
        branch=settings.branch,
        instance=settings.instance,
        limits=settings.limits,
        documents=parts.drivers.plugins.documents,
        section=parts.drivers.plugins.catalog.section,
        push=settings.push,
    )
    reverter = RevertProposer(parts.mirror, writer, settings.branch) if settings.push else None
    return ProposalOutbox(reverter, importer, on_done=source_changed)


# -- verbs that look


@contextmanager
def open_planner(
    settings: Settings, environment: Mapping[str, str], fetching: OnProgress | None = None
) -> Iterator[Planner]:
    """Source, drivers and journal for looking only. Without a journal yet, nothing was ever applied."""
    with ExitStack() as stack:
        stack.enter_context(gc_paused())
        stack.callback(gc.freeze)  # what a plan was made of lives as long as the process, which ends soon
        make_state_dir(settings.state)
        if has_journal(settings.state):
            journal = stack.enter_context(open_journal(settings.state, read_only=True))
        else:
            journal = stack.enter_context(open_journal(Path(stack.enter_context(TemporaryDirectory()))))
        parts = _opened(settings, environment, journal, stack, fetching=fetching)
        pipeline = _pipeline(parts, _Acting())
        yield Planner(parts.mirror, parts.loader, journal, pipeline, parts.redactor)


@contextmanager
def open_drifter(
    settings: Settings, environment: Mapping[str, str], fetching: OnProgress | None = None
) -> Iterator[Drifter]:
    """What is in force and what is live, for looking only."""
    with open_planner(settings, environment, fetching) as planner:
        yield Drifter(planner, Reporter(settings.instance, planner.journal, SystemClock(), planner.redactor))


@contextmanager
def open_rollback(
    settings: Settings, environment: Mapping[str, str], fetching: OnProgress | None = None
) -> Iterator[RollbackCommand]:
    """A planner that can also write commits."""
    with open_planner(settings, environment, fetching) as planner:
        assert isinstance(planner.source, Mirror)
        writer = BranchWriter(planner.source, settings)
        yield RollbackCommand(planner.source, writer, planner.plan, settings.branch, planner.redactor)


def validate_path(folder: Path, settings: Settings) -> tuple[Finding, ...]:
    """Every finding about a folder of documents; connects to nothing."""
    return validate_folder(folder, load_plugins(), settings)


def check_drivers(settings: Settings) -> tuple[tuple[str, ...], list[CheckResult]]:
    """The names of the drivers that load, and what they find on this host; connects to nothing."""
    drivers = connect_drivers(settings, SystemClock())
    return drivers.plugins.names, drivers.checks()


def ask_source(settings: Settings, environment: Mapping[str, str]) -> str:
    """Whether the remote answers and has the branch, in one sentence; the state directory stays as it is."""
    with TemporaryDirectory() as scratch:
        elsewhere = settings.model_copy(update={"state_dir": scratch})
        mirror = Mirror(elsewhere, environment, SystemClock())
        head = mirror.refresh()
        return f"{mirror.address.safe} answers, {settings.branch} is at {head.short}"


# -- verbs that say something to a running instance


@dataclass(frozen=True, slots=True)
class ControlSession:
    """What freeze, unfreeze, approve and retry need. ``running`` describes the daemon that holds the state
    directory, if there is one."""

    commands: OperatorCommands
    redactor: Redactor
    running: Callable[[], str | None]


@contextmanager
def open_control(
    settings: Settings, environment: Mapping[str, str], *, create: bool = False
) -> Iterator[ControlSession]:
    """The journal, to add a control beside a running daemon; no lock. ``create``: also if there is none."""
    if has_journal(settings.state) or not create:
        # Read first: a journal that needs a migration is not migrated under a daemon that uses it.
        open_journal(settings.state, read_only=True).close()
    operator = Operator(_account(), socket.gethostname(), settings.approvers)
    with open_journal(settings.state) as journal:
        commands = OperatorCommands(journal, SystemClock(), operator)
        yield ControlSession(commands, make_redactor(settings, environment), lambda: holder(settings.state))


def _account() -> str:
    """The account we run under, as the kernel has it: a variable in the environment may hold anything."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


# -- verbs that act


@dataclass(frozen=True, slots=True)
class Instance:
    """One gitops-agent, put together and holding its lock. ``metrics``: what ``/metrics`` answers."""

    context: ControllerContext
    redactor: Redactor
    metrics: Callable[[], bytes] = lambda: b""


@contextmanager
def open_instance(
    settings: Settings,
    environment: Mapping[str, str],
    fetching: OnProgress | None = None,
    *,
    measured: bool = False,
) -> Iterator[Instance]:
    """Everything ``once`` and ``run`` need; at the end notes get their final push. ``measured``: with metrics."""
    with ExitStack() as stack:
        redactor = make_redactor(settings, environment)
        setup_logs(settings.log_format, sys.stderr, redactor, dict(environment))
        stack.enter_context(StateLock(settings.state))
        journal, wrap = _with_faults(stack.enter_context(open_journal(settings.state)), environment)
        parts = _opened(settings, environment, journal, stack, wrap=wrap, fetching=fetching)
        leases = stack.enter_context(_leases(parts, environment))
        sentry = setup_sentry(settings, redactor)
        if sentry is not None:
            stack.callback(sentry.close)
        queue, liveness = WorkQueue(), Liveness(parts.clock, settings.livez_grace, _max_fetch(settings))
        notes = GitNotesSink(settings.instance, Notes(parts.mirror, settings), redactor, push=settings.push)
        drift = _drift_sink(parts, queue)
        sinks: list[Sink] = [notes, *([sentry] if sentry else []), *([drift] if drift else [])]
        watched: Watching = parts.drivers
        metrics: Callable[[], bytes] = lambda: b""  # noqa: E731
        if measured:
            sink, watched = _metrics(parts, liveness, queue)
            sinks, metrics = [*sinks, sink], sink.text
        report = _error_reporter(sentry)
        pipeline = _pipeline(
            parts,
            _Acting(sinks, leases, queue.is_urgent, lambda: queue.source_changed("proposal"), report),
        )
        outbox = pipeline.stages.outbox
        if measured:
            sink.follow("gitops_agent_notes_pending", lambda: outbox.pending > 0)
        outbox.start(journal.state())
        stack.callback(outbox.close)
        stack.callback(pipeline.close)
        yield Instance(
            ControllerContext(
                pipeline=pipeline,
                queue=queue,
                watchers=_watchers(parts, queue, watched),
                clock=parts.clock,
                intervals=Intervals(settings.poll_interval, settings.resync_interval),
                housekeeping=lambda: _prune(parts),
                on_unexpected=lambda problem: report(problem, None),
                liveness=liveness,
                jobs=[ScheduledJob(settings.drift_interval, "drift", drift.run)] if drift else [],
            ),
            redactor,
            metrics,
        )


@contextmanager
def open_daemon(
    settings: Settings, environment: Mapping[str, str], progress: Progress, fetching: OnProgress | None = None
) -> Iterator[Daemon]:
    """``run``, with the signals that end it and, if we listen at all, with its endpoints."""
    with (
        open_instance(settings, environment, fetching, measured=bool(settings.listen)) as instance,
        _served(settings, instance),
    ):
        queue = instance.context.queue

        def end(_number: int, _frame: FrameType | None) -> None:
            queue.close()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        # A service asks the source again on SIGHUP; started by hand, the terminal is gone and so are we.
        hang_up = end if sys.stderr.isatty() else lambda *_: queue.fetch("SIGHUP")
        signal.signal(signal.SIGHUP, hang_up)
        yield Daemon(instance.context, Random(), progress)  # noqa: S311 - jitter, not a secret


@contextmanager
def _served(settings: Settings, instance: Instance) -> Iterator[None]:
    if not settings.listen:
        yield
        return
    from gitops_agent.web.server import serving

    liveness = instance.context.liveness
    with serving(settings.listen, instance.metrics, liveness.live, liveness.ready):
        yield


def _max_fetch(settings: Settings) -> float:
    return MAX_GIT_CALLS * settings.git_timeout


def _leases(parts: _Parts, environment: Mapping[str, str]) -> HostLeases:
    """The leases of ``once`` and ``run``; verbs that only look take none."""
    settings = parts.settings
    source = f"{parts.mirror.address.safe} {settings.branch} {settings.path}"
    mine = Holder(settings.instance, str(settings.state.absolute()), source, os.getpid(), parts.clock.now())
    return HostLeases(Path(settings.lease_dir or default_lease_dir(environment)), mine)


def _metrics(parts: _Parts, liveness: Liveness, queue: WorkQueue) -> tuple[MetricsSink, Watching]:
    """The sink behind ``/metrics``, and the drivers' events as it counts them."""
    from gitops_agent.report.sinks.metrics import MetricsSink
    from gitops_agent.report.workflows import stuck

    settings, plugins = parts.settings, parts.drivers.plugins

    def stuck_now() -> int:
        return stuck(FleetReader(parts.journal, settings.instance, parts.clock.now(), parts.redactor).workflows())

    explained = plugins.catalog.explained
    sink = MetricsSink(settings.instance, parts.clock, liveness, stuck_now, plugins.names, explained)
    sink.recall(reversed(parts.journal.commits(RECALLED_COMMITS)))
    sink.follow("gitops_agent_queue_depth", lambda: queue.depth)
    return sink, _Counted(parts.drivers, sink.event_seen)


def _drift_sink(parts: _Parts, queue: WorkQueue) -> DriftReportSink | None:
    """Drift reports on a schedule, to a file, as a note, or not at all."""
    settings, writers = parts.settings, list[Callable[[Shape], None]]()
    if settings.drift_report:
        path = Path(settings.drift_report)
        writers.append(lambda report: write_drift_report(report, path))
    if settings.drift_note:
        notes = DriftNotes(parts.mirror, settings)
        writers.append(lambda report: notes.write(drift_note(report)))
    if not writers or not settings.drift_interval:
        return None
    reporter = Reporter(settings.instance, parts.journal, parts.clock, parts.redactor)
    return DriftReportSink(reporter.report, writers, lambda: queue.everything("drift"))


def _watchers(parts: _Parts, queue: WorkQueue, drivers: Watching) -> list[Watching]:
    """What notices events: the drivers' own watchers, controls, and the refs of a local repository."""
    # A freeze means now: a running pass makes way at the next safe point.
    controls = ControlWatcher(parts.journal, lambda: queue.everything("control", urgent=True))
    parts.mirror.on_approvals = lambda: queue.everything("approvals")
    if parts.mirror.address.local is None:
        return [drivers, controls]
    moved = lambda: queue.fetch("watch", urgent=True)  # noqa: E731
    return [drivers, controls, RefWatcher(parts.mirror, moved, (APPROVALS,))]


class _Counted:
    """The drivers' events, counted on their way to the queue."""

    def __init__(self, drivers: Watching, count: Callable[[AgentKey], None]) -> None:
        self._drivers = drivers
        self._count = count

    def start(self, notify: Notify) -> None:
        """Begin to watch."""

        def counted(agent: AgentKey, reason: str) -> None:
            self._count(agent)
            notify(agent, reason)

        self._drivers.start(counted)

    def stop(self) -> None:
        """End watching."""
        self._drivers.stop()


def _error_reporter(sentry: SentrySink | None) -> Callable[[BaseException, Action | None], None]:
    """Where errors go that end a pass or an action: the log always, Sentry when it is an unexpected one."""

    def report(problem: BaseException, action: Action | None) -> None:
        about = {"agent": str(action.key.agent), "driver": action.driver} if action else {}
        if isinstance(problem, GitopsAgentError):
            log.error(problem.message, hint=problem.hint, **about)
            return
        log.error("unexpected error", exc_info=problem, **about)
        if sentry is not None:
            sentry.capture(problem, **about)

    return report


def _prune(parts: _Parts) -> None:
    parts.journal.prune(parts.clock.now() - parts.settings.retention)


def _with_faults(
    journal: SqlJournal, environment: Mapping[str, str]
) -> tuple[Journal, Callable[[Driver], Driver]]:
    """The journal and what wraps drivers; for crash campaigns, such as die at the point the environment names."""
    point = environment.get("GITOPS_FAULT_AT")
    if not point:
        return journal, lambda driver: driver
    from gitops_agent.testing.faults import FaultInjector, FaultyDriver
    from gitops_agent.testing.faulty_journal import FaultyJournal

    injector = FaultInjector.at(point)
    return FaultyJournal(journal, injector), lambda driver: FaultyDriver(driver, injector)
