"""The sink that counts what passes find and do, for ``/metrics``.

Counted on the thread of the pass; whatever needs the journal is read there too, so that a scrape only reads
values in memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gitops_agent.model.freezes import KINDS_OF_SCOPE, frozen_kinds
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import PassRecord, PassResult, Scope
from gitops_agent.model.plan import Action, Class
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import AgentStatuses
from gitops_agent.model.status import CommitRecord, ConditionType, Phase
from gitops_agent.ports import Clock, Sink
from gitops_agent.report.sinks.drift_counter import (
    DriftCounter,
    PassView,
    RepeatRate,
    UnannouncedChanges,
    by_class,
)
from gitops_agent.report.sinks.registry import MEAN_COMMITS, SURENESS, Registry

STUCK_PERIOD_SECONDS = 60.0
"""Time between two counts of stuck workflows, unless a pass observes everything anyway."""

ORPHAN_REASON = "Orphan"

_LIVE_CHANGES = frozenset({Class.MISSING_EXTERNAL, Class.MISSING_INTERNAL, Class.CONFLICTING})


class LoopTimes(Protocol):
    """What ``daemon.liveness`` knows of the loops. Times are monotonic seconds."""

    pass_began_at: float
    pass_ended_at: float
    fetched_at: float
    failed_passes: int


@dataclass(frozen=True, slots=True)
class MetricLabels:
    """What stays the same for as long as we run. ``explained_reasons``: codes of absences that have a known
    cause, such as a reboot of the host."""

    instance: str
    version: str
    drivers: tuple[str, ...] = ()
    explained_reasons: frozenset[str] = frozenset()


class MetricsSink(Sink):
    """The metrics of one instance. ``stuck`` counts stuck workflows; it is called on the thread of the pass."""

    name = "metrics"

    def __init__(
        self, labels: MetricLabels, clock: Clock, loops: LoopTimes, stuck: Callable[[], int] = lambda: 0
    ) -> None:
        self._labels = labels
        self._clock = clock
        self._loops = loops
        self._stuck = stuck
        self._values = Registry()
        self._drift = DriftCounter()
        self._repeats = RepeatRate()
        self._unannounced = UnannouncedChanges()
        self._times: deque[float] = deque(maxlen=MEAN_COMMITS)
        self._converged: set[str] = set()
        self._statuses = AgentStatuses()
        self._failed_passes = 0
        self._stuck_at = float("-inf")
        self._follow_all()

    def recall(self, records: Iterable[CommitRecord]) -> None:
        """Take the times to converge from commits of earlier runs, oldest first; to be called before the first
        pass."""
        for record in records:
            self._note_convergence(record)

    def follow(self, name: str, read: Callable[[], float]) -> None:
        """Have a gauge read at every scrape; the callable takes no lock."""
        self._values.follow(name, read)

    def event_seen(self, agent: AgentKey) -> None:
        """Note that a watcher reported something about an agent; called on the thread of the watcher."""
        self._unannounced.event_seen(agent, self._clock.monotonic())

    def on_pass(self, result: PassResult) -> None:
        """Count what a pass found and did."""
        now = self._clock.monotonic()
        self._values.count("gitops_agent_passes_total", result="completed")
        self._values.observe("gitops_agent_pass_duration_seconds", now - self._loops.pass_began_at)
        self._statuses = result.state.status.agents
        for phase in Phase:
            self._values.put("gitops_agent_commit_phase", phase is result.phase, phase=phase)
        if result.record is not None:
            self._count_drift(result.record, now)
            self._count_commit(result.head)
            self._show_state(result, result.record)
            self._count_stuck(result.record.live.scope, now)

    def text(self) -> bytes:
        """All metrics, as scrapers read them."""
        failed = self._loops.failed_passes
        self._values.count("gitops_agent_passes_total", failed - self._failed_passes, result="failed")
        self._failed_passes = failed
        return self._values.text()

    # -- what a pass adds

    def _count_drift(self, record: PassRecord, now: float) -> None:
        drift = self._drift = self._drift.after(PassView.of(record))
        for drift_class, number in by_class(drift.began).items():
            self._values.count("drift_detected_total", number, type=drift_class)
        for action in drift.began:
            self._values.observe("repair_confidence_distribution", SURENESS[action.confidence])
        for action in drift.repaired:
            policy = "approved" if action.digest in record.directives.approved else "automatic"
            self._values.count("drift_repaired_total", policy=policy)
        self._repeats.began((action.key for action in drift.began), now)
        changed = (action.key.agent for action in drift.began if self._is_live_change(action))
        self._unannounced.change_found(changed, record.live.scope, self._loops.pass_began_at, now)
        for drift_class, number in by_class(drift.open.values()).items():
            self._values.put("gitops_agent_drift_standing", number, type=drift_class)
        orphans = sum(action.reason == ORPHAN_REASON for action in drift.open.values())
        self._values.put("orphan_resource_count", orphans)
        self._values.put("repeated_drift_rate", self._repeats.rate(now))

    def _is_live_change(self, action: Action) -> bool:
        """Whether live was changed from outside: not our record, not a lack of progress, not a reboot."""
        outside = action.drift_class in _LIVE_CHANGES and action.verb.touches_live
        return outside and action.reason not in self._labels.explained_reasons

    def _count_commit(self, record: CommitRecord | None) -> None:
        if record is not None and (seconds := self._note_convergence(record)) is not None:
            self._values.observe("gitops_agent_time_to_converge_seconds", seconds)
        mean = sum(self._times) / len(self._times) if self._times else 0.0
        self._values.put("mean_time_to_converge", mean)

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
            self._values.put("gitops_agent_frozen", kind in frozen, scope=kind)
        for driver in self._labels.drivers:
            circuit = result.state.reconcile.circuits.get(driver)
            is_open = circuit is not None and circuit.open_until is not None
            self._values.put("gitops_agent_breaker_open", is_open, driver=driver)
        for state, number in waves(result.rollout).items():
            self._values.put("gitops_agent_rollout_wave", number, state=state)

    def _count_stuck(self, scope: Scope, now: float) -> None:
        """Count stuck workflows, which reads the whole record: a scoped pass soon after another does without."""
        if scope is None or now - self._stuck_at >= STUCK_PERIOD_SECONDS:
            self._stuck_at = now
            self._values.put("stuck_workflow_count", self._stuck())

    def _follow_all(self) -> None:
        """Set what never changes, and follow what a scrape computes: right also when no pass ends any more."""
        values, clock, loops, labels = self._values, self._clock, self._loops, self._labels
        values.put("gitops_agent_info", 1, name=labels.instance, version=labels.version)
        for driver in labels.drivers:
            values.put("gitops_agent_breaker_open", 0, driver=driver)
        values.follow("gitops_agent_last_pass_age_seconds", lambda: clock.monotonic() - loops.pass_ended_at)
        values.follow("gitops_agent_last_fetch_age_seconds", lambda: clock.monotonic() - loops.fetched_at)
        values.follow("manual_patch_without_event_count", lambda: self._unannounced.count(clock.monotonic()))
        values.follow("gitops_agent_fleet_size", lambda: len(self._statuses))
        for condition in ConditionType:
            values.follow("gitops_agent_agents", self._counting(condition), condition=condition)

    def _counting(self, condition: ConditionType) -> Callable[[], int]:
        return lambda: sum(
            any(each.type is condition and each.status for each in status.conditions)
            for status in self._statuses.values()
        )


def waves(rollout: Rollout | None) -> Mapping[str, int]:
    """How many waves there are, were released, and are held by a failed gate."""
    if rollout is None:
        return {"total": 0, "released": 0, "held": 0}
    total, released = len(rollout.waves), rollout.released
    return {"total": total, "released": released, "held": total - released if rollout.failed else 0}
