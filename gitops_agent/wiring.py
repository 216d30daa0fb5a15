"""The composition root: the only file that knows every concrete class.

Three levels, each on the one before: ``_opened`` (source, loader, drivers, pools), ``_pipeline`` (the stages of
a pass, for verbs that look), ``open_instance`` (lock, leases, sinks, queue, for verbs that act). Verbs that read
only the journal use ``query/fleet.py``, which imports none of this.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import structlog

from gitops_agent.control.directives import Controls
from gitops_agent.daemon.housekeeping import ASKED_EVERY_SECONDS, Housekeeping
from gitops_agent.daemon.liveness import Liveness
from gitops_agent.daemon.loop import ControllerContext, Daemon, Progress, ScheduledJob
from gitops_agent.daemon.queue import WorkQueue
from gitops_agent.daemon.standby import Answers, Candidacy, Fence, LeaderWatcher
from gitops_agent.daemon.state_watch import StateWatcher
from gitops_agent.drivers.api import Context, Driver, Election, Watching
from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.drivers.plugins import Connections, load_plugins
from gitops_agent.errors import GitopsAgentError, JournalError, JournalTaken, LockHeld, ObserveError, UsageError
from gitops_agent.journal.control_watch import ControlWatcher
from gitops_agent.journal.lock import make_state_dir, state_lock
from gitops_agent.journal.place import journal_place
from gitops_agent.journal.store import SqlJournal, has_journal, open_journal
from gitops_agent.model.plan import Action
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.probe_runs import SLOW_SECONDS, ProbePools
from gitops_agent.observe.observer import Observer
from gitops_agent.pipeline import Pipeline, Stages
from gitops_agent.ports import Clock, Sink
from gitops_agent.proposals.import_live import ImportProposer
from gitops_agent.proposals.outbox import ProposalOutbox
from gitops_agent.proposals.revert import RevertProposer
from gitops_agent.proposals.rollback import RollbackCommand
from gitops_agent.query.drift import masked_report
from gitops_agent.query.fleet import FleetReader, make_redactor
from gitops_agent.query.plan_preview import Planner
from gitops_agent.reconcile.executor import Executor, ExecutorContext
from gitops_agent.reconcile.lanes import MAX_SLOW, SORTS
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
from gitops_agent.snapshot.loader import Loader
from gitops_agent.source.approvals import GitApprovals
from gitops_agent.source.binding import require_own_repository
from gitops_agent.source.bounded_process import OnProgress
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import APPROVALS, Mirror
from gitops_agent.source.notes import DriftNotes, Notes
from gitops_agent.source.ref_watcher import RefWatcher
from gitops_agent.source.tracker import SourceTracker
from gitops_agent.status.summary import Terms
from gitops_agent.support.bounded_calls import BoundedCalls
from gitops_agent.support.clock import SystemClock
from gitops_agent.support.daemon_pool import DaemonPool
from gitops_agent.support.gc import gc_paused
from gitops_agent.support.secrets import Redactor

if TYPE_CHECKING:
    from gitops_agent.report.sinks.metrics import MetricsSink

MAX_GIT_CALLS = 5
"""Calls of git that one fetch makes at most: one that takes longer than these may take hangs."""

MAX_DRIVERS = 64
"""Drivers that may hang at the same time without holding up another."""

MAX_SLOW_DRIVERS = 8
"""Drivers that may be slow in all that they do at the same time without holding up another."""

MAX_SLOW_PROBES = 64
"""Threads for probes that take long, beside those for the quick ones."""

MAX_END_SECONDS = 60.0
"""How long the end may take, whatever hangs: twice what everything that is waited for may take together."""

LOCAL_AGENTS = (
    "local agents stay on the machine that started them; a leader on another one starts them a second time"
)
LOCAL_AGENTS_HINT = (
    "an election is for agents in clusters: give these to an instance that runs on one machine only"
)

RECALLED_COMMITS = 200
"""Commits of earlier runs that are looked through for how long it takes to converge."""

ErrorReporter = Callable[[BaseException, Action | None], None]
"""Called with an error that ended a pass or an action, and with the action."""

log = structlog.get_logger(__name__)


# -- parts that pipelines are made of


class _Pools(NamedTuple):
    """Looking, doing and asking how agents are do not wait for each other: each has threads of its own."""

    apply: DaemonPool
    observe: DaemonPool
    probes: ProbePools

    @classmethod
    def of(cls, parallelism: int) -> _Pools:
        """Pools whose threads are started when they are needed."""
        quick = DaemonPool("probe", parallelism * 2, slow_after=SLOW_SECONDS, spare=MAX_SLOW_PROBES)
        slow = DaemonPool("slow-probe", MAX_SLOW_PROBES)
        most = MAX_SLOW_DRIVERS * len(SORTS) * (parallelism + MAX_SLOW)  # the executor says how many
        apply = DaemonPool("apply", most)
        return cls(apply, DaemonPool("observe", MAX_DRIVERS), ProbePools(quick, slow))

    def close(self) -> None:
        """Wait for nothing: what hangs is left to the end of the process."""
        for pool in (self.apply, self.observe, *self.probes):
            pool.shutdown()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What pipelines are made of."""

    settings: Settings
    journal: SqlJournal
    mirror: Mirror
    drivers: Connections
    clock: Clock
    loader: Loader
    redactor: Redactor
    pools: _Pools
    queue: WorkQueue
    fence: Fence | None = None

    def leading(self) -> bool:
        """Whether this process may act: it does not share its instance with others, or is the one that leads."""
        return self.fence is None or self.fence.holds()

    def reader(self) -> FleetReader:
        """The answers of the journal at this moment."""
        return FleetReader(self.journal, self.settings.instance, self.clock.now(), self.redactor)


def _opened(
    settings: Settings,
    environment: Mapping[str, str],
    journal: SqlJournal,
    stack: ExitStack,
    drivers: Connections,
    fetching: OnProgress | None,
) -> _Parts:
    clock = SystemClock()
    mirror = Mirror(settings, environment, clock, fetching)
    loader = stack.enter_context(_loader(settings, mirror, drivers))
    redactor, queue = drivers.redactor, WorkQueue()
    pools = _Pools.of(settings.parallelism)
    stack.callback(pools.close)
    return _Parts(settings, journal, mirror, drivers, clock, loader, redactor, pools, queue)


@contextmanager
def _loader(settings: Settings, mirror: Mirror, drivers: Connections) -> Iterator[Loader]:
    # What is not said of a driver is known too, unlike where documents are checked for some other machine.
    said = {name: settings.drivers.get(name, {}) for name in drivers.plugins.names}
    known = settings.model_copy(update={"drivers": said})
    with closing(Cache(settings.state / CACHE_NAME, version_of(known, drivers.plugins))) as cache:
        yield Loader(mirror, drivers.plugins, known, cache)


def connect_drivers(
    settings: Settings,
    redactor: Redactor,
    wrap: Callable[[Driver], Driver] = lambda driver: driver,
    fence: Fence | None = None,
) -> Connections:
    """The drivers of an instance, each connected when it is first asked for. ``redactor`` learns their secrets;
    ``fence``: of the leadership that they act in."""
    state_dir, hosts = str(settings.state.absolute()), settings.hook_hosts
    context = Context(settings.instance, state_dir, SystemClock(), hook_hosts=hosts, redactor=redactor)
    if fence is not None:
        context = replace(context, leading=fence.holds, term=fence.term)
    return Connections(load_plugins(), context, settings.drivers, wrap)


def _pipeline(
    parts: _Parts,
    sinks: Sequence[Sink] = (),
    host: HostLeases | None = None,
    report: ErrorReporter = lambda _problem, _action: None,
) -> Pipeline:
    settings, journal, clock = parts.settings, parts.journal, parts.clock
    leases: DriverLeases | None = None
    if host is not None:
        elected = parts.fence is not None
        leases = DriverLeases(host, parts.drivers, parts.pools.observe, parts.leading, elected=elected)
    executor = ExecutorContext(
        drivers=parts.drivers,
        journal=journal,
        clock=clock,
        random=Random(),  # noqa: S311 - jitter, not a secret
        apply_pool=parts.pools.apply,
        workers=settings.parallelism,
        interrupted=lambda: parts.queue.is_urgent() or not parts.leading(),
        on_unexpected=report,
        leases=leases,
        rates=parts.drivers.rates,
    )
    monitor = HealthMonitor(
        clock,
        parts.pools.probes,
        lambda: journal.state().status.agents,
        parts.queue.probed,
    )
    stages = Stages(
        source=SourceTracker(
            parts.mirror, parts.loader.load, clock, journal.commit_record, journal.state, parts.loader.recall
        ),
        controls=Controls(journal, GitApprovals(parts.mirror, settings)),
        observer=Observer(parts.drivers, monitor, parts.pools.observe),
        recovery=Recovery(journal),
        leases=LeaseHolder(leases),
        executor=Executor(executor),
        proposals=_proposals(parts),
        outbox=Outbox(sinks, journal, clock, parts.redactor, leading=lambda: _may_report(parts, host)),
        terms=Terms(may_push=settings.push, import_hold_seconds=settings.import_after),
    )
    return Pipeline(stages, journal, clock)


def _connect_early(parts: _Parts) -> None:
    """Have the drivers connected that hold something on record, while Git is asked: the first look waits less."""

    def connect(name: str) -> None:
        with suppress(Exception):  # the first look says why, and tries again
            parts.drivers[name]

    for name in {base.driver for base in parts.journal.state().reconcile.bases.values()}:
        parts.pools.observe.submit(connect, name)


def local_agents(journal: SqlJournal, drivers: Connections) -> list[str]:
    """The agents on record that run on one machine, whichever it is."""
    names = {each.name for each in drivers.plugins if each.local and each.is_runtime}
    bases = journal.state().reconcile.bases
    return sorted({str(key.agent) for key, base in bases.items() if base.driver in names})


def _may_report(parts: _Parts, host: HostLeases | None) -> bool:
    """Whether we report for our source: as the leader, or unless a process that was here before us follows it."""
    if parts.fence is not None:
        return parts.fence.holds()
    return host is None or not host.senior_holder()


def _proposals(parts: _Parts) -> ProposalOutbox:
    settings, writer = parts.settings, BranchWriter(parts.mirror, parts.settings)
    importer = ImportProposer(
        source=parts.mirror,
        writer=writer,
        # Another loader than that of the passes: it is used at the same time.
        loader=lambda: _loader(settings, parts.mirror, parts.drivers),
        mask=parts.redactor.tree,
        settings=settings,
        plugins=parts.drivers.plugins,
    )
    reverter = RevertProposer(parts.mirror, writer, settings.branch) if settings.push else None
    again = lambda: parts.queue.source_changed("proposal")  # noqa: E731
    return ProposalOutbox(reverter, importer, on_done=again, leading=parts.leading)


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
        drivers = connect_drivers(settings, make_redactor(settings, environment))
        if has_journal(place := journal_place(settings)):
            journal = stack.enter_context(open_journal(place, read_only=True))
        else:
            journal = stack.enter_context(open_journal(Path(stack.enter_context(TemporaryDirectory()))))
        parts = _opened(settings, environment, journal, stack, drivers, fetching)
        _check_repository(parts, keep=False)
        yield Planner(parts.mirror, parts.loader, journal, _pipeline(parts), parts.redactor)


@contextmanager
def open_rollback(
    settings: Settings, environment: Mapping[str, str], fetching: OnProgress | None = None
) -> Iterator[RollbackCommand]:
    """A planner that can also write commits."""
    with open_planner(settings, environment, fetching) as planner:
        writer = BranchWriter(planner.source, settings)
        good = planner.journal.state().rollout.converged
        yield RollbackCommand(planner.source, writer, planner.plan, settings.branch, planner.redactor, good)


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
    fence: Fence | None = None,
) -> Iterator[Instance]:
    """Everything ``once`` and ``run`` need; at the end notes get their final push. ``measured``: with metrics.
    ``fence``: of our leadership, where one of several processes leads."""
    gc.enable()
    with ExitStack() as stack:
        redactor = make_redactor(settings, environment)
        setup_logs(settings.log_format, sys.stderr, redactor, dict(environment))
        if closed := make_state_dir(settings.state):
            what = "other users could read the state directory; now it is closed"
            log.warning(what, state=str(settings.state), was=closed)
        stack.enter_context(state_lock(settings.state))
        # An election decided that it is our turn, so whoever wrote a shared journal until now writes no more.
        name, elected = settings.identity or f"pid {os.getpid()} on {socket.gethostname()}", fence is not None
        leading = fence.holds if fence is not None else lambda: True
        place = journal_place(settings)
        opened = open_journal(place, mask=redactor, writer=name, take_over=elected, leading=leading)
        stack.enter_context(opened)
        journal, wrap = _with_faults(opened, environment)
        drivers = connect_drivers(settings, redactor, wrap, fence)
        drivers.require()
        parts = replace(_opened(settings, environment, journal, stack, drivers, fetching), fence=fence)
        parts.mirror.leading = parts.leading
        _connect_early(parts)
        if elected and (local := local_agents(journal, drivers)):
            log.warning(LOCAL_AGENTS, agents=local[:5], hint=LOCAL_AGENTS_HINT)
        _check_repository(parts, keep=True)
        leases = stack.enter_context(_leases(parts, environment))
        liveness = Liveness(parts.clock, settings.livez_grace, MAX_GIT_CALLS * settings.git_timeout)
        notes = GitNotesSink(settings.instance, Notes(parts.mirror, settings), redactor, push=settings.push)
        sinks: list[Sink] = [notes]
        if (sentry := setup_sentry(settings, redactor)) is not None:
            stack.callback(sentry.close)
            sinks.append(sentry)
        housekeeping = _housekeeping(parts)
        jobs = [ScheduledJob(ASKED_EVERY_SECONDS, "housekeeping", housekeeping.run)]
        if (drift := _drift_sink(parts)) is not None:
            sinks.append(drift)
            jobs.append(ScheduledJob(settings.drift_interval, "drift", drift.run))
        if (metrics := _metrics(parts, liveness) if measured else None) is not None:
            sinks.append(metrics)
        report = _error_reporter(sentry)
        pipeline = _pipeline(parts, sinks, leases, report)
        outbox = pipeline.stages.outbox
        if metrics is not None:
            metrics.follow("gitops_agent_notes_pending", lambda: outbox.pending > 0)
        outbox.start(journal.state())
        stack.callback(parts.drivers.close)
        stack.callback(housekeeping.run)  # it asks the drivers which folders are in use
        stack.callback(outbox.close)
        stack.callback(_closed, pipeline)
        context = ControllerContext(
            pipeline=pipeline,
            queue=parts.queue,
            watchers=_watchers(parts),
            clock=parts.clock,
            poll_interval=settings.poll_interval,
            resync_interval=settings.resync_interval,
            on_unexpected=lambda problem: _pass_failed(problem, report, parts.queue),
            liveness=liveness,
            jobs=jobs,
        )
        yield Instance(context, redactor, metrics.text if metrics is not None else lambda: b"")


@contextmanager
def open_leadership(settings: Settings, environment: Mapping[str, str]) -> Iterator[Fence | None]:
    """The leadership that ``once`` acts in; None without an election. LockHeld names the process that leads,
    ObserveError says why nobody can tell."""
    if not settings.election:
        yield None
        return
    election, out_of_time = _election(settings, environment), threading.Event()
    patience = threading.Timer(settings.timeout, out_of_time.set)
    patience.daemon = True
    patience.start()
    try:
        if not election.wait(out_of_time, patient=False):
            if out_of_time.is_set():
                raise _unknown_leader(settings, election)
            what = f"another gitops-agent leads the instance {settings.instance}: {election.holder() or 'unknown'}"
            raise LockHeld(what, hint="it makes it so; status, explain, history and plan work beside it")
        yield Fence(election, election.term)
    finally:
        patience.cancel()
        election.resign()


def _unknown_leader(settings: Settings, election: Election) -> ObserveError:
    what = f"it is not known after {settings.timeout:.0f} s whether another gitops-agent leads"
    why = election.problem() or "the lease of the last one may still be good"
    return ObserveError(
        f"{what} the instance {settings.instance}: {why}",
        hint=f"check that the driver {settings.election} can be asked, and may read and write the lease; "
        "nothing was done",
    )


@contextmanager
def open_candidacy(settings: Settings, environment: Mapping[str, str]) -> Iterator[Candidacy]:
    """``run`` among the others of its instance. With an election, what ends it and its endpoints are there from
    the start, as it may stand by for long; at the end its lease is given back."""
    if not settings.election:
        yield Candidacy()
        return
    from gitops_agent.report.sinks.metrics import standby_text

    def ignored(_number: int, _frame: FrameType | None) -> None:
        """A service is told to ask the source again; a standby does not follow it."""

    with ExitStack() as stack:
        leave_in_time = stack.enter_context(_bounded_end())
        election = _election(settings, environment)
        candidacy = Candidacy(election, lambda: standby_text(settings.instance))

        def end(_number: int, _frame: FrameType | None) -> None:
            if candidacy.stop.is_set():
                raise KeyboardInterrupt
            candidacy.stop.set()
            leave_in_time()  # an instance may be on its way to be opened

        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, end))
        if not sys.stderr.isatty():
            stack.callback(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, ignored))
        if settings.listen:
            from gitops_agent.web.server import serving

            metrics, live = lambda: candidacy.answers.metrics(), lambda: candidacy.answers.live()
            ready = lambda: candidacy.answers.ready()  # noqa: E731
            stack.enter_context(serving(settings.listen, metrics, live, ready))
        stack.callback(election.resign)
        yield candidacy


def _election(settings: Settings, environment: Mapping[str, str]) -> Election:
    """Our candidacy with the driver that the settings name; UsageError when it elects nobody."""
    redactor = make_redactor(settings, environment)
    setup_logs(settings.log_format, sys.stderr, redactor, dict(environment))
    drivers = connect_drivers(settings, redactor)
    drivers.require()
    plugin = drivers.plugins.get(settings.election)
    if plugin is None or plugin.elect is None:
        able = ", ".join(each.name for each in drivers.plugins if each.elect is not None)
        raise UsageError(
            f"election: the driver {settings.election} {'elects nobody' if plugin else 'is not installed'}",
            hint=f"name one of these: {able or 'none is installed'}; or remove the setting",
        )
    # Always with a part of chance: two processes that were given one name must not take each other for themselves.
    identity = f"{settings.identity or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    return plugin.elect(drivers.context_of(plugin), identity)


@contextmanager
def open_daemon(
    settings: Settings,
    environment: Mapping[str, str],
    progress: Progress,
    fetching: OnProgress | None = None,
    candidacy: Candidacy | None = None,
) -> Iterator[Daemon]:
    """``run``, with the signals that end it and, if we listen at all, with its endpoints. ``candidacy``: what made
    this process the one that acts, if there was an election; unless it is told to stop, ``run`` begins anew."""
    candidacy = candidacy or Candidacy()
    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.getsignal(number))
        # Before the instance is opened, so that it is called off only when all of that has ended.
        leave_in_time = stack.enter_context(_bounded_end())
        instance = stack.enter_context(
            open_instance(settings, environment, fetching, measured=bool(settings.listen), fence=candidacy.fence)
        )
        queue, liveness = instance.context.queue, instance.context.liveness
        if candidacy.elected:
            stack.enter_context(candidacy.answering(Answers(instance.metrics, liveness.live, liveness.ready)))
        elif settings.listen:
            from gitops_agent.web.server import serving

            stack.enter_context(serving(settings.listen, instance.metrics, liveness.live, liveness.ready))

        queue.on_close = leave_in_time
        stack.callback(queue.close)  # an error ends it too

        def end(_number: int, _frame: FrameType | None) -> None:
            if candidacy.stop.is_set():  # said twice: what is waited for now is left behind
                raise KeyboardInterrupt
            candidacy.stop.set()
            queue.close()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        # A service asks the source again on SIGHUP; started by hand, the terminal is gone and so are we.
        hang_up = end if sys.stderr.isatty() else lambda *_: queue.fetch("SIGHUP")
        signal.signal(signal.SIGHUP, hang_up)

        def start_again() -> None:
            liveness.state_lost()
            queue.close()

        def lead_no_more() -> None:
            candidacy.stand_down()
            queue.close()

        watchers = [*instance.context.watchers, StateWatcher(settings.state, start_again)]
        if candidacy.fence is not None:
            watchers.append(LeaderWatcher(candidacy.fence, lead_no_more))
        if candidacy.stop.is_set():  # it was said while the instance was opened
            queue.close()
        context = replace(instance.context, watchers=watchers)
        yield Daemon(context, Random(), progress)  # noqa: S311 - jitter, not a secret


def _check_repository(parts: _Parts, *, keep: bool) -> None:
    source = parts.journal.state().source
    known = (source.head, source.verified, source.valid)
    require_own_repository(parts.mirror, parts.settings.state, known, keep=keep)


@contextmanager
def _bounded_end() -> Iterator[Callable[[], None]]:
    """Gives what is to be called when the end begins: unless the block ends in time, the process does."""
    leave, first = threading.Timer(MAX_END_SECONDS, _leave), threading.Lock()
    leave.daemon = True

    def begin() -> None:
        if first.acquire(blocking=False):  # a signal may come while another thread asks for the end
            leave.start()

    try:
        yield begin
    finally:
        leave.cancel()


def _leave() -> None:
    """End the process although something that should be bounded is not: it may be killed anywhere."""
    log.error("the end takes too long; what is left is for the next start", seconds=MAX_END_SECONDS)
    os._exit(1)


def _closed(pipeline: Pipeline) -> None:
    """End the pipeline; a journal that cannot be written any more keeps nothing from ending."""
    try:
        pipeline.close()
    except JournalError as problem:
        log.warning(problem.message, hint=problem.hint)


def _leases(parts: _Parts, environment: Mapping[str, str]) -> HostLeases:
    """The leases of ``once`` and ``run``; verbs that only look take none."""
    settings = parts.settings
    source = f"{parts.mirror.address.target} {settings.branch} {settings.path}"
    mine = Holder(settings.instance, str(settings.state.absolute()), source, os.getpid(), parts.clock.now())
    return HostLeases(Path(settings.lease_dir or default_lease_dir(environment)), mine)


def _housekeeping(parts: _Parts) -> Housekeeping:
    settings = parts.settings
    return Housekeeping(
        parts.journal,
        parts.drivers,
        BoundedCalls(parts.pools.observe),
        AgentDir(str(settings.state)),
        parts.clock,
        settings.retention,
        settings.folder_retention,
        parts.leading,
    )


def _metrics(parts: _Parts, liveness: Liveness) -> MetricsSink:
    """The sink behind ``/metrics``; it counts the drivers' events on their way to the queue."""
    from gitops_agent.report.sinks.metrics import MetricsSink
    from gitops_agent.report.workflows import stuck

    settings, plugins = parts.settings, parts.drivers.plugins
    stuck_now, explained = lambda: stuck(parts.reader().workflows()), plugins.catalog.explained
    sink = MetricsSink(settings.instance, parts.clock, liveness, stuck_now, plugins.names, explained)
    sink.recall(reversed(parts.journal.commits(RECALLED_COMMITS)))
    sink.follow("gitops_agent_queue_depth", lambda: parts.queue.depth)
    sink.follow("gitops_agent_leader", parts.leading)
    parts.queue.on_agent = sink.event_seen
    return sink


def _drift_sink(parts: _Parts) -> DriftReportSink | None:
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
    reporting = lambda *found: masked_report(parts.reader(), *found)  # noqa: E731
    return DriftReportSink(reporting, writers, lambda: parts.queue.everything("drift"))


def _watchers(parts: _Parts) -> list[Watching]:
    """What notices events: the drivers' own watchers, controls, and the refs of a local repository."""
    queue, mirror = parts.queue, parts.mirror
    # A freeze means now: a running pass makes way at the next safe point.
    controls = ControlWatcher(parts.journal, lambda: queue.everything("control", urgent=True))
    mirror.on_approvals = lambda: queue.everything("approvals")
    watchers: list[Watching] = [parts.drivers, controls]
    if mirror.address.local is not None:
        moved = partial(queue.fetch, "watch", urgent=True)
        watchers.append(RefWatcher(mirror, moved, (APPROVALS,)))
    return watchers


def _pass_failed(problem: Exception, report: ErrorReporter, queue: WorkQueue) -> None:
    """Report what ended a pass. Whose journal was taken over begins anew: what it remembers is of the past."""
    report(problem, None)
    if isinstance(problem, JournalTaken):
        queue.close()


def _error_reporter(sentry: SentrySink | None) -> ErrorReporter:
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


def _with_faults(
    journal: SqlJournal, environment: Mapping[str, str]
) -> tuple[SqlJournal, Callable[[Driver], Driver]]:
    """The journal and what wraps drivers; for crash campaigns, such as die at the point the environment names."""
    point = environment.get("GITOPS_FAULT_AT")
    if not point:
        return journal, lambda driver: driver
    from gitops_agent.testing.faults import FaultInjector, FaultyDriver
    from gitops_agent.testing.faulty_journal import FaultyJournal

    injector = FaultInjector.at(point)
    return FaultyJournal(journal, injector), lambda driver: FaultyDriver(driver, injector)
