"""The sink that counts what passes find and do, for ``/metrics``: what ``metrics.toml`` names, and nothing else.

Counted on the thread of the pass; whatever needs the journal is read there too, so that a scrape only reads
values in memory. A label only takes values from a set that is known when we start, so that no fleet makes more
series than another.
"""

import tomllib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import disable_created_metrics

from gitops_agent import __version__
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import KINDS_OF_SCOPE, PassRecord, PassResult, Scope, frozen_kinds
from gitops_agent.model.plan import Action, Class, Confidence
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import AgentStatuses
from gitops_agent.model.status import CommitRecord, ConditionType, Phase
from gitops_agent.ports import Clock, Sink
from gitops_agent.report.sinks.drift_counter import DriftCounter, RepeatRate, UnannouncedChanges

ORPHAN_REASON = "Orphan"

_MEAN_COMMITS = 20  # converged ones, that the mean is taken of
_STUCK_PERIOD_SECONDS = 60.0  # between two counts of stuck workflows, unless a pass observes everything anyway
_LIVE_CHANGES = frozenset({Class.MISSING_EXTERNAL, Class.MISSING_INTERNAL, Class.CONFLICTING})
_SURENESS = {Confidence.LOW: 0.0, Confidence.MEDIUM: 0.5, Confidence.HIGH: 1.0}
_SETS: Mapping[str, Sequence[Any]] = {
    "$drift": tuple(str(cls) for cls in Class if cls.is_drift),
    "$scope": KINDS_OF_SCOPE,
    "$condition": tuple(map(str, ConditionType)),
    "$phase": tuple(map(str, Phase)),
}
_MAKERS: Mapping[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}


def metrics() -> dict[str, dict[str, Any]]:
    """What ``metrics.toml`` says of every metric, in its order. ``labels``: which values each may take, or a text
    that says where they come from."""
    listed = tomllib.loads(files("gitops_agent.report.sinks").joinpath("metrics.toml").read_text("utf-8"))
    for about in listed.values():
        about["labels"] = {label: _SETS.get(str(v), v) for label, v in about.get("labels", {}).items()}
    return listed


def make_metrics(registry: CollectorRegistry, only: Collection[str] = ()) -> dict[str, Any]:
    """Every metric (or ``only`` some), registered, by its name. Any thread may write and read."""
    # They would double the names and are of no use.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    made = {}
    for name, about in metrics().items():
        if only and name not in only:
            continue
        more = {"buckets": about["buckets"]} if "buckets" in about else {}
        made[name] = _MAKERS[about["kind"]](name, about["meaning"], about["labels"], registry=registry, **more)
        # Known series are there from the start at 0, so that their first increase can be seen.
        for label, values in about["labels"].items():
            for value in () if isinstance(values, str) else values:
                made[name].labels(**{label: value})
    return made


def standby_text(instance: str) -> bytes:
    """What ``/metrics`` answers of a process that stands by: that it does not lead, and nothing about a fleet."""
    registry = CollectorRegistry(auto_describe=False)
    made = make_metrics(registry, ("gitops_agent_info", "gitops_agent_leader"))
    made["gitops_agent_info"].labels(name=instance, version=__version__).set(1)
    return generate_latest(registry)


class LoopTimes(Protocol):
    """What ``daemon.liveness`` knows of the loops. Times are monotonic seconds."""

    pass_began_at: float
    pass_ended_at: float
    fetched_at: float
    failed_passes: int


class MetricsSink(Sink):
    """The metrics of one instance with its ``drivers``. ``stuck`` counts stuck workflows, on the thread of the
    pass. ``explained``: reason codes of absences that have a known cause, such as a reboot of the host."""

    name = "metrics"

    def __init__(
        self,
        instance: str,
        clock: Clock,
        loops: LoopTimes,
        stuck: Callable[[], int] = lambda: 0,
        drivers: Sequence[str] = (),
        explained: Collection[str] = (),
    ) -> None:
        self._clock = clock
        self._loops = loops
        self._stuck = stuck
        self._drivers = drivers
        self._explained = explained
        self._registry = CollectorRegistry(auto_describe=False)
        self._metrics = make_metrics(self._registry)
        self._drift = DriftCounter()
        self._repeats = RepeatRate()
        self._unannounced = UnannouncedChanges()
        self._times: deque[float] = deque(maxlen=_MEAN_COMMITS)
        self._converged: set[str] = set()
        self._statuses = AgentStatuses()
        self._failed_passes = 0
        self._stuck_at = float("-inf")
        self._metrics["gitops_agent_info"].labels(name=instance, version=__version__).set(1)
        self._metrics["gitops_agent_leader"].set(1)
        for driver in drivers:
            self._metrics["gitops_agent_breaker_open"].labels(driver=driver).set(0)
        self._follow_all()

    def recall(self, records: Iterable[CommitRecord]) -> None:
        """Take the times to converge from commits of earlier runs, oldest first, before the first pass."""
        for record in records:
            self._note_convergence(record)

    def follow(self, name: str, read: Callable[[], float]) -> None:
        """Have a gauge read at every scrape; the callable takes no lock."""
        self._metrics[name].set_function(read)

    def event_seen(self, agent: AgentKey) -> None:
        """Note that a watcher reported something about an agent; called on the thread of the watcher."""
        self._unannounced.event_seen(agent, self._clock.monotonic())

    def on_pass(self, result: PassResult) -> None:
        """Count what a pass found and did."""
        now = self._clock.monotonic()
        self._metrics["gitops_agent_passes_total"].labels(result="completed").inc()
        self._metrics["gitops_agent_pass_duration_seconds"].observe(now - self._loops.pass_began_at)
        self._statuses = result.state.status.agents
        for phase in Phase:
            self._metrics["gitops_agent_commit_phase"].labels(phase=phase).set(phase is result.standing)
        if result.record is not None:
            self._count_drift(result.record, now)
            self._count_commit(result.state.head)
            self._show_state(result, result.record)
            self._count_stuck(result.record.live.scope, now)

    def text(self) -> bytes:
        """All metrics, as scrapers read them."""
        failed = self._loops.failed_passes
        self._metrics["gitops_agent_passes_total"].labels(result="failed").inc(failed - self._failed_passes)
        self._failed_passes = failed
        return generate_latest(self._registry)

    # -- what a pass adds

    def _count_drift(self, record: PassRecord, now: float) -> None:
        drift = self._drift = self._drift.after(record)
        for action in drift.began:
            self._metrics["drift_detected_total"].labels(type=action.drift_class).inc()
            self._metrics["repair_confidence_distribution"].observe(_SURENESS[action.confidence])
        for action in drift.repaired:
            policy = "approved" if action.digest in record.directives.approved else "automatic"
            self._metrics["drift_repaired_total"].labels(policy=policy).inc()
        self._repeats.began((action.key for action in drift.began), now)
        changed = (action.key.agent for action in drift.began if self._is_live_change(action))
        self._unannounced.change_found(changed, record.live.scope, self._loops.pass_began_at, now)
        standing = [action.drift_class for action in drift.open.values()]
        for drift_class in _SETS["$drift"]:
            self._metrics["gitops_agent_drift_standing"].labels(type=drift_class).set(standing.count(drift_class))
        orphans = sum(action.reason == ORPHAN_REASON for action in drift.open.values())
        self._metrics["orphan_resource_count"].set(orphans)

    def _is_live_change(self, action: Action) -> bool:
        """Whether live was changed from outside: not our record, not a lack of progress, not a reboot."""
        outside = action.drift_class in _LIVE_CHANGES and action.verb.touches_live
        return outside and action.reason not in self._explained

    def _count_commit(self, record: CommitRecord | None) -> None:
        if record is not None and (seconds := self._note_convergence(record)) is not None:
            self._metrics["gitops_agent_time_to_converge_seconds"].observe(seconds)
        mean = sum(self._times) / len(self._times) if self._times else 0.0
        self._metrics["mean_time_to_converge"].set(mean)

    def _note_convergence(self, record: CommitRecord) -> float | None:
        """How long a commit took, when it has converged and was not noted before."""
        if record.phase is not Phase.CONVERGED or record.finished_at is None or record.sha in self._converged:
            return None
        self._converged.add(record.sha)
        seconds = max(0.0, record.finished_at - record.seen_at)
        self._times.append(seconds)
        return seconds

    def _show_state(self, result: PassResult, record: PassRecord) -> None:
        frozen = frozen_kinds(record, self._clock.now())
        for kind in KINDS_OF_SCOPE:
            self._metrics["gitops_agent_frozen"].labels(scope=kind).set(kind in frozen)
        circuits = result.state.reconcile.circuits
        for driver in {*self._drivers, *circuits}:  # each place of a driver has a circuit of its own
            circuit = circuits.get(driver)
            is_open = circuit is not None and circuit.open_until is not None
            self._metrics["gitops_agent_breaker_open"].labels(driver=driver).set(is_open)
        rollout = result.state.rollout.rollout or Rollout("", "", ())
        total, released = len(rollout.waves), rollout.released
        waves = {"total": total, "released": released, "held": total - released if rollout.failed else 0}
        for state, number in waves.items():
            self._metrics["gitops_agent_rollout_wave"].labels(state=state).set(number)

    def _count_stuck(self, scope: Scope, now: float) -> None:
        """Count stuck workflows, which reads the whole record: a scoped pass soon after another does without."""
        if scope is None or now - self._stuck_at >= _STUCK_PERIOD_SECONDS:
            self._stuck_at = now
            self._metrics["stuck_workflow_count"].set(self._stuck())

    def _follow_all(self) -> None:
        """Follow what a scrape computes: right also when no pass ends any more."""
        now, loops = self._clock.monotonic, self._loops
        self.follow("gitops_agent_last_pass_age_seconds", lambda: now() - loops.pass_ended_at)
        self.follow("gitops_agent_last_fetch_age_seconds", lambda: now() - loops.fetched_at)
        self.follow("manual_patch_without_event_count", lambda: self._unannounced.count(now()))
        self.follow("repeated_drift_rate", lambda: self._repeats.rate(now()))
        self.follow("gitops_agent_fleet_size", lambda: len(self._statuses))
        for condition in ConditionType:
            agents = self._metrics["gitops_agent_agents"].labels(condition=condition)
            agents.set_function(partial(self._count_agents, condition))

    def _count_agents(self, condition: ConditionType) -> int:
        agents = self._statuses.values()
        return sum(any(each.type is condition and each.status for each in agent.conditions) for agent in agents)
