"""The composition root: the only file that knows every concrete class."""

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
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import FrameType

import structlog

from gitops_agent.control.commands import Operator, OperatorCommands
from gitops_agent.control.directives import Orders
from gitops_agent.daemon.loop import Daemon, Intervals, Job, Machine
from gitops_agent.daemon.onlooker import Onlooker
from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.drivers.api import CheckResult, Context, Driver, Watching
from gitops_agent.drivers.plugins import Connections, check_settings, load_plugins
from gitops_agent.errors import GitopsAgentError
from gitops_agent.journal.control_watch import ControlWatcher
from gitops_agent.journal.lock import StateLock, holder, make_state_dir
from gitops_agent.journal.store import has_journal, open_journal
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action
from gitops_agent.observe.health.monitor import HealthMonitor, recalled
from gitops_agent.pipeline import Pipeline
from gitops_agent.ports import Clock, Journal, Sink
from gitops_agent.proposals.import_live import Desk, ImportProposer
from gitops_agent.proposals.import_queue import ImportQueue
from gitops_agent.proposals.revert import RevertProposer
from gitops_agent.query.drift import Drifter, DriftSchedule, Reporter, drift_note, write_drift_report
from gitops_agent.query.fleet import FleetReader
from gitops_agent.query.plan_preview import Planner, Rollback
from gitops_agent.reconcile.executor import ExecutorContext
from gitops_agent.reconcile.leases.driver_leases import DriverLeases
from gitops_agent.reconcile.leases.holder import Spokesman
from gitops_agent.reconcile.leases.host_leases import HostLeases
from gitops_agent.reconcile.leases.lease_files import Holder
from gitops_agent.report.drift import DriftReport
from gitops_agent.report.logging_setup import setup_logs
from gitops_agent.report.sinks.git_notes import GitNotesSink
from gitops_agent.report.sinks.sentry import SentrySink, setup_sentry
from gitops_agent.settings import Settings, default_lease_dir
from gitops_agent.snapshot.cache import FILE_NAME as CACHE_NAME
from gitops_agent.snapshot.cache import Cache, version_of
from gitops_agent.snapshot.folder import validate_folder
from gitops_agent.snapshot.loader import Loader
from gitops_agent.source.approvals import GitApprovals
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.drift_notes import DriftNotes
from gitops_agent.source.mirror import APPROVALS, Mirror
from gitops_agent.source.notes import Notes
from gitops_agent.source.ref_watcher import RefWatcher
from gitops_agent.source.tracker import SourceTracker, Where
from gitops_agent.status.bookkeeping import Bookkeeper
from gitops_agent.status.proceedings import PassResult
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.gc import collector_paused
from gitops_agent.support.secrets import Redactor

GIT_CALLS = 5
"""Calls of git that one question to the source makes at most: who asks for longer than these may take hangs."""

RECALLED = 200
"""Commits of earlier runs that are looked through for how long it takes to converge."""

log = structlog.get_logger(__name__)


def connect_drivers(
    settings: Settings, clock: Clock, wrap: Callable[[Driver], Driver] = lambda driver: driver
) -> Connections:
    """The drivers of an instance, each connected when it is first asked for."""
    plugins = load_plugins()
    check_settings(plugins, settings.drivers)
    context = Context(settings.instance, str(settings.state.absolute()), clock, hook_hosts=settings.hook_hosts)
    return Connections(plugins, context, settings.drivers, wrap)


@dataclass(frozen=True, slots=True)
class Instance:
    """One gitops-agent, put together and holding its lock."""

    machine: Machine
    redactor: Redactor
    parts: _Parts
    notes: GitNotesSink


@dataclass(frozen=True, slots=True)
class _Parts:
    """What pipelines are made of."""

    settings: Settings
    journal: Journal
    mirror: Mirror
    drivers: Connections
    clock: Clock
    loader: Loader
    hands: ThreadPoolExecutor
    eyes: ThreadPoolExecutor
    leases: DriverLeases | None = None


@contextmanager
def open_instance(settings: Settings, environment: Mapping[str, str]) -> Iterator[Instance]:
    """Everything ``once`` and ``run`` need; on the way out notes get their final push."""
    with ExitStack() as stack:
        redactor = make_redactor(settings, environment)
        setup_logs(settings.log_format, sys.stderr, redactor, dict(environment))
        stack.enter_context(StateLock(settings.state))
        journal = stack.enter_context(open_journal(settings.state))
        parts = _with_faults(settings, environment, journal, stack)
        leases = stack.enter_context(_leases(parts, environment))
        parts = replace(parts, leases=DriverLeases(leases, parts.drivers))
        store = Notes(parts.mirror, settings)
        notes = GitNotesSink(store, parts.clock, push=settings.push, redactor=redactor, read=store.read_all)
        notes.start()
        stack.callback(notes.close)
        sentry = setup_sentry(settings, redactor)
        if sentry is not None:
            stack.callback(sentry.close)
        inbox = WorkQueue()
        sinks: tuple[Sink, ...] = (Spokesman(notes, leases.elder), *([sentry] if sentry else []))
        pipeline = _pipeline(parts, sinks, inbox.is_urgent, _reporter(sentry))
        machine = Machine(
            pipeline=pipeline,
            inbox=inbox,
            watchers=_watchers(parts, inbox),
            clock=parts.clock,
            rhythm=Intervals(settings.poll_interval, settings.resync_interval),
            housekeeping=lambda: _housekeeping(parts),
            on_unexpected=lambda problem: _reporter(sentry)(problem, None),
        )
        stack.callback(pipeline.close)
        stack.callback(_importing(parts, pipeline, redactor))
        machine = replace(machine, jobs=_drift_jobs(parts, machine, redactor, stack))
        yield Instance(machine, redactor, parts, notes)


@contextmanager
def open_daemon(
    settings: Settings, environment: Mapping[str, str], progress: Callable[[PassResult], None]
) -> Iterator[Daemon]:
    """``run``, with the signals that end it."""
    with open_instance(settings, environment) as instance, _looked_at(settings, instance) as (machine, onlooker):
        inbox = machine.inbox

        def end(_number: int, _frame: FrameType | None) -> None:
            inbox.close()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        # A service asks the source again on SIGHUP; started by hand, the terminal is gone and so are we.
        hang_up = end if sys.stderr.isatty() else lambda *_: inbox.fetch("SIGHUP")
        signal.signal(signal.SIGHUP, hang_up)
        yield Daemon(machine, Random(), progress, onlooker)  # noqa: S311 - jitter, not a secret


@contextmanager
def _looked_at(settings: Settings, instance: Instance) -> Iterator[tuple[Machine, Onlooker]]:
    """The machine of ``run`` and who is told what it does: the meter behind ``/metrics``, if we listen at all."""
    machine, parts = instance.machine, instance.parts
    if not settings.listen:
        yield machine, Onlooker()
        return
    from gitops_agent.daemon.liveness import Liveness
    from gitops_agent.report.sinks.metrics import Label, MetricsSink, Wires
    from gitops_agent.report.workflows import stuck
    from gitops_agent.web.app import Endpoints
    from gitops_agent.web.server import serving

    vitals = Liveness(machine.clock, settings.livez_grace)
    answers = FleetReader(parts.journal, settings, parts.clock, instance.redactor)
    drivers = parts.drivers.plugins.names
    explained = parts.drivers.plugins.catalog.explained
    label = Label(settings.instance, version("gitops-agent"), drivers, GIT_CALLS * settings.git_timeout, explained)
    wires = Wires(
        queue_depth=lambda: machine.inbox.depth,
        notes_pending=lambda: instance.notes.pending,
        stuck=lambda: stuck(answers.workflows()),
        commits=lambda: parts.journal.commits(RECALLED),
    )
    meter = MetricsSink(label, machine.clock, vitals, wires)
    with serving(settings.listen, Endpoints(meter.text, vitals.live, vitals.ready)):
        yield replace(machine, watchers=[_Overheard(each, meter.told) for each in machine.watchers]), meter


@contextmanager
def open_reader(settings: Settings, environment: Mapping[str, str]) -> Iterator[FleetReader]:
    """The journal, read-only: no lock, no repository, no driver."""
    with open_journal(settings.state, read_only=True) as journal:
        yield FleetReader(journal, settings, SystemClock(), make_redactor(settings, environment))


@dataclass(frozen=True, slots=True)
class Helm:
    """What verbs need that steer. ``running``: who would obey now, in words."""

    steering: OperatorCommands
    redactor: Redactor
    running: Callable[[], str | None]


@contextmanager
def open_helm(settings: Settings, environment: Mapping[str, str], *, create: bool = False) -> Iterator[Helm]:
    """The journal, to add a word to beside whoever works in it; no lock. ``create``: also if there is none."""
    if has_journal(settings.state) or not create:
        # Read first: a journal that needs a migration is not migrated under a daemon that uses it.
        open_journal(settings.state, read_only=True).close()
    operator = Operator(_account(), socket.gethostname(), settings.approvers)
    with open_journal(settings.state) as journal:
        steering = OperatorCommands(journal, SystemClock(), operator)
        yield Helm(steering, make_redactor(settings, environment), lambda: holder(settings.state))


def _account() -> str:
    """The account we run under, by the kernel's word: a variable in the environment says what anybody likes."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


@contextmanager
def open_planner(settings: Settings, environment: Mapping[str, str]) -> Iterator[Planner]:
    """Source, drivers and journal for looking only."""
    with ExitStack() as stack:
        parts, pipeline = _looking(settings, environment, stack)
        yield Planner(parts.mirror, parts.loader, pipeline, make_redactor(settings, environment))


@contextmanager
def open_drifter(settings: Settings, environment: Mapping[str, str]) -> Iterator[Drifter]:
    """What is in force and what is live, for looking only."""
    with ExitStack() as stack:
        parts, pipeline = _looking(settings, environment, stack)
        yield Drifter(pipeline, _drift_reporter(parts, make_redactor(settings, environment)))


def _looking(settings: Settings, environment: Mapping[str, str], stack: ExitStack) -> tuple[_Parts, Pipeline]:
    """A pipeline that nobody runs. Without a journal yet, nothing was ever applied."""
    stack.enter_context(collector_paused())
    stack.callback(gc.freeze)  # what a plan was made of lives as long as the process, which ends soon
    make_state_dir(settings.state)
    journal: Journal
    if has_journal(settings.state):
        journal = stack.enter_context(open_journal(settings.state, read_only=True))
    else:
        journal = stack.enter_context(open_journal(Path(stack.enter_context(TemporaryDirectory()))))
    parts = _parts(settings, environment, journal, stack)
    return parts, _pipeline(parts, (), lambda: False, _reporter(None))


@contextmanager
def open_rollback(settings: Settings, environment: Mapping[str, str]) -> Iterator[Rollback]:
    """A planner that can also write commits."""
    with open_planner(settings, environment) as planner:
        assert isinstance(planner.source, Mirror)
        yield Rollback(planner, BranchWriter(planner.source, settings), settings.branch)


def validate_path(folder: Path, settings: Settings) -> tuple[Finding, ...]:
    """Every finding about a folder of documents."""
    return validate_folder(folder, load_plugins(), settings)


def make_redactor(settings: Settings, environment: Mapping[str, str]) -> Redactor:
    """A redactor that knows our own secrets; what looks like one is masked anyway."""
    secrets = [settings.sentry_dsn or "", environment.get(settings.token_env or "", "")]
    if settings.token_file and Path(settings.token_file).is_file():
        secrets.append(Path(settings.token_file).read_text(encoding="utf-8", errors="replace").strip())
    return Redactor(secret for secret in secrets if secret)


def _parts(
    settings: Settings,
    environment: Mapping[str, str],
    journal: Journal,
    stack: ExitStack,
    wrap: Callable[[Driver], Driver] = lambda driver: driver,
) -> _Parts:
    clock = SystemClock()
    mirror = Mirror(settings, environment, clock)
    drivers = connect_drivers(settings, clock, wrap)
    cache = Cache(settings.state / CACHE_NAME, version_of(settings, drivers.plugins))
    stack.callback(cache.close)
    loader = Loader(mirror, drivers.plugins, settings, cache)
    # Looking must not wait for doing: a slow stop holds a hand, never an eye.
    hands, eyes = (
        stack.enter_context(ThreadPoolExecutor(settings.parallelism, thread_name_prefix=name))
        for name in ("hand", "eye")
    )
    return _Parts(settings, journal, mirror, drivers, clock, loader, hands, eyes)


def _pipeline(
    parts: _Parts,
    sinks: Sequence[Sink],
    interrupted: Callable[[], bool],
    on_unexpected: Callable[[BaseException, Action | None], None],
) -> Pipeline:
    settings = parts.settings
    bench = ExecutorContext(
        drivers=parts.drivers,
        journal=parts.journal,
        clock=parts.clock,
        random=Random(),  # noqa: S311 - jitter, not a secret
        pool=parts.hands,
        eyes=parts.eyes,
        hands=settings.parallelism,
        interrupted=interrupted,
        on_unexpected=on_unexpected,
        leases=parts.leases,
        rates=parts.drivers.rates(),
    )
    return Pipeline(
        SourceTracker(
            parts.mirror, parts.loader, parts.journal, parts.clock, Where(settings.branch, settings.path)
        ),
        parts.drivers,
        HealthMonitor(parts.clock, parts.eyes, recalled(parts.journal)),
        bench,
        Bookkeeper(settings.instance, parts.journal, sinks, parts.clock, _reverter(parts)),
        orders=Orders(parts.journal, parts.clock, GitApprovals(parts.mirror, settings)),
    )


def _reverter(parts: _Parts) -> RevertProposer | None:
    """What answers failed gates; nothing is pushed when nothing may be."""
    if not parts.settings.push:
        return None
    writer = BranchWriter(parts.mirror, parts.settings)
    return RevertProposer(parts.journal, parts.mirror, writer, parts.settings.branch, parts.hands, parts.clock)


def _leases(parts: _Parts, environment: Mapping[str, str]) -> HostLeases:
    """The leases of ``once`` and ``run``; verbs that only look take none."""
    settings = parts.settings
    source = f"{parts.mirror.address.safe} {settings.branch} {settings.path}"
    holder = Holder(settings.instance, str(settings.state.absolute()), source, os.getpid(), parts.clock.now())
    return HostLeases(Path(settings.lease_dir or default_lease_dir(environment)), holder)


def _importing(parts: _Parts, pipeline: Pipeline, redactor: Redactor) -> Callable[[], None]:
    """Git follows where live decides, on a thread of its own; what ends it."""
    settings = parts.settings

    @contextmanager
    def loader() -> Iterator[Loader]:
        # Another one than that of the passes: it is used at the same time.
        plugins = parts.drivers.plugins
        with closing(Cache(settings.state / CACHE_NAME, version_of(settings, plugins))) as cache:
            yield Loader(parts.mirror, plugins, settings, cache)

    desk = Desk(
        source=parts.mirror,
        writer=BranchWriter(parts.mirror, settings),
        loader=loader,
        mask=redactor.tree,
        branch=settings.branch,
        instance=settings.instance,
        limits=settings.limits,
        push=settings.push,
        catalog=parts.drivers.plugins.catalog,
    )
    importer = ImportQueue(ImportProposer(desk), parts.journal, parts.clock, settings.import_after)
    pipeline.attach(importer)
    return importer.close


def _drift_reporter(parts: _Parts, redactor: Redactor) -> Reporter:
    return Reporter(parts.settings.instance, parts.journal, parts.clock, redactor)


def _drift_jobs(parts: _Parts, machine: Machine, redactor: Redactor, stack: ExitStack) -> list[Job]:
    """Drift reports on a schedule, to a file, as a note, or not at all."""
    settings = parts.settings
    writers: list[Callable[[DriftReport], None]] = []
    if settings.drift_report:
        path = Path(settings.drift_report)
        writers.append(lambda report: write_drift_report(report, path, redactor))
    if settings.drift_note:
        notes = DriftNotes(parts.mirror, settings)
        writers.append(lambda report: notes.write(drift_note(report, redactor)))
    if not writers or not settings.drift_interval:
        return []
    schedule = DriftSchedule(_drift_reporter(parts, redactor), writers, lambda: machine.inbox.everything("drift"))
    machine.pipeline.attach(schedule)
    stack.callback(schedule.close)
    return [Job(settings.drift_interval, "drift", schedule.run)]


def _watchers(parts: _Parts, inbox: WorkQueue) -> list[Watching]:
    """What notices events: the drivers' own watchers, controls, and the refs of a local repository."""
    watchers: list[Watching] = [parts.drivers]
    # Whoever freezes means now: a running pass makes way at the next safe point.
    watchers.append(ControlWatcher(parts.journal, lambda: inbox.everything("control", urgent=True)))
    parts.mirror.on_approvals = lambda: inbox.everything("approvals")
    if parts.mirror.address.local is not None:
        notify = lambda: inbox.fetch("watch", urgent=True)  # noqa: E731
        refs = RefWatcher(parts.mirror.address, parts.mirror.branch, notify, (APPROVALS,))
        watchers.append(_SourceWatcher(refs))
    return watchers


class _Overheard:
    """A watcher that somebody else listens to as well."""

    def __init__(self, watcher: Watching, hear: Callable[[AgentKey], None]) -> None:
        self._watcher = watcher
        self._hear = hear

    def start(self, notify: Callable[[AgentKey, str], None]) -> None:
        """Begin to watch."""

        def both(agent: AgentKey, reason: str) -> None:
            self._hear(agent)
            notify(agent, reason)

        self._watcher.start(both)

    def stop(self) -> None:
        """End."""
        self._watcher.stop()


class _SourceWatcher:
    """A ref watcher in the shape of the drivers' watchers; it has no agent to speak of."""

    def __init__(self, watcher: RefWatcher) -> None:
        self._watcher = watcher

    def start(self, notify: Callable[[AgentKey, str], None]) -> None:
        """Begin to watch."""
        del notify
        self._watcher.start()

    def stop(self) -> None:
        """End."""
        self._watcher.stop()


def _reporter(sentry: SentrySink | None) -> Callable[[BaseException, Action | None], None]:
    """Where errors go that end a pass or an action: the log always, Sentry when it is one we did not foresee."""

    def report(problem: BaseException, action: Action | None) -> None:
        about = {"agent": str(action.key.agent), "driver": action.driver} if action else {}
        if isinstance(problem, GitopsAgentError):
            log.error(problem.message, hint=problem.hint, **about)
            return
        log.error("unexpected error", exc_info=problem, **about)
        if sentry is not None:
            sentry.capture(problem, **about)

    return report


def _housekeeping(parts: _Parts) -> None:
    parts.journal.prune(parts.clock.now() - parts.settings.retention)


def _with_faults(settings: Settings, environment: Mapping[str, str], journal: Journal, stack: ExitStack) -> _Parts:
    """The parts; for crash campaigns with a journal and drivers that die at the point named by the environment."""
    point = environment.get("GITOPS_FAULT_AT")
    if not point:
        return _parts(settings, environment, journal, stack)
    from gitops_agent.testing.faults import FaultInjector, FaultyDriver
    from gitops_agent.testing.faulty_journal import FaultyJournal

    injector = FaultInjector.at(point)
    faulty = FaultyJournal(journal, injector)
    return _parts(settings, environment, faulty, stack, lambda driver: FaultyDriver(driver, injector))


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
